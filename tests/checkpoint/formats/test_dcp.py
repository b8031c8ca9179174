"""Promise: checkpoints of torch.distributed.checkpoint are read bit for bit, and refused where they are not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.formats import dcp_write
from outlive.checkpoint.formats.dcp import open_dcp
from outlive.checkpoint.formats.pickle_write import Called, Made, Named, Pairs, pickled
from outlive.checkpoint.formats.pickled import open_pickled
from outlive.checkpoint.formats.pieces import fault
from outlive.checkpoint.formats.torch_checksums import damaged_members, damaged_tensors
from outlive.checkpoint.tensors.tensor import Tensor, extent, slices
from outlive.run.errors import InputError
from tests.fixtures import cases

SAMPLES = cases() / "checkpoints"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no cases: set OUTLIVE_CASES")


def assert_equal(one: Tensor, other: Tensor) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.array().tobytes() == other.array().tobytes()


@needs_samples
@pytest.mark.parametrize("name", ["dcp_fsdp2", "dcp_hf_sharded", "dcp_hf_consolidated"])
def test_the_samples_equal_their_reference(name: str) -> None:
    reference = open_pickled(SAMPLES / "dcp_fsdp2_REFERENCE.pt").value
    prefix = "model." if name == "dcp_fsdp2" else ""
    tensors = open_dcp(SAMPLES / name).tensors
    for key, expected in reference.items():
        assert_equal(tensors[prefix + key], expected)
    assert prefix or set(tensors) == set(reference)


@needs_samples
@pytest.mark.parametrize(
    "name", ["dcp_fsdp2", "mcore_torch_dist_tp1", "mcore_torch_dist_tp2", "mcore_torch_dist_tp2_moe"]
)
def test_the_samples_are_what_torch_reads(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import FileSystemReader, load

    from tests.checkpoint.formats.same import assert_same

    model = open_dcp(SAMPLES / name)
    own = {key: torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype)) for key, tensor in model.tensors.items()}
    load(own, storage_reader=FileSystemReader(SAMPLES / name), no_dist=True)
    assert_same(dict(model.tensors), own)
    assert set(FileSystemReader(SAMPLES / name).read_metadata().state_dict_metadata) == {*own, *model.metadata["items"]}
    for item in model.metadata["items"].values():
        assert not isinstance(item, Tensor)


@needs_samples
def test_items_and_paths() -> None:
    model = open_dcp(SAMPLES / "dcp_fsdp2")
    assert model.metadata["items"]["optim.param_groups.0.betas"] == (0.9, 0.999)
    assert model.metadata["paths"]["optim.param_groups.0.betas"] == ("optim", "param_groups", 0, "betas")
    assert model.metadata["version"] == "1.0.0"


@needs_samples
def test_both_layouts_of_one_tensor_parallel_model_are_equal() -> None:
    one, two = (open_dcp(SAMPLES / f"mcore_torch_dist_tp{ranks}").tensors for ranks in (1, 2))
    assert {name: tensor.dtype for name, tensor in one.items()} == {name: tensor.dtype for name, tensor in two.items()}
    assert sum(len(getattr(tensor, "pieces", [])) > 1 for tensor in two.values()) >= 4


class Checkpoint:
    """A small checkpoint whose .metadata can be changed before it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoint"
        self.values = {"a": np.arange(20, dtype=np.float32).reshape(5, 4), "b": np.array(7, np.int64)}
        with building_checkpoint(self.folder, {}) as building:
            dcp_write.write_dcp(building, self.values, items={"step": 3}, max_piece_bytes=32)

    def write(self, change: Callable[[dict[str, Any]], None]) -> Path:
        """Write .metadata anew; `change` gets its parts: entries of tensors, and places by (name, offset)."""
        model = open_dcp(self.folder)
        about: dict[str, Any] = {
            "dtype": "float32",
            "size": (5, 4),
            "chunks": [((begin, 0), (end - begin, 4)) for begin, end in pairwise([0, 2, 4, 5])],
            "kind": "Metadata",
        }
        stored = model.tensors["a"].pieces  # type: ignore[attr-defined]
        places = [(piece.box[0][0], piece.offset) for piece in stored]
        assert [begin for begin, _ in places] == [0, 2, 4]
        about["places"] = self._places()
        change(about)
        (self.folder / ".metadata").write_bytes(pickled(self._metadata(about)))
        return self.folder

    def _places(self) -> list[tuple[tuple[int, int], dict[str, Any]]]:
        from outlive.checkpoint.formats.dcp import _metadata

        storage = _metadata(self.folder / ".metadata").get("storage_data")
        return [(key.get("offset"), dict(info.state)) for key, info in storage.items() if key.get("fqn") == "a"]

    def _metadata(self, about: dict[str, Any]) -> Made:
        size, made = dcp_write._torch_size, dcp_write._made
        chunks = [
            made("ChunkStorageMetadata", {"offsets": size(one), "sizes": size(two)}) for one, two in about["chunks"]
        ]
        state = {"properties": dcp_write._properties(about["dtype"]), "size": size(about["size"]), "chunks": chunks}
        info = Named("torch.distributed.checkpoint.filesystem", "_StorageInfo")
        places = [
            (made("MetadataIndex", {"fqn": "a", "offset": size(offset), "index": 0}), Made(info, place))
            for offset, place in about["places"]
        ]
        entries = {"a": made("TensorStorageMetadata", state)}
        return made(about["kind"], {"state_dict_metadata": entries, "storage_data": Pairs(places)})


