"""A loss of the user's own: what is wrong with it is said with its file and line, and never trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outlive.data.batch import Batch
from outlive.learn.loss_rule import Term
from outlive.learn.methods import Method
from outlive.learn.user_loss import load_terms
from outlive.run.errors import InputError

HEAD = "from outlive.learn.loss_rule import Term\n\n\ndef loss(batch, logprobs, columns):\n    return "
MISTAKES = {
    "a number": ("logprobs.sum()", "returned Tensor"),
    "nothing": ("[]", "no term"),
    "no term": ("[1.0]", "a float among its terms"),
    "another denominator": ("[Term('x', -logprobs.sum(), 'samples')]", "'samples'; known: weight"),
    "a vector": ("[Term('x', -logprobs, 'weight')]", "a tensor of shape"),
    "a coefficient": ("[Term('x', -logprobs.sum(), 'weight', float('nan'))]", "coefficient nan"),
    "no gradient": ("[Term('x', -logprobs.detach().sum(), 'weight')]", "has no gradient"),
    "an error": ("[Term('x', logprobs.nowhere, 'weight')]", "your loss raised AttributeError"),
}


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_result_is_named(name: str, tmp_path: Path) -> None:
    code, said = MISTAKES[name]
    module = f"wrong_{name.replace(' ', '_')}"
    (tmp_path / f"{module}.py").write_text(HEAD + code + "\n")
    batch: Batch = object()  # type: ignore[assignment]  # these losses do not look at it
    with pytest.raises(InputError, match=said) as error:
        load_terms(f"{module}:loss")(batch, torch.zeros(3, requires_grad=True), {})
    assert f"method.loss: {module}:loss" in str(error.value)
    if name == "an error":
        assert f"{module}.py:5" in str(error.value)


def test_a_module_that_can_not_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("x = 1\nraise SystemExit(3)\n")
    with pytest.raises(InputError, match=r"broken_module can't be imported: SystemExit") as error:
        load_terms("broken_module:loss")
    assert "broken_module.py:2" in str(error.value)
    (tmp_path / "two_arguments.py").write_text("def loss(batch, logprobs):\n    return []\n")
    with pytest.raises(InputError, match="a function of"):
        load_terms("two_arguments:loss")


def test_a_function_itself_makes_a_method_that_is_checked_alike() -> None:
    def doubled(batch: Batch, logprobs: torch.Tensor, columns: object) -> list[Term]:
        return [Term("doubled", -2 * logprobs.sum(), "weight")]

    method = Method.of(doubled)
    assert (method.name, method.reads, dict(method.columns)) == ("doubled", "logprobs", {})
    batch: Batch = object()  # type: ignore[assignment]
    (term,) = method.terms(batch, torch.ones(3, requires_grad=True), {})
    assert term.sum.item() == -6
    with pytest.raises(InputError, match="returned Tensor") as error:
        Method.of(lambda batch, logprobs, columns: logprobs.sum()).terms(batch, torch.zeros(3), {})
    assert "the loss <lambda>" in str(error.value)
    with pytest.raises(InputError, match="a function of"):
        Method.of(lambda batch: [])  # type: ignore[arg-type,return-value]
