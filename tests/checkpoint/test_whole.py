"""Promise: between torch.distributed.checkpoint and files of torch.save the optimizer travels along, and torch's own
loaders find it; where it can't, what stays behind is counted, in tensors and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.convert import PICKLED, convert
from outlive.checkpoint.formats.detect import open_checkpoint
from outlive.checkpoint.formats.torch_archive import described, write_many
from outlive.checkpoint.nested import flattened, nested
from outlive.checkpoint.whole import FILE
from outlive.cli.main import app
from outlive.run.errors import InputError, WorkError
from tests.checkpoint.test_convert import SIZES, folder_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def trained(named: bool) -> tuple[Any, Any]:
    """A model and its AdamW after a step, with two groups, whose order is not that of the parameters."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    parameters = dict(model.named_parameters())
    decayed = [(name, each) for name, each in parameters.items() if each.dim() > 1]
    others = [(name, each) for name, each in parameters.items() if each.dim() < 2]
    groups = [{"params": one if named else [each for _, each in one]} for one in (decayed, others)]
    optimizer = torch.optim.AdamW(groups, lr=0.125)
    for value in (1.0, -2.0):
        model(torch.full((1, 3), value)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def names_of(optimizer: Any, model: Any) -> list[str]:
    by_id = {id(each): name for name, each in model.named_parameters()}
    return [by_id[id(each)] for group in optimizer.param_groups for each in group["params"]]


def same(one: Any, other: Any) -> None:
    """Equal in keys, values, dtypes and bits."""
    assert isinstance(one, dict) == isinstance(other, dict)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other


def loaded(folder: Path, model: Any, optimizer: Any, key: str) -> dict[str, Any]:
    """What torch.distributed.checkpoint loads, into a model and an optimizer that have not been trained."""
    from torch.distributed.checkpoint import load
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, key: moments}
    load(state, checkpoint_id=folder, no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state[key])
    return optimizer.state_dict()


def fresh(named: bool) -> tuple[Any, Any]:
    model, optimizer = trained(named)
    with torch.no_grad():
        for each in (*model.parameters(), *(one for state in optimizer.state.values() for one in state.values())):
            each.zero_()
    return model, optimizer


@pytest.mark.parametrize("named", [True, False])
def test_from_a_file_of_torch_to_dcp(named: bool, tmp_path: Path) -> None:
    model, optimizer = trained(named)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}
    torch.save(state, tmp_path / "state.pt")
    names = None if named else names_of(optimizer, model)
    found = convert(open_checkpoint(tmp_path / "state.pt"), tmp_path / "dcp", "dcp", names=names)
    assert found.left == []
    assert "optimizer.state.0.weight.exp_avg" in found.tensors
    other, moments = fresh(False)
    wanted = trained(False)[1].state_dict()
    same(loaded(tmp_path / "dcp", other, moments, "optimizer"), wanted)
    same(dict(other.state_dict()), dict(model.state_dict()))
    assert open_checkpoint(tmp_path / "dcp").metadata["items"]["step"] == 2


def test_an_optimizer_without_names_stays_and_is_counted(tmp_path: Path) -> None:
    model, optimizer = trained(False)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    words = ["convert", str(tmp_path / "state.pt"), str(tmp_path / "dcp"), "--to", "dcp"]
    done = CliRunner().invoke(app, [*words, "--json"])
    about = json.loads(done.stdout)
    state = optimizer.state_dict()["state"].values()
    wanted = sum(each.numel() * each.element_size() for one in state for each in one.values())
    assert (len(about["left_out"]), about["left_out_bytes"]) == (18, wanted)
    assert f"18 tensors of an optimizer ({wanted:,} bytes) are left out of dcp" in about["notes"][0]
    assert open_checkpoint(tmp_path / "dcp").tensors.keys() == {f"model.{name}" for name in model.state_dict()}
    (tmp_path / "names").write_text("\n".join(names_of(optimizer, model)))
    words[2] = str(tmp_path / "named")
    done = CliRunner().invoke(app, [*words, "--param-names", str(tmp_path / "names"), "--json"])
    assert json.loads(done.stdout)["left_out"] == []
    for names, text in ((["a"], "1 names are given, and the optimizer has 6"), (["a", "a"], None)):
        (tmp_path / "names").write_text("\n".join(names))
        words[2] = str(tmp_path / "bad")
        done = CliRunner().invoke(app, [*words, "--param-names", str(tmp_path / "names")])
        assert done.exit_code == 2
        assert (text or "a is there twice") in done.output
        assert not (tmp_path / "bad").exists()
    done = CliRunner().invoke(app, [*words, "--param-names", str(tmp_path / "absent")])
    assert done.exit_code == 2
    assert "the file is missing" in done.output


