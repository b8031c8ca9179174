"""A run's tokenizer, template and data, opened without torch: what prepare and inspect need of a run file."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.data.store import Column
    from outlive.run.config import Run
    from outlive.text.template import ChatTemplate
    from outlive.text.tokenizer import Tokenizer

# All that a tokenizer folder may hold, so that a hub model's weights are not downloaded for it.
TOKENIZER_FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
]


class OpenRun(NamedTuple):
    """What decides, beside the run's `data` section, which tokens a row becomes."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    columns: Mapping[str, Column]


def open_run(run: Run, tokenizer: Path | None = None) -> OpenRun:
    """The tokenizer of the run's model (or the one named by `tokenizer`), its template, and its method's columns."""
    from outlive.data.prepare import chat_template
    from outlive.data.store import Column
    from outlive.text.tokenizer import Tokenizer

    loaded = Tokenizer.load(tokenizer if tokenizer is not None else tokenizer_folder(run))
    columns = {name: Column(kind) for name, kind in run.method.columns.items()}
    return OpenRun(loaded, chat_template(run.data, loaded), columns)


def tokenizer_folder(run: Run) -> Path:
    """Where the tokenizer of a run's model lies. A hub model's is downloaded; a .gguf file's needs torch once."""
    if not isinstance(run.model, str):
        return Path(run.model.init.tokenizer)
    path = Path(run.model)
    if path.suffix == ".gguf" or path.is_file():
        return _from_gguf(path)
    if path.is_dir():
        return path
    if run.model.startswith((".", "/", "~")) or run.model.count("/") != 1:
        raise InputError(
            "there is no such model", where=run.model, fix="name a folder, a .gguf file or a hub id (org/name)"
        )
    return _from_hub(run.model)


def _from_gguf(path: Path) -> Path:
    missing = [name for name in ("torch", "transformers", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"reading the tokenizer of a .gguf file needs {', '.join(missing)}",
            where=str(path),
            fix="pip install 'outlive[train]', or name a Hugging Face folder",
        )
    from outlive.modeling.gguf import cached_folder
    from outlive.run.home import outlive_home

    return cached_folder(path, outlive_home() / "models")


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=TOKENIZER_FILES))
    except LocalEntryNotFoundError:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise InputError(
            f"the hub cannot be reached{offline}, and {name} is not in its cache",
            where=f"model: {name}",
            fix="name a local folder",
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"the hub has no tokenizer for us: {first}", where=f"model: {name}") from None
