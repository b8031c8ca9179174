"""PEFT adapters: settings, tensors, and whether they fit the base that they are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outlive.checkpoint.adapters.adapter import NAME, Adapter, LowRank, adapter_of
from outlive.checkpoint.adapters.binding import NAME as BINDING
from outlive.checkpoint.adapters.binding import check_bound
from outlive.checkpoint.adapters.places import embedding_of, is_conv1d, is_embedding, is_head, place
from outlive.checkpoint.adapters.settings import NAME as CONFIG
from outlive.checkpoint.adapters.settings import Settings, read_settings
from outlive.checkpoint.formats.huggingface import read_json
from outlive.checkpoint.formats.pickled import open_state_dict
from outlive.checkpoint.formats.safetensors import open_tensors
from outlive.checkpoint.formats.torch_checksums import damaged_members
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.files import AGAIN, compare_with_manifest
from outlive.checkpoint.verify.finding import Finding, some
from outlive.checkpoint.verify.values import look_at_values
from outlive.run.errors import OutliveError
from outlive.text.tokenizer import Tokenizer

BIN = "adapter_model.bin"
_OWN = "use the adapter_config.json that was saved with these tensors"


def verify_adapter(folder: Path, base: Path | None) -> Iterator[Finding]:
    """An adapter's folder; with `base` also against the tensors of that. Without, the base that it names by a path."""
    yield from compare_with_manifest(folder)
    settings, found = _settings(folder)
    yield from found
    tensors, found = _tensors(folder)
    yield from found
    if tensors is None:
        return
    yield from look_at_values(tensors, dict.fromkeys(tensors, str(folder)))
    if settings is None:
        return
    try:
        adapter = adapter_of(settings, tensors, str(folder))
    except OutliveError as error:
        yield Finding("error", "adapter_tensors", error.what, error.where or str(folder), error.fix or AGAIN)
        return
    yield from _against_config(adapter, folder)
    yield from _zeros(adapter, str(folder))
    yield from _against_base(adapter, folder, base or _named_base(settings, folder))


def _settings(folder: Path) -> tuple[Settings | None, list[Finding]]:
    try:
        return read_settings(folder), []
    except OutliveError as error:
        where = error.where or str(folder / CONFIG)
        return None, [Finding("error", "adapter_config", error.what, where, error.fix or AGAIN)]


def _tensors(folder: Path) -> tuple[Mapping[str, Tensor] | None, list[Finding]]:
    where, found = folder / NAME, list[Finding]()
    try:
        if where.is_file():
            return open_tensors(where), found
        where = folder / BIN
        if not where.is_file():
            return None, [Finding("error", "no_weights", f"there is no {NAME}", str(folder), AGAIN)]
        fix = "load it with PEFT and save it again: it writes safetensors"
        found = [Finding("warning", "pickled_adapter", f"the tensors are in {BIN}, a pickle", str(where), fix)]
        tensors = open_state_dict(where).tensors
        if names := damaged_members(where):
            what = f"bytes have changed since they were written, by the checksums beside them: {some(names)}"
            found.append(Finding("error", "other_checksum", what, str(where), AGAIN))
        return tensors, found
    except OutliveError as error:
        damaged = Finding("error", "damaged_file", error.what, error.where or str(where), error.fix or AGAIN)
        return None, [*found, damaged]


def _against_config(adapter: Adapter, folder: Path) -> Iterator[Finding]:
    """Ranks, and the modules that the config names."""
    where = str(folder / CONFIG)
    wrong = []
    for (path, _), low in adapter.low_rank.items():
        try:
            if "experts" not in path:  # of stacked experts the rank is that of all of them
                adapter.settings.scale(path, low.rank)
        except OutliveError as error:
            wrong.append(error.what)
    if wrong:
        what = wrong[0] + (f" ({len(wrong)} modules)" if len(wrong) > 1 else "")
        yield Finding("error", "adapter_rank", what, where, _OWN)
    if adapter.settings.dora and (plain := [low.path for low in adapter.low_rank.values() if low.magnitude is None]):
        what = f"the config says use_dora, and these modules have no magnitude: {some(plain)}"
        yield Finding("error", "adapter_tensors", what, str(folder), AGAIN)
    yield from _targets(adapter, read_json(folder / CONFIG), where)
    whole = {name.rpartition(".")[0] for name in adapter.saved} | {low.path for low in adapter.low_rank.values()}
    if absent := [name for name in adapter.settings.saved if not any(_ends(path, name) for path in whole)]:
        what = f"modules_to_save names what is not there: {some(absent)}"
        yield Finding("error", "expected_missing", what, str(folder), "save the adapter again where it was trained")


