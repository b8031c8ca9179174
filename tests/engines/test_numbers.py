"""Numbers gone wrong: a step that is no number changes nothing and is counted; what does not move is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from outlive.engines.native.numbers import Movement, why_skipped
from outlive.run.errors import WorkError
from outlive.run.metrics import read
from tests.engines.resuming import Verb
from tests.engines.test_loop import tiny_folder

LOSS = """
from outlive.learn.loss_rule import Term

BROKEN = {broken}

def loss(batch, logprobs, columns):
    total = -logprobs.sum()
    if any(int(segment.sample_id.split(":")[1]) in BROKEN for segment in batch.segments):
        total = total * float("{value}")
    return [Term("nll", total, "tokens")]
"""


@pytest.fixture
def verb(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return Verb(tmp_path, tiny_folder(tmp_path / "model", "llama"), rows, **{"data.validation": "null"})


def _own_loss(verb: Verb, name: str, broken: range | list[int], value: str = "nan") -> str:
    (verb.root / f"{name}.py").write_text(LOSS.format(broken=list(broken), value=value))
    return f"method.loss={name}:loss"


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_step_that_is_no_number_is_skipped_and_its_samples_are_named(verb: Verb, value: str) -> None:
    verb.train(
        _own_loss(verb, f"breaks_{value}", [7], value), "stop.epochs=1", "checkpoint.every=1", "checkpoint.keep=null"
    )
    trained = [record for record in read(verb.folder.metrics).records if record.kind == "train"]
    skipped = [record.step for record in trained if record.skipped]
    assert len(skipped) == 1
    (event,) = verb.events("skipped_step")
    assert event["step"] == skipped[0]
    assert any(name.split(":")[1] == "7" for name in event["sample_ids"])
    assert len(event["sample_ids"]) < 20  # those of one pass of the step, not of the whole step
    states = {
        step: load_file(next((verb.folder.checkpoint(step) / "state").glob("*.safetensors"))) for step in verb.steps()
    }
    before, after = (
        (states[step] for step in (skipped[0] - 1, skipped[0]) if step in states) if skipped[0] > 1 else ({}, {})
    )
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(bool(tensor.isfinite().all()) for state in states.values() for tensor in state.values())


def test_many_in_a_row_end_the_run_and_name_the_last_good_checkpoint(verb: Verb) -> None:
    own = _own_loss(verb, "breaks_all", [])
    verb.train(own, "stop.steps=3")
    (verb.root / "breaks_later.py").write_text(LOSS.format(broken=list(range(60)), value="nan"))
    with pytest.raises(
        WorkError, match=r"2 steps in a row changed no weights.*last good checkpoint is .*step-00000003"
    ):
        verb.train(
            "method.loss=breaks_later:loss", "stop.steps=9", "stop.nonfinite_steps=2", resume="latest",
            accept=["method.loss", "stop"],
        )  # fmt: skip
    assert verb.steps() == [3]


def test_the_count_goes_on_after_a_resume(verb: Verb) -> None:
    own = _own_loss(verb, "breaks_always", range(60))
    verb.train(own, "stop.steps=4", "stop.nonfinite_steps=9")
    with pytest.raises(WorkError, match="6 steps in a row"):
        verb.train(own, "stop.steps=8", "stop.nonfinite_steps=6", resume="latest", accept=["stop"])


def test_why_a_step_is_skipped() -> None:
    assert why_skipped(1.0, 2.0) is None
    assert why_skipped(float("nan"), 1.0) == "the loss is nan"
    assert why_skipped(1.0, float("inf")) == "the gradient is inf"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_updates_that_round_to_nothing_are_named(dtype: torch.dtype) -> None:
    """A weight of 1 in bf16 has its next number at 1.0078: an update of 1e-4 is lost. In fp32 it is not."""
    parameter = torch.nn.Parameter(torch.ones(3000, dtype=dtype))
    movement = Movement({"weight": parameter})
    with torch.no_grad():
        parameter -= 1e-4
    found = movement.standing_still({"weight": parameter}, {parameter: {"exp_avg_sq": torch.ones(3000)}})
    assert found == (
        [] if dtype == torch.float32 else ["weight: its updates round to 0 in bfloat16 (0% of its weights moved)"]
    )
    unreached = movement.standing_still({"weight": parameter}, {parameter: {"exp_avg_sq": torch.zeros(3000)}})
    assert unreached == ["weight: no gradient has reached it"]


def test_a_run_that_learns_nothing_says_so(verb: Verb) -> None:
    verb.train("optimizer.lr=1e-13")
    assert "do not move" in verb.said
    assert "round to 0 in float32" in verb.said
    (event,) = verb.events("frozen_parameters")
    assert any("q_proj" in line for line in event["parameters"])
    verb.train("name=learns")
    assert "do not move" not in verb.said


def test_losses_that_draw_random_numbers_are_resumed_exactly(verb: Verb) -> None:
    (verb.root / "draws.py").write_text(
        "import random, numpy, torch\nfrom outlive.learn.loss_rule import Term\n\n\n"
        "def loss(batch, logprobs, columns):\n"
        "    noise = torch.rand(()) + random.random() + numpy.random.rand()\n"
        "    return [Term('nll', -logprobs.sum() * noise, 'tokens')]\n"
    )
    verb.train("method.loss=draws:loss")
    expected = verb.curve()
    verb.train("method.loss=draws:loss", resume="3")
    assert verb.curve() == expected
