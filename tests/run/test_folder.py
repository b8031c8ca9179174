"""Promise: a run never writes into another run's folder, and the error names the commands that go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.run.errors import InputError
from outlive.run.folder import RunFolder, create


def test_layout() -> None:
    folder = RunFolder(Path("runs/a"))
    assert folder.checkpoint(200) == Path("runs/a/checkpoints/step-00000200")
    files = (
        folder.run_yaml,
        folder.lock,
        folder.data,
        folder.metrics,
        folder.events,
        folder.first_batch,
        folder.report,
    )
    assert [path.relative_to("runs/a").as_posix() for path in (*files, folder.evals)] == [
        "run.yaml",
        "lock.json",
        "data.json",
        "metrics.jsonl",
        "events.jsonl",
        "first_batch.html",
        "report.html",
        "evals",
    ]


def test_create(tmp_path: Path) -> None:
    folder = create("support-json", tmp_path / "runs")
    assert folder.root == tmp_path / "runs" / "support-json"
    assert folder.root.is_dir()


def test_an_existing_run_is_refused_with_the_two_commands(tmp_path: Path) -> None:
    create("a", tmp_path)
    with pytest.raises(InputError) as caught:
        create("a", tmp_path)
    assert f"outlive train {tmp_path / 'a'} --resume" in str(caught.value)
    assert str(caught.value).endswith("name=a-2")
    create("a-2", tmp_path)
    with pytest.raises(InputError, match="name=a-3"):
        create("a", tmp_path)
    with pytest.raises(InputError, match="name=a-3"):
        create("a-2", tmp_path)


def test_a_file_where_run_folders_are_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(InputError, match="this is no folder"):
        create("a", tmp_path / "runs")


def test_the_suggested_name_can_be_used(tmp_path: Path) -> None:
    name = "x" * 100
    create(name, tmp_path)
    with pytest.raises(InputError) as caught:
        create(name, tmp_path)
    create((caught.value.fix or "").rpartition("name=")[2], tmp_path)


@pytest.mark.parametrize(
    "name", ["", " ", "a/b", "a\\b", "..", ".a", "a.", "-a", "a ", "a\nb", "a:b", "x" * 101, "é" * 100 + "é"]
)
def test_names_that_are_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        create(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "Über 3", "a.b-c_d+e", "x" * 100, "模型"])
def test_names_that_are_fine(tmp_path: Path, name: str) -> None:
    assert create(name, tmp_path).root.is_dir()
