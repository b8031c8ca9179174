"""A run's tokenizer, template and data, opened without torch: what prepare and inspect need of a run file."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.data.record_batch import Column
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
    from outlive.data.record_batch import Column
    from outlive.text.tokenizer import Tokenizer

    loaded = Tokenizer.load(tokenizer if tokenizer is not None else tokenizer_folder(run))
    columns = {name: Column(kind) for name, kind in run.method.columns.items()}
    return OpenRun(loaded, chat_template(run.data, loaded), columns)


def tokenizer_folder(run: Run) -> Path:
    """Where the tokenizer of a run's model lies. A hub model's is downloaded; a .gguf file's needs torch once."""
    from outlive.run.places import model_folder

    if not isinstance(run.model, str):
        return Path(run.model.init.tokenizer)
    return model_folder(run.model, TOKENIZER_FILES, _from_gguf)


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
