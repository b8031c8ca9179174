"""One source of rows → its stores: found by their content, built by one or several processes, taken up where an
interrupted preparation left them."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from outlive.data.appended import Damaged
from outlive.data.building import damage, is_there, only_builder, remove_damaged, unfinished
from outlive.data.chunks import Chunk, Made, Recipe, chunks_of
from outlive.data.fold import Fold
from outlive.data.ledger import Ledger
from outlive.data.naming import Naming
from outlive.data.reading import file_names, source_rows
from outlive.data.record_batch import Column
from outlive.data.rows import ReadCounts
from outlive.data.samples import Policy
from outlive.data.sources import SourceFiles, resolve
from outlive.data.store import VERSION, Store
from outlive.data.workers import Workers
from outlive.run.config import Source
from outlive.run.errors import InputError, WorkError
from outlive.run.files import hash_json, place_folder, write_atomic
from outlive.run.notes import to_stderr
from outlive.run.sizes import counted
from outlive.text.fast_tokenizer import TokenizeWith, tokenize_with
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer

SIDES = ("train", "validation")
STATE = "state.json"
MIN_BYTES = 2 << 20  # of rows for each process: fewer are done about as soon as it has started
SAVE_SECONDS = 2.0  # between two states of an unfinished store: so much of the work may come again


@dataclass(frozen=True)
class Progress:
    """How far the preparation of a source is. `num_bytes` of `all_bytes` are read."""

    source: str
    num_rows: int
    num_tokens: int
    num_bytes: int
    all_bytes: int


def no_progress(progress: Progress) -> None:
    """Tell nobody."""


Mapper = Callable[[Recipe, Iterator[Chunk], Mapping[str, Path]], Iterator[Made]]


@dataclass(frozen=True)
class Preparer:
    """Everything that decides which tokens a row becomes, and who does the work.

    `processes`: how many make chunks; 1: this one does; None: as the size asks for. `elsewhere` makes them
    instead, where it is given. `tokenize_with`: what gives the ids, which are the same.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None
    policy: Policy
    columns: Mapping[str, Column]
    home: Path
    say: Callable[[str], None] = to_stderr
    progress: Callable[[Progress], None] = no_progress
    processes: int | None = 1
    elsewhere: Mapper | None = None
    tokenize_with: TokenizeWith = "tokenizers"

    def folders(self, source: Source, identity: str, share: float) -> dict[str, Path]:
        """The folders of the stores of one source, by side: a second one where a share is held out."""
        sides = SIDES if share else SIDES[:1]
        return {side: self.home / "stores" / self.key(source, identity, share, side) for side in sides}

    def key(self, source: Source, identity: str, share: float, side: str) -> str:
        """The store's name: a hash of all that its content depends on. `identity`: a hash of the source's rows."""
        template = self.template
        return hash_json(
            {
                "store_version": VERSION,
                "bytes": identity,
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
        files = resolve(source, self.say)
        folders = self.folders(source, files.identity, share)
        if not are_whole(folders.values()):
            with only_builder(list(folders.values()), self.say) as alone:
                if not are_whole(folders.values()):  # else another has built them meanwhile
                    self._remove_damaged(folders, files)
                    _Build(self, source, files, share, folders, alone).run()
        stores = {side: Store(folder) for side, folder in folders.items()}
        ledger = Ledger.from_json(stores["train"].manifest["ledger"])
        ledger.source = files.name  # the store may be made from the same bytes in another place
        return stores, ledger

    def _remove_damaged(self, folders: Mapping[str, Path], files: SourceFiles) -> None:
        for folder in folders.values():
            if os.path.lexists(folder) and (problem := damage(folder)):
                self.say(f"{problem.what} ({problem.where}): the store is built again from {files.name}")
                remove_damaged(folder)

    def about(self, identity: str) -> dict[str, Any]:
        """For the manifest: what the stores of a source were made with."""
        template = self.template
        return {
            "source_hash": identity,
            "tokenizer_hash": self.tokenizer.hash,
            "tokenizer": str(self.tokenizer.folder),
            "template_hash": template.hash if template else None,
            "template": template.source if template else None,
            "date": template.date if template and template.uses_date else None,
            "policy": vars(self.policy),
        }


@dataclass(frozen=True)
class _Build:
    """The building of one source's stores."""

    preparer: Preparer
    source: Source
    files: SourceFiles
    share: float
    folders: Mapping[str, Path]
    alone: bool

    def run(self) -> None:
        """Build them, or go on where an earlier attempt was stopped."""
        before = [_marks(path) for path in self.files.files]
        mine = self.preparer
        if mine.tokenize_with == "fastokens" or self.all_bytes > MIN_BYTES:  # its self-test takes a moment
            tokenize_with(mine.tokenizer, mine.tokenize_with, mine.say)
        with unfinished(self.folders["train"], self.alone) as folder, self._telling_what_stays(folder):
            recipe = self._recipe()
            fold = self._fold(folder, recipe)
            read = ReadCounts()
            rows = source_rows(self.files.files, read, self.source.limit, self.files.names)
            saved = float("-inf")  # the first chunk is there at once, for who reads while the rest is made
            with ExitStack() as stack:
                for made in self._made(recipe, fold, islice(chunks_of(rows), fold.num_chunks, None), stack):
                    fold.add(made)
                    if time.monotonic() - saved > SAVE_SECONDS:
                        _save_state(folder, {**fold.state, "names": self._names})
                        saved = time.monotonic()
                    self._show(fold, read)
            if [_marks(path) for path in self.files.files] != before or self._is_another():
                raise InputError("the data changed while it was read", where=self.files.name, fix="run again")
            fold.close(read, {**self.preparer.about(self.files.identity), **self.files.about})
            for side, final in self.folders.items():
                place_folder(folder / side, final, if_exists="keep")

    @contextmanager
    def _telling_what_stays(self, folder: Path) -> Iterator[None]:
        """Where the work fails or is interrupted, say how much of it the next start goes on from: an interruption has
        that as a note (PEP 678)."""
        try:
            yield
        except (WorkError, MemoryError, KeyboardInterrupt, SystemExit) as error:
            if self.alone and (rows := _saved_rows(folder)):
                kept = f"{counted(rows, 'row')} prepared so far, and kept: the next start goes on from there"
                if isinstance(error, WorkError):
                    error.fix = f"{error.fix}; {kept}" if error.fix else kept
                elif isinstance(error, MemoryError):
                    self.preparer.say(f"{self.files.name}: {kept}")
                else:
                    error.add_note(f"{self.files.name}: {kept}")
            raise

    def _is_another(self) -> bool:
        """Whether the rows are others than those that the stores are named after."""
        return resolve(self.source, lambda note: None).identity != self.files.identity

    def _recipe(self) -> Recipe:
        mine = self.preparer
        return Recipe(
            self.files.name,
            mine.tokenizer,
            mine.template,
            mine.policy,
            mine.columns,
            naming_of(self.source),
            self.share,
            self._names[0],
        )

    def _fold(self, folder: Path, recipe: Recipe) -> Fold:
        ledger = Ledger(self.files.name, format=self.source.format or "", format_reason="named by the run file")
        sides = dict.fromkeys(self.folders, self.preparer.columns)
        try:
            state = saved_state(folder)
            if state.get("names") != self._names:  # they are in the samples' ids
                raise Damaged("its rows were in files of other names")
            fold = Fold(folder, sides, ledger, recipe.reader.every_row, state)
            before = counted(fold.ledger.rows, "row")
            self.preparer.say(f"{self.files.name}: going on after the first {before}, prepared before")
            return fold
        except FileNotFoundError:
            pass
        except (Damaged, ValueError, KeyError, TypeError) as error:
            self.preparer.say(
                f"{self.files.name}: what was prepared before can't be gone on with ({error}): it begins anew"
            )
        clear(folder)
        return Fold(folder, sides, ledger, recipe.reader.every_row)

    def _made(self, recipe: Recipe, fold: Fold, chunks: Iterator[Chunk], stack: ExitStack) -> Iterator[Made]:
        """The chunks, made: here until a row has shown the format that all have; then wherever there are hands."""
        for chunk in chunks:
            if fold.ledger.format:
                known = (one._replace(format=fold.ledger.format) for one in chain([chunk], chunks))
                yield from self._mapped(recipe, known, stack)
                return
            yield recipe.make(chunk)

    def _mapped(self, recipe: Recipe, chunks: Iterator[Chunk], stack: ExitStack) -> Iterable[Made]:
        if self.preparer.elsewhere is not None:
            return self.preparer.elsewhere(recipe, chunks, self._paths())
        number = self.preparer.processes or min(available_processes(), self.all_bytes // MIN_BYTES)
        if number < 2:
            return map(recipe.make, chunks)
        return stack.enter_context(Workers(recipe, number)).map(chunks)

    def _paths(self) -> dict[str, Path]:
        """The files by their names in rows."""
        files = self.files.files
        return {"": files[0]} if len(files) == 1 else dict(zip(self._names, files, strict=True))

    @property
    def _names(self) -> list[str]:
        return self.files.names or file_names(self.files.files)

    def _show(self, fold: Fold, read: ReadCounts) -> None:
        done = Progress(self.files.name, fold.ledger.rows, fold.num_tokens, read.num_bytes, self.all_bytes)
        self.preparer.progress(done)

    @property
    def all_bytes(self) -> int:
        return sum(map(_size, self.files.files))


def naming_of(source: Source) -> Naming | None:
    """What the run file says about the names that a source's rows use; None where it says nothing."""
    return Naming(source.fields or {}, source.roles or {}) if source.fields or source.roles else None


def available_processes() -> int:
    """How many processes this one may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def are_whole(folders: Iterable[Path]) -> bool:
    """Whether all these stores are there, as they were written."""
    return all(is_there(folder) and damage(folder) is None for folder in folders)


def _size(path: Path) -> int:
    return path.stat().st_size


def _marks(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written to or replaced; None where it is gone."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns, about.st_ino


def _save_state(folder: Path, state: dict[str, Any]) -> None:
    write_atomic(folder / STATE, json.dumps({"hash": hash_json(state), "state": state}))


def saved_state(folder: Path) -> dict[str, Any]:
    """What was saved last of an unfinished store. Raises FileNotFoundError where nothing was, and Damaged."""
    try:
        saved = json.loads((folder / STATE).read_text(encoding="utf-8"))
        is_whole = hash_json(saved["state"]) == saved["hash"]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{STATE}: {type(error).__name__}: {error}") from None
    if not is_whole:
        raise Damaged(f"{STATE} is not as it was written")
    return dict(saved["state"])


def _saved_rows(folder: Path) -> int:
    """How many rows of an unfinished store the next builder need not prepare."""
    try:
        return int(saved_state(folder)["ledger"]["rows"])
    except (OSError, Damaged, KeyError, TypeError, ValueError):
        return 0


def clear(folder: Path) -> None:
    """Empty a folder."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
