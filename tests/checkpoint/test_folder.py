"""Promise: only whole checkpoints are listed, the others with a reason; the best and the newest are never removed."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from outlive.checkpoint.folder import (
    Saved,
    best,
    broken_checkpoints,
    free_space,
    remove,
    saved_checkpoints,
    size_of,
    superfluous,
    sweep,
)
from outlive.run.errors import WorkError
from tests.checkpoint.faults import save_step, tokenizer_folder


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for step in (20, 3, 100):
        save_step(tmp_path / "checkpoints", step, tokenizer_folder(tmp_path / "tokenizer"), loss=step / 10)
    return tmp_path / "checkpoints"


def test_whole_checkpoints_in_order(checkpoints: Path) -> None:
    (checkpoints / ".step-00000200.0123456789abcdef.tmp").mkdir()
    (checkpoints / "step-best").mkdir()
    (checkpoints / f"step-{'1' * 200}").mkdir()
    (checkpoints / "notes.txt").write_text("mine")
    (checkpoints / "step-00000003" / "mine.txt").write_text("what users add is theirs")
    saved = saved_checkpoints(checkpoints)
    assert [one.step for one in saved] == [3, 20, 100]
    assert saved[0].served() == checkpoints / "step-00000003" / "model"
    assert saved[0].manifest["validation_loss"] == 0.3
    assert broken_checkpoints(checkpoints) == []
    assert saved_checkpoints(checkpoints / "none") == broken_checkpoints(checkpoints / "none") == []


def _no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _missing(folder: Path) -> None:
    (folder / "state" / "trainer.json").unlink()


def _short(folder: Path) -> None:
    os.truncate(folder / "state" / "trainer.json", 1)


def _text(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "manifest.json").write_text(text)


def _other_step(folder: Path) -> None:
    folder.rename(folder.with_name("step-00000021"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_no_manifest, "not finished"),
        (_missing, r"missing .*trainer\.json"),
        (_short, r"1 bytes instead of \d+ .*trainer\.json"),
        (_text(""), "manifest is damaged"),
        (_text('{"files": {"a": '), "manifest is damaged"),
        (_text("[]"), "manifest is damaged"),
        (_text('{"files": {"a": 3}}'), "manifest is damaged"),
        (_text('{"files": {"a": {"size": null, "xxh3_128": ""}}}'), "manifest is damaged"),
        (_text('{"files": {"a": {"size": Infinity, "xxh3_128": ""}}}'), "manifest is damaged"),
        (_text('{"files": {}}'), "manifest is damaged"),
        (_text("\x00" * 300), "manifest is damaged"),
        (_text("[" * 100_000), "manifest is damaged"),
        (_other_step, "one of step 20"),
    ],
)
def test_what_is_not_whole_is_left_out_and_named(
    checkpoints: Path, damage: Callable[[Path], object], reason: str
) -> None:
    damage(checkpoints / "step-00000020")
    assert [one.step for one in saved_checkpoints(checkpoints)] == [3, 100]
    ((path, said),) = broken_checkpoints(checkpoints)
    assert path.name.startswith("step-0000002")
    assert re.search(reason, said)


def _saved(**losses: object) -> list[Saved]:
    return [Saved(int(name[1:]), Path(name), {"validation_loss": loss}) for name, loss in losses.items()]


def test_best_is_the_lowest_number_and_of_equals_the_later() -> None:
    saved = _saved(s1=2.0, s2=1.0, s3=1.0, s4=float("nan"), s5=None, s6="0", s7=True, s8=float("-inf"), s9=1.5)
    chosen = best(saved)
    assert chosen is not None
    assert chosen.step == 3
    assert best(saved, "other") is None
    assert best([]) is None


def test_superfluous_keeps_the_newest_and_the_best() -> None:
    saved = _saved(s1=3.0, s2=1.0, s3=2.0, s4=2.0, s5=2.5)
    random.Random(0).shuffle(saved)
    assert [one.step for one in superfluous(saved, 2, best(saved))] == [1, 3]
    assert [one.step for one in superfluous(saved, 2, None)] == [1, 2, 3]
    assert superfluous(saved, None, best(saved)) == superfluous(saved, 5, None) == superfluous([], 1, None) == []
    assert [one.step for one in superfluous(saved, 1, None)] == [1, 2, 3, 4]


def test_remove_and_sweep(checkpoints: Path) -> None:
    remove(saved_checkpoints(checkpoints)[0])
    assert sorted(os.listdir(checkpoints)) == ["step-00000020", "step-00000100"]
    half = checkpoints / ".step-00000200.0123456789abcdef.tmp"
    (half / "model").mkdir(parents=True)
    (half / "model" / "config.json").write_text("{")
    (checkpoints / ".step-00000010.0123456789abcdef.removed").mkdir()
    (checkpoints / ".a.json.0123456789abcdef.tmp").write_text("an atomic file")
    (checkpoints / ".keep").write_text("not ours")
    assert len(sweep(checkpoints)) == 3
    assert sorted(os.listdir(checkpoints)) == [".keep", "step-00000020", "step-00000100"]
    assert sweep(checkpoints) == sweep(checkpoints / "none") == []
    with pytest.raises(WorkError, match="could not remove"):
        remove(Saved(7, checkpoints / "step-00000007", {}))


def test_sizes(checkpoints: Path) -> None:
    path = checkpoints / "step-00000020"
    files = json.loads((path / "manifest.json").read_text())["files"]
    assert size_of(path) == sum(entry["size"] for entry in files.values()) + (path / "manifest.json").stat().st_size
    assert size_of(path / "manifest.json") == (path / "manifest.json").stat().st_size
    assert size_of(path / "none") == 0
    assert free_space(path / "none" / "deeper") > 0
