"""Promise: of a run the newest whole checkpoint is opened, or the best; what is half is never taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.state import write_state
from outlive.modeling.served import newest_checkpoint
from outlive.run.errors import InputError
from tests.checkpoint.faults import save_step, tokenizer_folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Steps 1 to 3 with losses 2, 1 and 3; then step 4 with a state only, and step 5, cut off."""
    tokenizer, checkpoints = tokenizer_folder(tmp_path / "tokenizer"), tmp_path / "run" / "checkpoints"
    for step, loss in ((1, 2.0), (2, 1.0), (3, 3.0)):
        save_step(checkpoints, step, tokenizer, loss)
    with building_checkpoint(checkpoints / "step-00000004", {"step": 4, "validation_loss": 0.1}) as building:
        write_state(building, {}, {"step": 4})
    save_step(checkpoints, 5, tokenizer, 0.0)
    (checkpoints / "step-00000005" / "model" / "config.json").unlink()
    return tmp_path / "run"


def test_of_a_run(run: Path) -> None:
    assert newest_checkpoint(run) == run / "checkpoints" / "step-00000003" / "model"
    assert newest_checkpoint(run, "best") == run / "checkpoints" / "step-00000002" / "model"


def test_of_a_checkpoint(run: Path) -> None:
    checkpoint = run / "checkpoints" / "step-00000001"
    assert newest_checkpoint(checkpoint) == newest_checkpoint(checkpoint / "model") == checkpoint / "model"
    with pytest.raises(InputError, match="holds no model"):
        newest_checkpoint(run / "checkpoints" / "step-00000004")
    with pytest.raises(InputError, match="only a run"):
        newest_checkpoint(checkpoint, "best")
    (checkpoint / "manifest.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        newest_checkpoint(checkpoint)
    assert newest_checkpoint(run / "none") is None


def test_what_a_run_lacks_is_named(run: Path) -> None:
    for step in (1, 2, 3):
        (run / "checkpoints" / f"step-0000000{step}" / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"only states.*step-00000001 is not whole.*step-00000005 is not whole"):
        newest_checkpoint(run)


def test_a_run_without_validation_has_no_best(tmp_path: Path) -> None:
    save_step(tmp_path / "run" / "checkpoints", 1, tokenizer_folder(tmp_path / "tokenizer"))
    with pytest.raises(InputError, match="no checkpoint of the run has a validation loss"):
        newest_checkpoint(tmp_path / "run", "best")