@pytest.mark.parametrize("flat", [False, True])
def test_from_dcp_to_a_file_of_torch_and_back(flat: bool, tmp_path: Path) -> None:
    from torch.distributed.checkpoint import save
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model, optimizer = trained(False)
    weights, moments = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=flat))
    state = {"model": weights, "optim": moments, "step": 2, "name": "δ", "list": [1, [2.5, None]]}
    save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    found = convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "pt", "pt")
    assert found.left == found.notes == []
    read = torch.load(tmp_path / "pt" / FILE, weights_only=True)
    same(read, {**state, "model": dict(weights)})
    assert type(read["optim"]) is dict
    convert(open_checkpoint(tmp_path / "pt" / FILE), tmp_path / "again", "dcp")
    one, two = (open_checkpoint(tmp_path / name) for name in ("dcp", "again"))
    assert one.metadata["paths"] == two.metadata["paths"]
    assert dict(one.metadata["items"]) == dict(two.metadata["items"])
    assert one.tensors.keys() == two.tensors.keys()
    assert all(np.array_equal(one.tensors[name].array(), two.tensors[name].array()) for name in one.tensors)


def test_a_plain_optimizer_saved_in_dcp_keeps_its_numbers(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import save

    model, optimizer = trained(True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "pt", "pt")
    _, other = fresh(True)
    other.load_state_dict(torch.load(tmp_path / "pt" / FILE, weights_only=True)["optimizer"])
    same(other.state_dict(), optimizer.state_dict())


def test_weights_are_cast_and_moments_are_not(tmp_path: Path) -> None:
    model, optimizer = trained(True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    convert(open_checkpoint(tmp_path / "state.pt"), tmp_path / "dcp", "dcp", dtype="bf16")
    convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "pt", "pt", dtype="bf16")
    for path in ("dcp", f"pt/{FILE}"):
        for name, tensor in open_checkpoint(tmp_path / path).tensors.items():
            assert tensor.dtype == ("bfloat16" if name.startswith("model.") else "float32")
    torch.save(optimizer.state_dict(), tmp_path / "alone.pt")
    convert(open_checkpoint(tmp_path / "alone.pt"), tmp_path / "alone", "dcp", dtype="bf16")
    assert {each.dtype for each in open_checkpoint(tmp_path / "alone").tensors.values()} == {"float32"}
    with pytest.raises(InputError, match="is a file of torch"):
        convert(open_checkpoint(tmp_path / "alone.pt"), tmp_path / "again", "pt")


@pytest.mark.parametrize("to", ["huggingface", "gguf"])
def test_what_has_no_place_in_the_target_is_counted(to: str, tmp_path: Path) -> None:
    model = folder_of(tmp_path / "model", SIZES)
    weights = {name: torch.from_numpy(each.array().copy()) for name, each in open_checkpoint(model).tensors.items()}
    moments = {"state": {0: {"exp_avg": torch.ones(5), "step": torch.tensor(3.0)}}, "param_groups": [{"params": [0]}]}
    torch.save({"model": weights, "optimizer": moments}, tmp_path / "state.pt")
    words = ["convert", str(tmp_path / "state.pt"), str(tmp_path / "made"), "--to", to, "--like", str(model)]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    about = json.loads(done.stdout)
    assert (about["left_out"], about["left_out_bytes"]) == (["optimizer.state.0.exp_avg", "optimizer.state.0.step"], 24)
    assert about["notes"][1] == f"2 of them (24 bytes) are an optimizer's: {to} has no place for it"
    words[2] = str(tmp_path / "again")
    assert f"note: 2 of them (24 bytes) are an optimizer's: {to}" in CliRunner().invoke(app, words).output


def test_a_model_as_a_file_of_torch(tmp_path: Path) -> None:
    model = folder_of(tmp_path / "model", SIZES)
    convert(open_checkpoint(model), tmp_path / "pt", "pt", dtype="bf16")
    read = torch.load(tmp_path / "pt" / PICKLED, weights_only=True)
    tensors = open_checkpoint(model).tensors
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(read[name], torch.from_numpy(tensor.array().copy()).bfloat16())
    assert open_checkpoint(tmp_path / "pt").config["vocab_size"] == open_checkpoint(model).config["vocab_size"]
    convert(open_checkpoint(tmp_path / "pt"), tmp_path / "back", "huggingface")


def test_numbers_of_64_bits_in_an_archive(tmp_path: Path) -> None:
    values = [np.arange(70, dtype=np.float32), np.arange(300, dtype=np.float32)]
    content = {"a": [described("float32", (7, 10), "0"), 1], "b": described("float32", (300,), "1")}
    with building_checkpoint(tmp_path / "made", {}) as building, building.stream("a.pt", 4000) as file:
        write_many(file, content, [lambda one=one: [one.view(np.uint8).data] for one in values], wide=400)  # type: ignore[misc]
    read = torch.load(tmp_path / "made" / "a.pt", weights_only=True)
    assert torch.equal(read["a"][0], torch.arange(70.0).view(7, 10))
    assert torch.equal(read["b"], torch.arange(300.0))
    ours = open_checkpoint(tmp_path / "made" / "a.pt").tensors
    assert np.array_equal(ours["b"].array(), values[1])


def test_nested_and_flat() -> None:
    value = {"a": {"b": [1, 2], "c": [{"d": 3}, (4, 5)]}, "e": 6, "state": {0: {"x": 1}, 1: {"x": 2}}}
    flat = flattened(value)
    assert flat.items["a.b"] == [1, 2]
    assert nested(flat.items, flat.paths) == value


def test_nothing_to_write_is_refused(tmp_path: Path) -> None:
    torch.save(trained(False)[1].state_dict(), tmp_path / "alone.pt")
    with pytest.raises(InputError, match="no tensor is left"):
        convert(open_checkpoint(tmp_path / "alone.pt"), tmp_path / "made", "dcp")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("to", ["dcp", "pt"])
def test_a_weight_that_fp16_can_not_hold_is_named(tmp_path: Path, to: str) -> None:
    """An optimizer's numbers are not cast, and may be anything."""
    state = {"model": {"w": torch.tensor([1.0, 1e6])}, "optim": {"state": {"w": {"step": torch.tensor(np.inf)}}}}
    torch.save(state, tmp_path / "state.pt")
    convert(open_checkpoint(tmp_path / "state.pt"), tmp_path / "dcp", "dcp")
    with pytest.raises(WorkError, match=r"model\.w holds NaN or infinity as float16"):
        convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "out", to, dtype="fp16")
    assert not (tmp_path / "out").exists()
    convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "out", to, dtype="bf16")


def test_what_would_say_nothing_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained(named=True)
    torch.save({"w": torch.ones(2)}, tmp_path / "plain.pt")
    torch.save({"optim": optimizer.state_dict()}, tmp_path / "named.pt")
    convert(open_checkpoint(tmp_path / "plain.pt"), tmp_path / "dcp", "dcp")
    names = names_of(optimizer, model)
    for source, words in (("plain.pt", "no optimizer"), ("named.pt", "itself"), ("dcp", "in DCP")):
        with pytest.raises(InputError, match=words):
            convert(open_checkpoint(tmp_path / source), tmp_path / "out", "dcp", names=names[::-1])
    convert(open_checkpoint(tmp_path / "named.pt"), tmp_path / "same", "dcp", names=names)
    with pytest.raises(InputError, match="stay as they are"):
        convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "out", "pt", layout="fused")
    assert not (tmp_path / "out").exists()
