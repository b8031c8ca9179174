"""Run folders that were edited by hand or damaged: one message with a remedy, before anything is changed; or the run
goes on rightly and says what it left out."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from outlive.checkpoint.manifest import read_manifest, write_manifest
from outlive.run.errors import InputError, WorkError
from tests.engines.resuming import Verb

Values = dict[str, Any]


def _edit(path: Path, change: Callable[[Values], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _hash_again(checkpoint: Path) -> None:
    """As whoever edits a checkpoint's files and mends its manifest."""
    about = read_manifest(checkpoint)
    (checkpoint / "manifest.json").unlink()
    write_manifest(checkpoint, {key: value for key, value in about.items() if key != "files"})


def _put(*keys_and_value: Any) -> Callable[[Values], object]:
    *keys, last, value = keys_and_value

    def change(values: Values) -> None:
        for key in keys:
            values = values[key]
        values[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_put("cursor", "pack", -1), "pack is -1"),
        (_put("cursor", "pack", 999), "pack 999 of a pass of"),
        (_put("cursor", "pack", "3"), "pack is '3'"),
        (_put("cursor", "more", 1), "cursor has the keys"),
        (_put("cursor", [0, 1, 2]), "cursor has the keys"),
        (_put("cursor", "step", 5), "of step 5"),
        (_put("tokens", 1e400), "tokens is inf"),
        (_put("version", 2), "version 2"),
        (_put("optimizer", 3), "can't be gone on from"),
        (_put("optimizer", "step_of", ["x"]), "can't be gone on from"),
        (_put("owes_validation", 1), "owes_validation"),
        (lambda values: values.pop("skipped_steps"), "lacks skipped_steps"),
    ],
)
def test_a_trainer_json_that_can_not_be_is_refused(done: Verb, change: Callable[[Values], object], says: str) -> None:
    checkpoint = done.folder.checkpoint(6)
    _edit(checkpoint / "state" / "trainer.json", change)
    _hash_again(checkpoint)
    before = done.curve()
    with pytest.raises(InputError, match=says):
        done.train(resume="6")
    assert done.curve() == before
    assert done.steps() == [3, 6, 8]


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["files"].update({"../../x": values["files"].popitem()[1]}),
        lambda values: values["files"].update({"/etc/hostname": values["files"].popitem()[1]}),
        lambda values: values["files"].update({"a\0b": values["files"].popitem()[1]}),
        lambda values: values["files"].update({"": values["files"].popitem()[1]}),
        _put("files", "state/trainer.json", {"size": "12", "xxh3_128": "0"}),
        _put("step", 5),
        _put("files", {}),
    ],
    ids=["outside", "absolute", "nul", "nameless", "size", "step", "no files"],
)
def test_a_manifest_that_can_not_be_is_left_out(done: Verb, change: Callable[[Values], object]) -> None:
    expected = done.curve()
    for step in (6, 8):
        _edit(done.folder.checkpoint(step) / "manifest.json", change)
    done.train(resume="latest")
    assert "step-00000008 is no whole checkpoint and is left out" in done.said
    assert "goes on from" in done.said
    assert "step-00000003" in done.said
    assert done.curve() == expected


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("model.norm.weight"), "lacks 1 tensors"),
        (_put("more", torch.zeros(2)), "more is not trained now"),
        (_put("model.norm.weight", torch.zeros(3)), r"shape \[3\]"),
        (_put("model.norm.weight", torch.zeros(32, dtype=torch.bfloat16)), "bfloat16, and float32"),
        (None, "can't be read"),
    ],
    ids=["missing", "extra", "shape", "dtype", "garbage"],
)
def test_a_state_that_does_not_fit_is_refused(done: Verb, change: Any, says: str) -> None:
    checkpoint = done.folder.checkpoint(6)
    path = next((checkpoint / "state").glob("*.safetensors"))
    if change is None:
        path.write_bytes(b"garbage" * 9)
    else:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)
    _hash_again(checkpoint)
    with pytest.raises(InputError, match=says):
        done.train(resume="6")


def test_what_copying_tools_leave_in_a_state_is_not_read(done: Verb) -> None:
    """Only files that the manifest names, whose hashes are compared."""
    expected = done.curve()
    state = done.folder.checkpoint(6) / "state"
    (state / f"._{next(state.glob('*.safetensors')).name}").write_bytes(b"of a Mac")
    done.train(resume="6")
    assert done.curve() == expected


