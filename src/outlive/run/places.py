"""Where a model lies that is named by a folder, a .gguf file or a hub id."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from outlive.run.errors import InputError


def model_folder(name: str, patterns: Sequence[str], convert: Callable[[Path], Path]) -> Path:
    """The folder of a model: one on this disk, what `convert` makes of a .gguf file, or the hub's files in its cache.

    Of the hub only files that match `patterns` are downloaded. Raises InputError where there is none.
    """
    path = Path(name).expanduser()
    if path.suffix == ".gguf" or path.is_file():
        return convert(path)
    if path.is_dir():
        return path
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError("there is no such model", where=name, fix="name a folder, a .gguf file or a hub id (org/name)")
    return _from_hub(name, patterns)


def _from_hub(name: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except LocalEntryNotFoundError:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise InputError(
            f"the hub cannot be reached{offline}, and {name} is not in its cache",
            where=f"model: {name}",
            fix="name a local folder or a .gguf file",
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"the hub has no such model for us: {first}", where=f"model: {name}") from None