def set_place(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(about: dict[str, Any]) -> None:
        about["places"][1][1][key] = value

    return change


def set_chunk(offset: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[dict[str, Any]], None]:
    def change(about: dict[str, Any]) -> None:
        about["chunks"][1] = (offset, sizes)
        about["places"][1] = (offset, about["places"][1][1])

    return change


def test_an_unchanged_one_is_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    folder = checkpoint.write(lambda about: None)
    assert np.array_equal(open_dcp(folder).tensors["a"].array(), checkpoint.values["a"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (set_place("relative_path", "../../x.distcp"), "no file of the checkpoint"),
        (set_place("relative_path", "/etc/passwd"), "no file of the checkpoint"),
        (set_place("relative_path", "a\0b"), "no file of the checkpoint"),
        (set_place("relative_path", "absent.distcp"), "missing"),
        (set_place("relative_path", "."), "no file"),
        (set_place("relative_path", "link.distcp"), "link"),
        (set_place("relative_path", 5), "none"),
        (set_place("offset", 1 << 40), "reaches to"),
        (set_place("offset", -1), "none"),
        (set_place("offset", 5), "archive"),
        (set_place("length", 1 << 62), "reaches to"),
        (set_place("length", 3), "archive"),
        (set_place("length", 0), "archive"),
        (set_place("transform_descriptors", ("zstd",)), "extension"),
        (set_chunk((1, 0), (2, 4)), "overlap"),
        (set_chunk((3, 0), (1, 4)), "no file"),
        (set_chunk((2, 1), (2, 4)), "outside"),
        (set_chunk((2, 0), (2, 3)), "no file"),
        (set_chunk((2, 0), (1 << 60, 4)), "shape"),
        (set_chunk((2,), (2,)), "axes"),
        (lambda about: about.update(size=(6, 4)), "no file"),
        (lambda about: about.update(size=(5, 4, 1)), "axes"),
        (lambda about: about.update(dtype="float16"), "says float16"),
        (lambda about: about.update(dtype="strided"), "type"),
        (lambda about: about["places"].pop(), "nothing says where"),
        (lambda about: about.update(kind="StorageMeta"), "no .metadata"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None], what: str) -> None:
    folder = Checkpoint(tmp_path).write(change)
    (tmp_path / "outside.distcp").write_bytes(b"x")
    (folder / "link.distcp").symlink_to(tmp_path / "outside.distcp")
    with pytest.raises(InputError, match=what):
        open_dcp(folder)


def test_two_pieces_of_the_same_bytes_are_refused(tmp_path: Path) -> None:
    def same(about: dict[str, Any]) -> None:
        about["places"][1] = (about["places"][1][0], about["places"][0][1])

    with pytest.raises(InputError, match="same bytes"):
        open_dcp(Checkpoint(tmp_path).write(same))


def test_a_piece_of_another_tensor_is_refused(tmp_path: Path) -> None:
    def swap(about: dict[str, Any]) -> None:
        about["places"][2] = (about["places"][2][0], about["places"][0][1])

    with pytest.raises(InputError, match=r"is float32 \(2, 4\), and .metadata says float32 \(1, 4\)"):
        open_dcp(Checkpoint(tmp_path).write(swap))


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x02N.", pickled({}), pickled(Called(Named("os", "system"), ("true",)))]
)
def test_a_metadata_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".metadata").write_bytes(content)
    with pytest.raises(InputError):
        open_dcp(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", Path(__file__)):
        with pytest.raises(InputError):
            open_dcp(path)


CHECKPOINTS: list[Checkpoint] = []


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 255), st.booleans())
def test_a_flipped_byte(tmp_path_factory: pytest.TempPathFactory, place: int, change: int, in_metadata: bool) -> None:
    """An error, or tensors and items of which at most one number differs; no checksum guards the names."""
    if not CHECKPOINTS:
        CHECKPOINTS.append(Checkpoint(tmp_path_factory.mktemp("flip")))
    checkpoint = CHECKPOINTS[0]
    path = checkpoint.folder / (".metadata" if in_metadata else "__0_0.distcp")
    whole = path.read_bytes()
    place %= len(whole)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([whole[place] ^ change]))
    try:
        check_what_is_read(checkpoint)
    finally:
        path.write_bytes(whole)