def test_odd_names_among_the_checkpoints(done: Verb) -> None:
    """What is no whole checkpoint is set aside with a word; what only looks like one is left alone."""
    expected = done.curve()
    folder = done.folder.checkpoints
    (folder / "step-00000009").write_text("a file")
    (folder / "step-00000010").symlink_to("/nowhere/at/all")
    shutil.copytree(done.folder.checkpoint(3), folder / "step-4")
    shutil.copytree(done.folder.checkpoint(3), folder / "step-00000003.bak")
    shutil.rmtree(done.folder.checkpoint(8))
    done.train(resume="latest")
    assert done.curve() == expected
    aside = done.folder.root / "superseded" / "before-attempt-2"
    assert sorted(os.listdir(aside)) == ["step-00000009", "step-00000010", "step-4"]
    assert (folder / "step-00000003.bak").is_dir()


def test_what_a_link_leads_to_is_not_removed(done: Verb) -> None:
    other = done.root / "of-another-run"
    done.folder.checkpoint(6).rename(other)
    done.folder.checkpoint(6).symlink_to(other)
    shutil.rmtree(done.folder.checkpoint(8))
    done.train("checkpoint.keep=1", "checkpoint.best=null", resume="latest")
    assert done.steps() == [8]
    assert (other / "manifest.json").is_file()


def test_checkpoints_on_another_disk(done: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be renamed from one disk to another: what is set aside stays on its own."""
    expected = done.curve()
    disk = done.root / "disk"
    done.folder.checkpoints.rename(disk)
    done.folder.checkpoints.symlink_to(disk)
    rename, stat = os.rename, Path.stat

    def device(path: Path) -> bool:
        return disk in (path.resolve(), *path.resolve().parents)

    def renaming(old: Any, new: Any) -> None:
        if device(Path(old).parent) != device(Path(new).parent):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(old))
        rename(old, new)

    def stats(path: Path, **more: Any) -> Any:
        found = stat(path, **more)
        return os.stat_result([*found[:2], -1, *found[3:10]]) if path == done.folder.checkpoints else found

    monkeypatch.setattr(os, "rename", renaming)
    monkeypatch.setattr(Path, "stat", stats)
    done.train(resume="3")
    assert done.curve() == expected
    assert sorted(os.listdir(disk / "superseded" / "before-attempt-2")) == ["step-00000006", "step-00000008"]


def test_two_moves_of_one_attempt_keep_both(done: Verb) -> None:
    """A run whose events are lost counts its attempts anew; what was set aside before is not in the way."""
    done.train(resume="3")
    for path in (done.folder.events, done.folder.metrics):
        path.unlink()
    done.train(resume="3")
    aside = done.folder.root / "superseded" / "before-attempt-2"
    assert sorted(os.listdir(aside)) == ["step-00000006", "step-00000006-2", "step-00000008", "step-00000008-2"]
    assert "metrics.jsonl lacks 3 of the 3 steps" in done.said


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("run.yaml", None, "has no run.yaml"),
        ("run.yaml", "", "model is missing"),
        ("lock.json", "", "lock.json of the run is damaged"),
        ("lock.json", '{"cpu": 3}', "lock.json of the run is damaged: cpu is 3"),
        ("lock.json", '{"hashes": [1]}', "hashes is"),
        ("data.json", '{"train": "abc"}', "data.json of the run is damaged: train is abc"),
        ("data.json", '{"train": ["abc"]}', "hold a store"),
        ("metrics.jsonl", "{cut\n{}\n", r"no record"),
    ],
)
def test_a_damaged_file_of_the_run_is_named(done: Verb, name: str, content: str | None, says: str) -> None:
    path = done.folder.root / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(InputError, match=says) as error:
        done.train(resume="3")
    assert str(done.folder.root) in str(error.value)
    assert done.steps() == [3, 6, 8]


@pytest.mark.parametrize("name", ["lock.json", "data.json"])
def test_what_can_not_be_compared_is_said(done: Verb, name: str) -> None:
    expected = done.curve()
    (done.folder.root / name).unlink()
    done.train(resume="6")
    assert f"there is no {name}" in done.said
    assert done.curve() == expected


def test_events_that_say_nonsense_do_not_stop_a_resume(done: Verb) -> None:
    with done.folder.events.open("a") as file:
        file.write('{"kind": "started", "attempt": "x"}\n')
    done.train(resume="6")
    assert done.events("started")[-1]["attempt"] == 2


def test_a_checkpoint_that_can_not_be_read_is_left_out(done: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that loses sectors: the run goes on from the one before."""
    from outlive.checkpoint import manifest

    hash_file = manifest.hash_file

    def failing(path: Path) -> str:
        if "step-00000008" in str(path):
            raise WorkError("could not read: Input/output error", where=str(path))
        return hash_file(path)

    expected = done.curve()
    monkeypatch.setattr(manifest, "hash_file", failing)
    done.train(resume="latest")
    assert "Input/output error" in done.said
    assert done.curve() == expected
