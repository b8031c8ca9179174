"""Run files, run folders and stores, opened for `inspect`. These need pydantic and Arrow; bare files do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.cli.open_target import (
    POLICY,
    Item,
    Opened,
    Options,
    SourceRows,
    as_samples,
    load_tokenizer,
)
from outlive.data.ledger import Ledger
from outlive.data.lints import OF_TOKENIZER
from outlive.data.preparer import naming_of
from outlive.data.sources import resolve
from outlive.data.store import Store
from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.text.tokenizer import Tokenizer


def open_run_file(path: Path, options: Options) -> Opened:
    """A run file: its sources as they would be prepared. Options stand for the keys of its `data` section."""
    from outlive.cli.open_run import open_run
    from outlive.run.config import load_run

    if options.format:
        raise InputError("a run file says the format of its sources itself", where="--format", fix="set format there")
    said = options.said("chat_template", *POLICY)
    overrides = [
        f"data.{name}={json.dumps(str(value) if name != 'sequence_length' else value)}" for name, value in said.items()
    ]
    loaded = load_run(path, overrides)
    data = loaded.run.data
    with loaded.at_its_line():
        opened = open_run(loaded.run, options.tokenizer)
        policy = {name: getattr(data, name) for name in POLICY}
        validation = data.validation if isinstance(data.validation, list) else []
        sides = [("train", source) for source in data.train] + [("validation", source) for source in validation]
        notes, sources = list(loaded.notes), []
        for side, source in sides:
            found = resolve(source, notes.append)
            ledger = Ledger(found.name, format=source.format or "", format_reason="named by the run file")
            limit = min((n for n in (options.limit, source.limit) if n is not None), default=None)
            columns, naming = dict(opened.columns), naming_of(source)
            share = data.validation if isinstance(data.validation, float) else 0.0
            rows = as_samples(
                found.files, opened.tokenizer, opened.template, policy, ledger, limit, columns, naming, share=share
            )
            rows.side = side
            sources.append(rows)
    facts = {
        "run": f"{loaded.run.name} ({path})",
        "tokenizer": f"{opened.tokenizer.folder} ({opened.tokenizer.vocab_size:,} tokens)",
        "chat template": data.chat_template or ("the tokenizer's own" if opened.template else "none"),
        **{name.replace("_", " "): str(value) for name, value in policy.items() if value is not None},
        "bad rows": data.bad_rows,
    }
    if isinstance(data.validation, float):
        facts["validation"] = f"{data.validation:g} of the rows, by their content"
    return Opened(sources, opened.tokenizer, facts, notes)


def open_store(folder: Path, options: Options) -> Opened:
    """One store."""
    return _stores([folder], options, {"store": str(folder)})


def open_run_folder(folder: Path, options: Options) -> Opened:
    """A run folder: the stores that it was trained on; where they are gone, its rows as they are prepared now."""
    facts = {"run": str(folder)}
    try:
        data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
        stores = [Path(about["store"]) for side in ("train", "validation") for about in data[side]]
    except (OSError, ValueError, KeyError, TypeError):
        stores = []
    if stores and all((store / "manifest.json").exists() for store in stores):
        return _stores(
            stores, options, facts, [*sorted(folder.glob("checkpoints/*/*/")), *sorted(folder.glob("checkpoints/*"))]
        )
    opened = open_run_file(folder / "run.yaml", options)
    opened.notes.append("the run's stores are not here any more: this is what its rows become now")
    return opened


def _stores(folders: list[Path], options: Options, facts: dict[str, str], places: list[Path] | None = None) -> Opened:
    said = options.said("chat_template", "format", *POLICY)
    if said:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise InputError(f"a store is made already: {names} can't change it", fix="inspect the run file or the rows")
    stores = [Store(folder) for folder in folders]
    tokenizer = _tokenizer(stores, options, places or [])
    manifest = stores[0].manifest
    facts |= {
        "tokenizer": f"{tokenizer.folder} ({tokenizer.vocab_size:,} tokens)",
        **{name.replace("_", " "): str(manifest.get("policy", {}).get(name)) for name in POLICY[:2]},
    }
    notes = []
    if tokenizer.hash != manifest.get("tokenizer_hash"):
        notes.append("this tokenizer is not the one that the store was made with: the text may be wrong")
    sources, seen = [], set()
    for store in stores:
        ledger = Ledger.from_json(store.manifest["ledger"])
        again = ledger.source in seen  # both sides of a source carry its one ledger
        seen.add(ledger.source)
        if ledger.bad or ledger.overlong:
            notes.append(f"{ledger.source}: rows that were left out are counted, but not in the store")
        if any(lint["id"] not in OF_TOKENIZER for lint in ledger.lints):
            notes.append(
                f"{ledger.source}: a store counts what is worth a look in all its rows, but names only the first rows "
                "of each kind: samples of other rows carry no such mark here, though some fit"
            )
        side = store.manifest.get("side", "train")
        rows = SourceRows(ledger.source, _items(store, ledger, options.limit), ledger, side=side)
        sources.append(rows)
        if again:
            rows.ledger = Ledger("")
    return Opened(sources, tokenizer, facts, list(dict.fromkeys(notes)))


def _items(store: Store, ledger: Ledger, limit: int | None) -> Iterator[Item]:
    rows: set[int] = set()
    lints: dict[int, list[str]] = {}
    for lint in ledger.lints:
        for row_of_lint in lint["rows"] if lint["id"] not in OF_TOKENIZER else ():
            lints.setdefault(row_of_lint, []).append(lint["id"])
    for index in range(len(store)):
        _, row, part = store.value(index, "sample_id").rsplit(":", 2)
        rows.add(int(row))
        if limit is not None and len(rows) > limit:
            return
        named = list(lints.get(int(row), ()))
        yield Item(int(row), int(part), store.tokens(index), store.weights(index), lints=named)


def _tokenizer(stores: list[Store], options: Options, places: list[Path]) -> Tokenizer:
    """The tokenizer that decodes the stores: the one named, that which made them, or that of the run's checkpoint."""
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer)
    made_with: Any = stores[0].manifest.get("tokenizer")
    for place in ([Path(made_with)] if made_with else []) + places:
        if (place / "tokenizer.json").is_file():
            return load_tokenizer(place)
    raise InputError(
        "the tokenizer that the store was made with is not here any more",
        where=str(made_with),
        fix="name it: --tokenizer DIR",
    )
