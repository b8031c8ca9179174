"""state/: what a run needs to go on from a checkpoint, as tensors and JSON; nothing in it is a pickle.

The tensors are in the safetensors form of torch.distributed.checkpoint: its HuggingFaceStorageReader reads the folder,
on any number of ranks, and so does any reader of safetensors files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlive.checkpoint.building import Building
from outlive.checkpoint.manifest import COPY_AGAIN, read_manifest
from outlive.run.errors import InputError

FOLDER = "state"
_TRAINER = f"{FOLDER}/trainer.json"
_FILE = f"{FOLDER}/shard-00001-model-00001-of-00001.safetensors"


def write_state(building: Building, tensors: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    """Write the tensors, each in its own dtype, and `trainer` as JSON. ValueError where a number in it is not finite.

    The header says where in the whole tensor each part begins ("saved_offsets"); here every part is a whole tensor.
    """
    whole = {name: {"saved_offsets": [0] * len(tensor.shape)} for name, tensor in sorted(tensors.items())}
    metadata = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(whole)}
    text = json.dumps(dict(trainer), indent=1, ensure_ascii=False, allow_nan=False)
    building.tensors(_FILE, tensors, metadata=metadata)
    building.text(_TRAINER, text)


def read_trainer(checkpoint: Path) -> dict[str, Any]:
    """What `write_state` was given as `trainer`. Raises InputError where it is missing or damaged."""
    path = checkpoint / _TRAINER
    try:
        trainer = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "the checkpoint has no state to go on from: state/trainer.json is missing"
        raise InputError(what, where=str(checkpoint), fix="go on from another checkpoint") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"state/trainer.json is damaged: {error}", where=str(path), fix=COPY_AGAIN) from None
    if not isinstance(trainer, dict):
        raise InputError("state/trainer.json is damaged: it holds no object", where=str(path), fix=COPY_AGAIN)
    return trainer


def state_files(checkpoint: Path) -> list[Path]:
    """The files that hold the state's tensors; none where the checkpoint has no state. Only what the manifest names:
    what else came to lie there, as copying tools leave things behind, was never compared with a hash. Raises InputError
    where there is no manifest."""
    names = sorted(read_manifest(checkpoint)["files"])
    return [checkpoint / name for name in names if name.startswith(f"{FOLDER}/") and name.endswith(".safetensors")]