def check_what_is_read(checkpoint: Checkpoint) -> None:
    try:
        model = open_dcp(checkpoint.folder)
        found = {name: tensor.array() for name, tensor in model.tensors.items()}
        for name in model.metadata["items"]:
            _ = model.metadata["items"][name]
    except InputError:
        return
    if set(found) == set(checkpoint.values):
        differ = sum(int((found[name] != value).sum()) for name, value in checkpoint.values.items())
        assert differ <= 1


@needs_samples
def test_a_flipped_number_is_found_by_its_checksum(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(SAMPLES / "dcp_fsdp2", folder, copy_function=shutil.copyfile)
    model = open_dcp(folder)
    assert damaged_tensors(model) == []
    piece = model.tensors["model.model.norm.weight"].pieces[1]  # type: ignore[attr-defined]
    with piece.file.path.open("r+b") as file:
        file.seek(piece.offset + 2)
        byte = file.read(1)[0]
        file.seek(piece.offset + 2)
        file.write(bytes([byte ^ 1]))
    assert damaged_tensors(open_dcp(folder)) == ["model.model.norm.weight"]


@needs_samples
def test_a_flipped_number_in_a_file_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    shutil.copyfile(SAMPLES / "dcp_fsdp2_REFERENCE.pt", path)
    assert damaged_members(path) == []
    data = bytearray(path.read_bytes())
    data[open_pickled(path).value["model.norm.weight"].pieces[0].offset] ^= 1
    path.write_bytes(data)
    assert len(damaged_members(path)) == 1


def test_pieces_that_do_not_lie_in_row_major_order(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import save

    from tests.checkpoint.formats.same import assert_same

    state = {"turned": torch.arange(12.0).reshape(3, 4).t(), "column": torch.arange(12).reshape(3, 4)[:, 1]}
    state |= {"permuted": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), "empty": torch.zeros(0, 3)}
    save(state, checkpoint_id=tmp_path / "x", no_dist=True)
    assert_same(dict(open_dcp(tmp_path / "x").tensors), state)


def test_a_dtype_that_is_not_read_is_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import save

    save({"x": torch.zeros(2, dtype=torch.complex128)}, checkpoint_id=tmp_path / "x", no_dist=True)
    with pytest.raises(InputError, match="complex128"):
        open_dcp(tmp_path / "x")
    torch.save({"x": torch.zeros(2).to(torch.float8_e8m0fnu)}, tmp_path / "x.pt")
    with pytest.raises(InputError, match="float8_e8m0fnu"):
        open_pickled(tmp_path / "x.pt")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_pieces_that_tile_a_tensor_and_pieces_that_do_not(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple))
    ranges = [st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted).map(tuple) for n in shape]
    boxes = data.draw(st.lists(st.tuples(*ranges), max_size=5))
    if data.draw(st.booleans()):  # a grid, which tiles it
        cuts = [sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=2))}) for n in shape]
        boxes = [()]
        for cut in cuts:
            boxes = [(*box, pair) for box in boxes for pair in (list(pairwise(cut)) or [(0, 0)])]
    count = np.zeros(shape, int)
    for box in boxes:
        count[slices(box)] += 1
    assert (fault(shape, boxes) is None) == bool((count == 1).all())
    assert all(len(extent(box)) == len(shape) for box in boxes)


def _sharded(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / "dcp_hf_sharded", tmp_path / "sharded"))


def _change_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@needs_samples
def test_the_first_shard_missing_is_found(tmp_path: Path) -> None:
    """torch fills the rows with zeros."""
    folder = _sharded(tmp_path)
    (folder / "shard-00001-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(InputError, match="rank 0"):
        open_dcp(folder)


@needs_samples
@pytest.mark.parametrize(
    ("info", "what"),
    [
        (None, "does not say where"),
        ("[]", "no JSON object"),
        ("{", "no JSON"),
        ('{"model.norm.weight": {"saved_offsets": [0]}}', "does not say where|overlap|no file"),
        ('{"model.norm.weight": {"saved_offsets": [0, 0]}}', "axes|does not say"),
        ('{"model.norm.weight": {"saved_offsets": "0"}}', "shape|does not say"),
    ],
)
def test_damaged_sharding_info(tmp_path: Path, info: str | None, what: str) -> None:
    folder = _sharded(tmp_path)

    def change(header: dict[str, Any]) -> None:
        header["__metadata__"].pop("DCP_SHARDING_INFO")
        if info is not None:
            header["__metadata__"]["DCP_SHARDING_INFO"] = info

    _change_header(folder / "shard-00002-model-00001-of-00001.safetensors", change)
    with pytest.raises(InputError, match=what):
        open_dcp(folder)


@needs_samples
def test_pieces_of_the_variant_that_overlap_are_refused(tmp_path: Path) -> None:
    folder = _sharded(tmp_path)

    def change(header: dict[str, Any]) -> None:
        info = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        info["model.embed_tokens.weight"]["saved_offsets"][0] -= 1
        header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(info)

    _change_header(folder / "shard-00002-model-00001-of-00001.safetensors", change)
    with pytest.raises(InputError, match="overlap"):
        open_dcp(folder)
