"""Promise: a file of torch.save is read as torch reads it, bit for bit, and without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.formats.pickle_names import Record
from outlive.checkpoint.formats.pickled import open_pickled, open_state_dict
from outlive.checkpoint.formats.strided import Strided
from outlive.checkpoint.tensors.stored import File
from outlive.checkpoint.tensors.tensor import slices
from outlive.run.errors import InputError
from tests.checkpoint.formats.same import assert_same
from tests.fixtures import cases

torch = pytest.importorskip("torch")
SAMPLES = cases() / "checkpoints"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no cases: set OUTLIVE_CASES")
BASE = torch.arange(60).reshape(5, 12)
TENSORS = {
    "plain": BASE.float(),
    "transposed": BASE.float().t(),
    "cut": BASE[1:4, 2:11:3],
    "column": BASE[:, 3],
    "permuted": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "scalar": torch.tensor(3.5),
    "scalar of a matrix": BASE[2, 3],
    "empty": torch.zeros(0, 3),
    "expanded": torch.arange(3.0).expand(4, 3),
    "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    "bool": torch.tensor([True, False, True]),
    "complex": torch.tensor([1 + 2j, 3 - 4j]),
    **{
        str(dtype): BASE.to(dtype)
        for dtype in (
            torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
            torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("old", [False, True], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_any_kind(tmp_path: Path, name: str, old: bool) -> None:
    path = tmp_path / "file.pt"
    torch.save({"x": TENSORS[name]}, path, _use_new_zipfile_serialization=not old)
    assert_same(open_pickled(path).value, {"x": TENSORS[name]})


@pytest.mark.parametrize("old", [False, True], ids=["zip", "before 1.6"])
def test_values_beside_tensors(tmp_path: Path, old: bool) -> None:
    shared = torch.arange(10.0)
    value = {
        "numbers": [0, 255, 256, -1, 1 << 20, -(1 << 40), 1 << 70, 1.5, float("inf"), True, None],
        "text": "δ" * 300, "bytes": b"\x00\xff" * 3, 3: (1, (2, ()), []), ("a", 1): {},
        "shared": [shared, shared[2:5], shared.view(2, 5)], "size": shared.shape, "ordered": OrderedDict(b=1, a=2),
    }  # fmt: skip
    torch.save(value, tmp_path / "file.pt", _use_new_zipfile_serialization=not old)
    found = open_pickled(tmp_path / "file.pt").value
    if not isinstance(found["bytes"], bytes):
        found["bytes"] = found["bytes"].args[0].encode("latin1")  # protocol 2 has no bytes: it asks for an encoder
    assert_same(found, value)


@pytest.mark.parametrize("path", sorted(SAMPLES.rglob("*.pt")), ids=lambda path: str(path.relative_to(SAMPLES)))
def test_files_of_frameworks(path: Path) -> None:
    found = open_pickled(path).value
    try:
        expected = torch.load(path, weights_only=True, map_location="cpu")
    except Exception:  # objects of DeepSpeed, which torch does not know
        assert "optim" in path.name
        return
    assert_same(found, expected)


@needs_samples
def test_objects_of_deepspeed_are_kept_with_their_state() -> None:
    path = SAMPLES / "ds_zero2/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    state = open_pickled(path).value["optimizer_state_dict"]
    assert state["zero_stage"].args == (2,)
    assert isinstance(state["loss_scaler"], Record)
    address = next(iter(state["param_slice_mappings"][0].values()))
    assert address.kind.endswith("fragment_address")
    assert isinstance(address.get("numel", address.args), (int, tuple))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_box_of_a_strided_tensor(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple))
    strides = data.draw(st.tuples(*[st.integers(0, 700) for _ in shape]))
    elements = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    flat = np.arange(elements, dtype=np.int32)
    path = tmp_path_factory.mktemp("strided") / "file"
    path.write_bytes(b"xyz" + flat.tobytes())
    whole = np.lib.stride_tricks.as_strided(flat, shape, [4 * stride for stride in strides])
    ranges = [st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted).map(tuple) for n in shape]
    box = data.draw(st.tuples(*ranges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outlive.checkpoint.formats.strided._NEAR", data.draw(st.sampled_from([4, 64, 1 << 16])))
        found = Strided("int32", shape, strides, File(path), 3).read(box)
    assert np.array_equal(found, whole[slices(box)])


def test_a_state_dict_is_flattened(tmp_path: Path) -> None:
    torch.save(
        {"model": {"a.b": torch.ones(2)}, "step": 7, "groups": [{"lr": 0.1, "m": torch.zeros(1)}]}, tmp_path / "x.pt"
    )
    model = open_state_dict(tmp_path / "x.pt")
    assert set(model.tensors) == {"model.a.b", "groups.0.m"}
    assert model.metadata == {"step": 7, "groups.0.lr": 0.1}
    assert model.format == "pt"


def _sharded(folder: Path, **weight_map: str) -> Path:
    torch.save({"a": torch.ones(2)}, folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(3)}, folder / "pytorch_model-00002-of-00002.bin")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_a_folder_with_an_index(tmp_path: Path) -> None:
    one, two = (f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2))
    model = open_state_dict(_sharded(tmp_path, a=one, b=two))
    assert {name: tensor.shape for name, tensor in model.tensors.items()} == {"a": (2,), "b": (3,)}
    assert model.config == {"model_type": "llama"}
    with pytest.raises(InputError, match="b is not in"):
        open_state_dict(_sharded(tmp_path, a=one, b=one))
    with pytest.raises(InputError, match="missing"):
        open_state_dict(_sharded(tmp_path, a=one, b="pytorch_model-00003.bin"))
    outside = tmp_path / "outside.bin"
    outside.write_bytes((tmp_path / one).read_bytes())
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(InputError, match="no file of this folder"):
        open_state_dict(_sharded(inner, a="../outside.bin"))
    (inner / "link.bin").symlink_to(outside)
    with pytest.raises(InputError, match="link"):
        open_state_dict(_sharded(inner, a="link.bin"))


def test_it_is_read_without_torch(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "x.pt")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from outlive.checkpoint.formats.pickled import open_pickled\n"
        f"print(open_pickled(Path({str(tmp_path / 'x.pt')!r})).value['a'].array().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1.0, 1.0]\n"


@pytest.mark.parametrize(
    ("value", "what"),
    [([1], "no state dict"), (torch.ones(2), "no state dict"), (torch.tensor([1 + 2j]).conj(), "conjugate")],
    ids=["list", "tensor", "conjugate"],
)
def test_what_is_no_state_dict_is_refused(tmp_path: Path, value: Any, what: str) -> None:
    torch.save(value, tmp_path / "x.pt")
    with pytest.raises(InputError, match=what):
        open_state_dict(tmp_path / "x.pt")