def _targets(adapter: Adapter, config: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Modules that the config names, where it lists them (not by a pattern), against those of the tensors."""
    paths = {low.path for low in adapter.low_rank.values()}
    listed, parameters = (
        [one for one in found if isinstance(one, str)] if isinstance(found := config.get(key), list) else []
        for key in ("target_modules", "target_parameters")
    )
    if absent := [name for name in listed if not any(_ends(path, name) for path in paths)]:
        what = f"the config adapts modules of which there is no tensor: {some(absent)}"
        yield Finding("warning", "adapter_targets", what, where, _OWN)
    modules = [*listed, *(name.rpartition(".")[0] for name in parameters)]
    if listed and (others := [path for path in paths if not any(_ends(path, name) for name in modules)]):
        what = f"tensors of modules that the config does not adapt, which PEFT leaves out: {some(others)}"
        yield Finding("warning", "adapter_targets", what, where, _OWN)


def _ends(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}") or f".{name}." in f".{path}."


def _zeros(adapter: Adapter, where: str) -> Iterator[Finding]:
    lows = list(adapter.low_rank.values())
    if lows and all(_is_zero(low) for low in lows):
        what = "all its B, or of embeddings A, are zeros: it changes nothing, as before its training"
        yield Finding("warning", "untrained", what, where, "is this the adapter of the last step?")


def _is_zero(low: LowRank) -> bool:
    half = low.a if low.embedding else low.b
    return not any(np.ascontiguousarray(half.read(box)).view(np.uint8).any() for box in half.blocks())


def _named_base(settings: Settings, folder: Path) -> Path | None:
    names = [settings.base]
    try:
        names.append(read_json(folder / BINDING).get("model") if (folder / BINDING).is_file() else None)
    except OutliveError:
        return None  # told by `check_bound`
    for name in names:
        if isinstance(name, str) and name and "\0" not in name and len(name) < 4096:
            place_of = Path(name)
            if place_of.is_dir() and (place_of / "config.json").is_file():
                return place_of
    return None


def _against_base(adapter: Adapter, folder: Path, base: Path | None) -> Iterator[Finding]:
    if not (folder / BINDING).is_file():
        what = "nothing says by hash which base it was trained on"
        yield Finding("note", "no_binding", what, str(folder), "adapters that outlive writes have a base.json")
    if base is None:
        what = "its base is not here: names and shapes are not compared with it"
        yield Finding("note", "no_base", what, str(folder), "name the folder of the base: --base DIR")
        return
    from outlive.checkpoint.formats.detect import open_checkpoint

    try:
        check_bound(folder, base)
    except OutliveError as error:
        yield Finding("error", "other_base", error.what, error.where or str(base), error.fix or AGAIN)
    try:
        model = open_checkpoint(base)
    except OutliveError as error:
        yield Finding("error", "other_base", f"the base can't be read: {error.what}", str(base), error.fix or AGAIN)
        return
    yield from _shapes(adapter, model, str(folder))
    yield from _vocabulary(adapter, model, folder)


def _shapes(adapter: Adapter, model: Model, where: str) -> Iterator[Finding]:
    nowhere, other = [], []
    for low in adapter.low_rank.values():
        name = place(f"{low.path}.weight", model.tensors)
        if name is None:
            nowhere += [low.path] if "experts" not in low.path else []
            continue
        taken = (low.a.shape[1], low.b.shape[0]) if low.embedding else (low.b.shape[0], low.a.shape[1])
        is_turned = is_conv1d(low.path, str(model.config.get("model_type"))) or adapter.settings.fan_in_fan_out
        if model.tensors[name].shape != (taken[::-1] if is_turned and not low.embedding else taken):
            other.append(f"{low.path}: {list(taken)} for {list(model.tensors[name].shape)}")
    for name, tensor in adapter.saved.items():
        own = place(name, model.tensors)
        if own is None:
            nowhere += [name] if not is_head(name.removesuffix(".weight")) else []
        elif model.tensors[own].shape != tensor.shape and not _is_vocabulary(name):
            other.append(f"{name}: {list(tensor.shape)} for {list(model.tensors[own].shape)}")
    fix = "name the base that it was trained on: --base DIR"
    if nowhere:
        yield Finding("error", "other_base", f"the base has no tensors of {some(nowhere)}", where, fix)
    if other:
        yield Finding("error", "adapter_shape", f"it does not fit the base's shapes: {some(other)}", where, fix)


def _is_vocabulary(name: str) -> bool:
    path = name.removesuffix(".weight")
    return is_embedding(path) or is_head(path)


def _vocabulary(adapter: Adapter, model: Model, folder: Path) -> Iterator[Finding]:
    """Tokens that were added need rows; a head that was trained apart needs a config that says so."""
    name = embedding_of(model.tensors)
    saved = [one for key, one in adapter.saved.items() if is_embedding(key.removesuffix(".weight"))]
    rows = saved[0].shape[0] if saved else model.tensors[name].shape[0] if name else None
    if rows is not None and (folder / "tokenizer.json").is_file():
        try:
            tokens = Tokenizer.load(folder).vocab_size
        except OutliveError as error:
            yield Finding("error", "no_tokenizer", error.what, str(folder / "tokenizer.json"), error.fix or AGAIN)
        else:
            if tokens > rows:
                what = f"its tokenizer has {tokens:,} tokens, and the embeddings {rows:,} rows: new ones were not saved"
                fix = 'save them: modules_to_save: ["embed_tokens", "lm_head"]'
                yield Finding("error", "vocabulary", what, str(folder), fix)
    changed = [key.removesuffix(".weight") for key in adapter.saved] + [one.path for one in adapter.low_rank.values()]
    heads, embeddings = any(map(is_head, changed)), any(map(is_embedding, changed))
    if model.config.get("tie_word_embeddings") and heads != embeddings:
        what = "one of embeddings and head was trained, and the base's config ties them: readers disagree on the other"
        fix = "merge it with `outlive merge`, which unties them in the config too"
        yield Finding("warning", "tied_adapter", what, str(folder), fix)
