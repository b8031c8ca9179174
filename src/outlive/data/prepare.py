"""Prepare: the sources of a run → stores, built once and kept by content, and the ledger of every row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outlive.data.bad_rows import bad_rows_error, nothing_left_error
from outlive.data.building import damage, is_there, only_builder, remove_damaged
from outlive.data.ledger import Ledger
from outlive.data.lints import LINTS, MAX_EXAMPLES
from outlive.data.naming import Naming
from outlive.data.pipeline import RowResult, read_samples
from outlive.data.plan import Layout, Mixture, Plan, make_plan
from outlive.data.rows import ReadCounts, check_rows_file
from outlive.data.samples import Policy, SampleMaker
from outlive.data.store import VERSION, Column, Store, StoreWriter
from outlive.run.config import Data, Source
from outlive.run.errors import InputError
from outlive.run.files import building_folder, hash_file, hash_json, writable
from outlive.run.home import outlive_home
from outlive.run.notes import to_stderr
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer

SIDES = ("train", "validation")


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


@dataclass(frozen=True)
class Preparer:
    """Everything that decides which tokens a row becomes."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    policy: Policy
    columns: Mapping[str, Column]
    home: Path
    say: Callable[[str], None] = to_stderr

    def key(self, source: Source, path: Path, share: float, side: str, bytes_hash: str | None = None) -> str:
        """The store's name: a hash of all that its content depends on. `bytes_hash`: of the file, where it is known."""
        template = self.template
        return hash_json(
            {
                "store_version": VERSION,
                "bytes": bytes_hash if bytes_hash is not None else hash_file(path),
                "format": source.format,
                "fields": source.fields,
                "roles": source.roles,
                "limit": source.limit,
                "template": template.hash if template else None,
                "date": template.date if template and template.uses_date else None,
                "tokenizer": self.tokenizer.hash,
                "special_tokens": self.tokenizer.special_tokens,
                "policy": vars(self.policy),
                "columns": {name: vars(column) for name, column in self.columns.items()},
                "validation_share": share,
                "side": side,
            }
        )

    def store_pair(self, source: Source, share: float) -> tuple[dict[str, Store], Ledger]:
        """The stores of one source by side, found or built, and its ledger."""
        path = local_path(source)
        sides = SIDES if share else SIDES[:1]
        before = hash_file(path)
        folders = {side: self.home / "stores" / self.key(source, path, share, side, before) for side in sides}
        if not _are_whole(folders.values()):
            with only_builder(list(folders.values()), self.say):
                if not _are_whole(folders.values()):  # else another has built them meanwhile
                    self._build_again(source, path, share, folders, before)
        stores = {side: Store(folder) for side, folder in folders.items()}
        ledger = Ledger.from_json(stores["train"].manifest["ledger"])
        ledger.source = str(path)  # the store may be made from the same bytes in another place
        return stores, ledger

    def _build_again(self, source: Source, path: Path, share: float, folders: Mapping[str, Path], before: str) -> None:
        for folder in folders.values():
            if os.path.lexists(folder) and (problem := damage(folder)):
                self.say(f"{problem.what} ({problem.where}): the store is built again from {path}")
                remove_damaged(folder)
        try:
            self._build(source, path, share, folders, before, with_weight=False)
        except _RealWeights:
            self._build(source, path, share, folders, before, with_weight=True)

    def _build(
        self,
        source: Source,
        path: Path,
        share: float,
        folders: Mapping[str, Path],
        before: str,
        with_weight: bool,
    ) -> None:
        maker = SampleMaker(self.tokenizer, self.template, self.policy)
        ledger = Ledger(str(path), format=source.format or "", format_reason="named by the run file")
        read = ReadCounts()
        unchanged = path.stat()
        with ExitStack() as stack:
            building = {
                side: stack.enter_context(building_folder(folder, if_exists="keep")) for side, folder in folders.items()
            }
            writers = {side: StoreWriter(folder, self.columns, with_weight) for side, folder in building.items()}
            for result in read_samples(path, maker, ledger, self.columns, source.limit, read, naming_of(source)):
                if result.refusal is None:
                    side = _side(result.content_hash, share)
                    ledger.validation_rows += side == "validation"
                    _write(writers[side], result, writable(path.name))
            if read.hash != before if source.limit is None else _changed(path, unchanged, before):
                raise InputError("the data file changed while it was read", where=str(path), fix="run again")
            for side, writer in writers.items():
                writer.close({"side": side, "source": str(path), "ledger": ledger.to_json(), **self._about(before)})

    def _about(self, bytes_hash: str) -> dict[str, Any]:
        template = self.template
        return {
            "source_hash": bytes_hash,
            "tokenizer_hash": self.tokenizer.hash,
            "tokenizer": str(self.tokenizer.folder),
            "template_hash": template.hash if template else None,
            "template": template.source if template else None,
            "date": template.date if template and template.uses_date else None,
            "policy": vars(self.policy),
        }


