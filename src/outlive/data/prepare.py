"""Prepare: the sources of a run → stores, built once and kept by content, and the ledger of every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlive.data.bad_rows import bad_rows_error, nothing_left_error
from outlive.data.growing import begin
from outlive.data.ledger import Ledger
from outlive.data.lints import LINTS, MAX_EXAMPLES
from outlive.data.mixing import Mixing
from outlive.data.plan import Layout, Mixture, Packing, Plan, make_plan
from outlive.data.preparer import Mapper, Preparer, Progress, no_progress
from outlive.data.record_batch import Column
from outlive.data.samples import Policy
from outlive.data.store import Store
from outlive.run.config import Data, Run, Source
from outlive.run.errors import InputError
from outlive.run.home import outlive_home
from outlive.run.notes import to_stderr
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prepared:
    """What training reads: stores with their weights, and what became of every row."""

    train: Mixture
    validation: Mixture | None
    ledgers: list[Ledger]

    @property
    def sides(self) -> list[Mixture]:
        """The training data, and the validation data where there is some."""
        return [self.train, self.validation] if self.validation else [self.train]

    def about(self) -> dict[str, Any]:
        """For data.json: which stores, with their manifests' counts and hashes, and the ledger."""
        return {
            "train": [
                _about(store, weight) for store, weight in zip(self.train.stores, self.train.weights, strict=True)
            ],
            "validation": [_about(store, 1.0) for store in self.validation.stores] if self.validation else [],
            "ledger": [ledger.to_json() for ledger in self.ledgers],
        }


def prepare(
    data: Data,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    columns: Mapping[str, Column] | None = None,
    say: Callable[[str], None] = to_stderr,
    progress: Callable[[Progress], None] = no_progress,
    elsewhere: Mapper | None = None,
) -> Prepared:
    """Rows → stores. Raises InputError for bad rows under `bad_rows: refuse`, for no rows, for sources that overlap.

    `columns` are those that the method declares; rows carry them as numbers. `say` takes notes: that another process
    builds the same store and is waited for, that a damaged store is built again. `progress` is told how far it is;
    `elsewhere` makes the chunks on other machines.
    """
    preparer = _preparer(data, tokenizer, template, columns or {}, say, progress, elsewhere)
    share = data.validation if isinstance(data.validation, float) else 0.0
    train, validation, ledgers = [], [], []
    for source in data.train:
        stores, ledger = preparer.store_pair(source, share)
        train.append(stores["train"])
        validation += [stores["validation"]] if "validation" in stores else []
        ledgers.append(ledger)
    for source in _validation_sources(data):
        stores, ledger = preparer.store_pair(source, 0.0)
        validation.append(stores["train"])
        ledgers.append(ledger)
    _refuse_bad_rows(ledgers, data.bad_rows)
    if not any(len(store) for store in train):
        raise nothing_left_error(ledgers)
    if isinstance(data.validation, list):
        _find_overlap(train, validation, ledgers[len(train) :], data.validation_overlap == "refuse")
    return Prepared(mixture_of(data, train), _once(validation), ledgers)


def prepare_meanwhile(
    data: Data,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    columns: Mapping[str, Column] | None = None,
    say: Callable[[str], None] = to_stderr,
    progress: Callable[[Progress], None] = no_progress,
) -> Prepared:
    """What `prepare` gives, of the first window of the training rows: the others are prepared by another process
    while these are trained on. The validation rows are prepared whole. `Data` refuses what this can't be used with.
    """
    preparer = _preparer(data, tokenizer, template, columns or {}, say, progress)
    growing = begin(preparer, data.train[0])
    if growing is not None:
        growing.wait(lambda: len(growing) >= data.window)
        growing.builder.progress = no_progress
    if growing is None or growing.is_whole:
        return prepare(data, tokenizer, template, columns, say, progress)
    say(f"training begins with the first {len(growing):,} samples; the others are prepared meanwhile")
    held = [preparer.store_pair(source, 0.0) for source in _validation_sources(data)]
    validation = _once([stores["train"] for stores, _ in held])
    return Prepared(mixture_of(data, [growing]), validation, [growing.ledger, *(ledger for _, ledger in held)])


