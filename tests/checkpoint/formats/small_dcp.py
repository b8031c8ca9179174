"""A small checkpoint of torch.distributed.checkpoint that can be damaged on purpose."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.formats import dcp_write
from outlive.checkpoint.formats.dcp import open_dcp, read_metadata
from outlive.checkpoint.formats.pickle_write import Made, Named, Pairs, pickled


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
        storage = read_metadata(self.folder / ".metadata").get("storage_data")
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