def prepare(
    data: Data,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    columns: Mapping[str, Column] | None = None,
    say: Callable[[str], None] = to_stderr,
) -> Prepared:
    """Rows → stores. Raises InputError for bad rows under `bad_rows: refuse`, for no rows, for sources that overlap.

    `columns` are those that the method declares; rows carry them as numbers. `say` takes notes: that another process
    builds the same store and is waited for, that a damaged store is built again.
    """
    policy = Policy(data.loss_on, data.turn_end, data.overlong, data.sequence_length, data.system)
    preparer = Preparer(tokenizer, template, policy, columns or {}, outlive_home(), say)
    share = data.validation if isinstance(data.validation, float) else 0.0
    train, validation, ledgers = [], [], []
    for source in data.train:
        stores, ledger = preparer.store_pair(source, share)
        train.append(stores["train"])
        validation += [stores["validation"]] if "validation" in stores else []
        ledgers.append(ledger)
    for source in data.validation if isinstance(data.validation, list) else []:
        stores, ledger = preparer.store_pair(source, 0.0)
        validation.append(stores["train"])
        ledgers.append(ledger)
    _refuse_bad_rows(ledgers, data.bad_rows)
    if not any(len(store) for store in train):
        raise nothing_left_error(ledgers)
    if isinstance(data.validation, list):
        _find_overlap(train, validation, ledgers[len(train) :], data.validation_overlap == "refuse")
    validation = [store for store in validation if len(store)]
    weights = [source.weight for source in data.train]
    return Prepared(
        Mixture(train, weights), Mixture(validation, [1.0] * len(validation)) if validation else None, ledgers
    )


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


def naming_of(source: Source) -> Naming | None:
    """What the run file says about the names that a source's rows use; None where it says nothing."""
    return Naming(source.fields or {}, source.roles or {}) if source.fields or source.roles else None


def validation_plan(mixture: Mixture, layout: Layout) -> Plan:
    """The plan of the validation rows: always the same, whatever the run's seed."""
    return make_plan(mixture, layout, seed=0, epoch=0)


def _are_whole(folders: Iterable[Path]) -> bool:
    return all(is_there(folder) and damage(folder) is None for folder in folders)


def _changed(path: Path, before: os.stat_result, bytes_hash: str) -> bool:
    """Whether a file is another than when it was looked at: also where only its first rows were read since then."""
    try:
        after = path.stat()
    except OSError:
        return True
    same = (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)
    return not same or hash_file(path) != bytes_hash


class _RealWeights(Exception):
    """A row has a weight other than 0 and 1: the store needs a weight column."""


def _write(writer: StoreWriter, result: RowResult, source_name: str) -> None:
    if "weight" not in writer.schema.names and any(not np.isin(s.weights, (0, 1)).all() for s in result.samples):
        raise _RealWeights
    values = [result.columns for _ in result.samples]
    writer.add_row(result.samples, f"{source_name}:{result.row.index}", result.content_hash, values)


def _side(content_hash: int, share: float) -> str:
    """Equal rows land on one side, since the side is a function of the content alone."""
    return "validation" if content_hash < share * 2**64 else "train"


def local_path(source: Source) -> Path:
    """The file of a source. Raises InputError where it is no file of rows."""
    if source.path is None:
        raise InputError(
            "reading data sets from the hub is not part of this version",
            where=f"data.train: {source.hub}",
            fix="download it as JSON Lines and name the file with data.train.0.path",
        )
    path = Path(source.path)
    if path.is_dir():
        raise InputError("this is a folder, not a file of rows", where=str(path), fix="name its files one by one")
    check_rows_file(path)
    return path


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
    return {"store": str(store.folder), "weight": weight, **{key: store.manifest[key] for key in kept}}
