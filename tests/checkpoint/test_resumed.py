"""Promise: a conversion that was killed goes on with the files that it had finished, and with no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from outlive.checkpoint import whole
from outlive.checkpoint.building import Building, building_checkpoint
from outlive.checkpoint.formats.dcp import open_dcp
from outlive.checkpoint.formats.dcp_write import write_dcp
from outlive.checkpoint.formats.pickled_write import write_pickled
from outlive.checkpoint.manifest import verify_manifest
from outlive.checkpoint.resumed import key_of, resumed_checkpoint
from outlive.checkpoint.tensors.views import Given
from outlive.cli.main import app
from outlive.run.errors import InputError, WorkError

ONE, TWO = np.arange(6, dtype=np.float32), np.ones((2, 3), np.float32)
Made = list[str]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """The names of the files that are really written."""
    names: Made = []
    real = Building._file

    def noting(self: Building, name: str, *arguments: object) -> object:
        names.append(name)
        return real(self, name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Building, "_file", noting)
    return names


def write(building: Building) -> None:
    building.text("config.json", "{}")
    building.tensors("sub/one.safetensors", {"one": ONE})
    write_dcp(building, {"two": TWO, "one": ONE}, folder="sub", max_file_bytes=1)


def interrupt(final: Path, key: str = "key", work: Callable[[Building], None] = write) -> Path:
    """The folder that is left when the work is interrupted at its end."""

    def interrupted() -> None:
        with resumed_checkpoint(final, {}, key) as building:
            work(building)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not final.exists()
    return final.with_name(f".{final.name}.unfinished")


def finish(final: Path, key: str = "key") -> None:
    with resumed_checkpoint(final, {"made_by": "test"}, key) as building:
        write(building)
    verify_manifest(final)
    assert [path.name for path in final.parent.iterdir() if path.name.startswith(".")] == []
    assert not (final / ".progress").exists()
    tensors = open_dcp(final / "sub").tensors
    np.testing.assert_array_equal(tensors["two"].array(), TWO)
    np.testing.assert_array_equal(tensors["one"].array(), ONE)


def test_what_was_finished_is_kept(tmp_path: Path, made: Made) -> None:
    interrupt(tmp_path / "out")
    made.clear()
    finish(tmp_path / "out")
    assert made == ["config.json", "sub/.metadata"]


def test_the_second_time_gives_the_same_bytes(tmp_path: Path) -> None:
    interrupt(tmp_path / "out")
    finish(tmp_path / "out")
    finish(tmp_path / "at_once")
    for path in (tmp_path / "at_once").rglob("*"):
        if path.is_file():
            assert (tmp_path / "out" / path.relative_to(tmp_path / "at_once")).read_bytes() == path.read_bytes()


def test_another_key_begins_anew(tmp_path: Path, made: Made) -> None:
    interrupt(tmp_path / "out")
    made.clear()
    finish(tmp_path / "out", "other")
    assert "sub/one.safetensors" in made
    assert "sub/__0_0.distcp" in made


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "link"])
def test_a_file_that_is_not_whole_is_made_again(tmp_path: Path, made: Made, how: str) -> None:
    file = interrupt(tmp_path / "out") / "sub" / "__0_0.distcp"
    data = file.read_bytes()
    file.unlink()
    if how == "flipped":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "cut":
        file.write_bytes(data[:-1])
    elif how == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        file.symlink_to(tmp_path / "elsewhere")
    made.clear()
    finish(tmp_path / "out")
    assert [name for name in made if "distcp" in name] == ["sub/__0_0.distcp"]
    assert not (tmp_path / "out" / "sub" / "__0_0.distcp").is_symlink()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"key": 1}\n{"na', "\x00"])
def test_a_damaged_list_counts_for_nothing(tmp_path: Path, made: Made, text: str) -> None:
    (interrupt(tmp_path / "out") / ".progress").write_text(text)
    made.clear()
    finish(tmp_path / "out")
    assert "sub/one.safetensors" in made


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> None:
        with resumed_checkpoint(tmp_path / "out", {}, "key") as building:
            building.tensors("a.safetensors", {"a": ONE})
            building.tensors("b.safetensors", {"b": ONE * np.nan}, finite=["b"])

    with pytest.raises(WorkError, match="NaN") as error:
        failing()
    assert error.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_two_at_once(tmp_path: Path) -> None:
    def another(building: Building) -> None:
        with pytest.raises(InputError, match="another process"), resumed_checkpoint(tmp_path / "out", {}, "key"):
            pass

    interrupt(tmp_path / "out", work=another)
    finish(tmp_path / "out")


def test_an_interruption_says_what_is_kept(tmp_path: Path) -> None:
    def nothing_yet(building: Building) -> None:
        building.text("config.json", "{}")

    assert notes(tmp_path / "out", write) == ["3 files were finished, and kept: the same command goes on from there"]
    assert notes(tmp_path / "other", nothing_yet) == []
    assert not (tmp_path / ".other.unfinished").exists()


def notes(final: Path, work: Callable[[Building], None]) -> list[str]:
    def interrupted() -> None:
        with resumed_checkpoint(final, {}, "key") as building:
            work(building)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as error:
        interrupted()
    return getattr(error.value, "__notes__", [])


def test_the_key_is_of_files_options_and_target(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    for name in ("a", "b", "config.json"):
        (source / name).write_text(name)
    keys = [key_of([source], {}, out), key_of([source], {"dtype": "bf16"}, out), key_of([source], {}, tmp_path / "two")]
    keys += [key_of([source / "a"], {}, out), key_of([source / "b"], {}, out)]
    (source / "config.json").write_text("changed")
    keys += [key_of([source], {}, out), key_of([source / "a"], {}, out)]
    assert len(set(keys)) == len(keys)


def test_what_is_being_made_is_no_part_of_its_source(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before = key_of([tmp_path], {}, tmp_path / "out")
    interrupt(tmp_path / "out", before)
    assert list(tmp_path.glob(".out.*"))
    assert key_of([tmp_path], {}, tmp_path / "out") == before


def test_the_verb_goes_on_and_takes_no_other_file_for_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checkpoints in one folder, of the same shapes: what was made of one is not kept for the other."""
    with building_checkpoint(tmp_path / "in", {}) as building:
        for name, value in (("a", 1.0), ("b", 2.0)):
            write_pickled(building, f"{name}.pt", {"w": Given(np.full(5, value, np.float32))})
    with monkeypatch.context() as patch:
        patch.setattr(whole, "write_dcp", interrupted_at_the_end)
        stopped = run("a", tmp_path)
        assert stopped.exit_code == 75
        assert "1 file was finished, and kept" in stopped.stderr
    assert run("b", tmp_path).exit_code == 0
    np.testing.assert_array_equal(open_dcp(tmp_path / "out").tensors["w"].array(), np.full(5, 2, np.float32))


def interrupted_at_the_end(*arguments: Any, **named: Any) -> None:
    write_dcp(*arguments, **named)
    raise KeyboardInterrupt


def run(name: str, folder: Path) -> Any:
    source, target = folder / "in" / f"{name}.pt", folder / "out"
    return CliRunner().invoke(app, ["convert", str(source), str(target), "--to", "dcp"])