def _validation_sources(data: Data) -> list[Source]:
    return data.validation if isinstance(data.validation, list) else []


def _once(stores: Sequence[Store]) -> Mixture | None:
    """Each sample once; None where there is none."""
    some = [store for store in stores if len(store)]
    return Mixture(some, [1.0] * len(some)) if some else None


def _preparer(
    data: Data, tokenizer: Tokenizer, template: ChatTemplate | None, columns: Mapping[str, Column],
    say: Callable[[str], None], progress: Callable[[Progress], None], elsewhere: Mapper | None = None,
) -> Preparer:  # fmt: skip
    policy = Policy(data.loss_on, data.turn_end, data.overlong, data.sequence_length, data.system)
    return Preparer(
        tokenizer, template, policy, columns, outlive_home(), say, progress,
        data.processes, elsewhere, data.tokenize_with,
    )  # fmt: skip


def mixture_of(data: Data, stores: Sequence[Store]) -> Mixture:
    """The training stores, one for each source, as the run file mixes them."""
    weights = [source.weight for source in data.train]
    epochs = [source.epochs for source in data.train]
    return Mixture(stores, weights, Mixing(weights, data.mix_by, data.pass_ends, epochs, data.used_up))


def chat_template(data: Data, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The template that a run renders with: the file named by data.chat_template, else the tokenizer's own, or None."""
    source = None
    if data.chat_template:
        try:
            source = Path(data.chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = "name a Jinja file in UTF-8; its path is relative to the current directory"
            raise InputError(f"the chat template cannot be read: {error}", where=data.chat_template, fix=fix) from None
    elif tokenizer.chat_template is None:
        return None
    return ChatTemplate.of(tokenizer, source, date=data.date, name=data.chat_template)


def layout_of(run: Run, packing: Packing | None = None) -> Layout:
    """How a run's packs are made and grouped; `packing` stands for the run file's."""
    window = run.data.window if run.data.order == "windowed" else None
    batch, how = run.batch, packing or run.data.packing
    return Layout.of(
        run.data.sequence_length, tokens=batch.tokens, sequences=batch.sequences, packing=how, window=window
    )


def validation_plan(mixture: Mixture, layout: Layout) -> Plan:
    """The plan of the validation rows: always the same, whatever the run's seed."""
    return make_plan(mixture, replace(layout, window=None), seed=0, epoch=0)


def _refuse_bad_rows(ledgers: Sequence[Ledger], bad_rows: str) -> None:
    bad = [ledger for ledger in ledgers if ledger.bad]
    if bad and bad_rows == "refuse":
        raise bad_rows_error(bad)


def _find_overlap(train: Sequence[Store], validation: Sequence[Store], ledgers: Sequence[Ledger], refuse: bool) -> None:
    """Refuse validation samples that are in the training data too, or write them in the sources' ledgers."""
    seen = np.concatenate([store.whole_column("content_hash") for store in train])
    for store, ledger in zip(validation, ledgers, strict=True):
        hashes = store.whole_column("content_hash")
        shared = np.flatnonzero(np.isin(hashes, seen))
        if not len(shared):
            continue
        ids = [str(store.value(int(index), "sample_id")) for index in shared[:MAX_EXAMPLES]]
        if refuse:
            raise InputError(
                f"{len(shared)} of {len(store)} validation samples are in the training data too",
                where=f"{store.manifest['source']}, first: {ids[0]}",
                fix="take them out of one of the two, or set data.validation_overlap=allow",
            )
        rows = [int(name.rsplit(":", 2)[1]) for name in ids]
        name = "validation_overlap"
        ledger.lints.append({"id": name, "count": len(shared), "rows": rows, "about": LINTS[name]})


def _about(store: Store, weight: float) -> dict[str, Any]:
    kept = (
        "source",
        "source_hash",
        "num_samples",
        "num_tokens",
        "num_targets",
        "template_hash",
        "tokenizer_hash",
        "date",
    )
    more = {key: store.manifest[key] for key in ("revision",) if key in store.manifest}
    if not store.is_whole:
        more["unfinished"] = True  # the numbers are of what is there so far
    return {"store": str(store.folder), "weight": weight, **{key: store.manifest[key] for key in kept}, **more}
