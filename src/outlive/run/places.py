"""Where a model lies that is named by a folder, a .gguf file or a hub id."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from outlive.run.errors import InputError, nearest


def model_folder(name: str, patterns: Sequence[str], convert: Callable[[Path], Path]) -> Path:
    """The folder of a model: one on this disk, what `convert` makes of a .gguf file, or the hub's files in its cache.

    Of the hub only files that match `patterns` are downloaded. Raises InputError where there is none.
    """
    path = Path(name).expanduser()
    if path.is_file():
        _refuse_other_file(path, name)
        return convert(path)
    if path.is_dir():
        return path
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or path.suffix == ".gguf":
        raise _no_such_model(path, name)
    return _from_hub(name, patterns)


def _refuse_other_file(path: Path, name: str) -> None:
    """Raise InputError for a file that is no GGUF file; an empty or cut one is left to its reader."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise InputError(f"the file can't be read: {error.strerror}", where=name, fix="check its permissions") from None
    if begin != b"GGUF" and path.suffix != ".gguf":
        fix = f"name its folder: {path.parent}" if (path.parent / "config.json").is_file() else "name a model's folder"
        raise InputError("this file is no model: a model is a folder, a GGUF file or a hub id", where=name, fix=fix)


def _near(path: Path) -> str | None:
    """A folder or .gguf file beside `path` with a name like its own."""
    try:
        folders = [item.name for item in path.parent.iterdir() if item.is_dir() or item.suffix == ".gguf"][:10_000]
    except OSError:
        return None
    close = nearest(path.name, folders)
    return str(path.with_name(close)) if close else None


def _no_such_model(path: Path, name: str) -> InputError:
    fix = "name a folder, a .gguf file or a hub id (org/name)"
    if path.is_symlink():
        return InputError(f"this link points to nothing: {path.readlink()} does not exist", where=name, fix=fix)
    near = _near(path)
    return InputError(
        "there is no such model", where=name, nearest=near, fix=f"did you mean {near}? Or {fix}" if near else fix
    )


def _from_hub(name: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    where = f"model: {name}"
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except GatedRepoError as error:  # a kind of RepositoryNotFoundError
        raise _gated(name, where, str(error)) from None
    except RepositoryNotFoundError:
        raise InputError(
            f"the hub has no model {name}, or it is private",
            where=where,
            fix="check the name on huggingface.co; for a private one set HF_TOKEN to a token that may read it"
            + ("" if os.environ.get("HF_TOKEN") else " (none is set now)"),
        ) from None
    except LocalEntryNotFoundError:
        if os.environ.get("HF_HUB_OFFLINE"):
            what = f"{name} is not in the hub's cache, and HF_HUB_OFFLINE forbids to download it"
            fix = "unset HF_HUB_OFFLINE; or name a local folder or a .gguf file"
            if Path(name).parent.is_dir():  # more likely a folder that is misspelt than a name of the hub
                near = _near(Path(name))
                what = f"there is no folder {name}, nor a model of that name in the hub's cache (HF_HUB_OFFLINE is set)"
                fix = f"did you mean {near}?" if near else "check the name"
        else:
            what = f"the hub cannot be reached, and {name} is not in its cache"
            fix = "check the network (or HF_ENDPOINT); or name a local folder or a .gguf file"
        raise InputError(what, where=where, fix=fix) from None
    except (OSError, ValueError) as error:  # whatever else the hub's library raises over HTTP or a bad name
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the hub did not give the model: {first}", where=where, fix="try again later; or name a local folder"
        ) from None


def _gated(name: str, where: str, said: str) -> InputError:
    page = f"https://huggingface.co/{name}"
    if "awaiting a review" in said:
        return InputError(
            f"{name} is gated, and your request for access has not been granted yet",
            where=where,
            fix=f"see its state on {page}; until then take another model",
        )
    if os.environ.get("HF_TOKEN"):
        fix = f"accept the licence on {page} with HF_TOKEN's account, and let that token read gated models"
    else:
        fix = f"accept the licence on {page}, and set HF_TOKEN to a token from huggingface.co/settings/tokens"
    return InputError(f"{name} is gated: its makers ask for a licence to be accepted first", where=where, fix=fix)
