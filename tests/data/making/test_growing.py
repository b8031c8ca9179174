"""Promise: a store that is read while it is made holds, at any time, a beginning of the finished store and nothing
else; and who reads it learns how its making ended."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlive.data import growing as growing_module
from outlive.data.building import only_builder, unfinished_folder
from outlive.data.growing import Builder, GrowingStore, begin, end_growing, open_store
from outlive.data.plan import Layout, Mixture, make_plan
from outlive.data.prepare import chat_template, prepare, prepare_meanwhile
from outlive.data.preparer import Preparer, Progress
from outlive.data.samples import Policy
from outlive.data.sources import resolve
from outlive.data.store import Store
from outlive.run.config import Data, Source
from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.text.tokenizer import Tokenizer

MANY = 1000  # chunks: more than there are


class Gated:
    """In place of the process: a thread that prepares as many chunks as it is let."""

    def __init__(
        self, preparer: Preparer, source: Source, say: Callable[[str], None], progress: Callable[[Progress], None]
    ) -> None:
        self.say, self.progress = say, progress
        self._failure: OutliveError | None = None
        self.is_over = False
        self._may, self._did = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, args=(preparer, source), daemon=True)

    def _work(self, preparer: Preparer, source: Source) -> None:
        def pause(progress: Progress) -> None:
            self._did.release()
            self._may.acquire()

        try:
            replace(preparer, progress=pause).store_pair(source, 0.0)
        except OutliveError as error:
            self._failure = error
        self.is_over = True
        self._did.release()

    def make(self, chunks: int) -> None:
        """Make so many chunks more, or what is left; they are written when this returns."""
        for _ in range(chunks):
            if self.is_over:
                return
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._may.release()
            self._did.acquire()

    def finish(self) -> None:
        """Make all that is left."""
        self.make(MANY)
        self._thread.join()

    def error(self) -> OutliveError | None:
        return self._failure

    def end(self) -> None:
        pass


def section(path: Path, **settings: Any) -> Data:
    given = {"validation": None, "bad_rows": "drop", "sequence_length": 4096, "order": "windowed", "window": 20}
    return Data(train=[Source(path=str(path))], **{**given, "train_while_preparing": True, "processes": 1, **settings})


def preparer_of(folder: Path, home: Path, data: Data, said: Callable[[str], None] = lambda note: None) -> Preparer:
    tokenizer = Tokenizer.load(folder)
    policy = Policy(data.loss_on, data.turn_end, data.overlong, data.sequence_length, data.system)
    return Preparer(tokenizer, chat_template(data, tokenizer), policy, {}, home, say=said)


def whole_store(folder: Path, home: Path, data: Data, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("OUTLIVE_HOME", str(home))
    tokenizer = Tokenizer.load(folder)
    return prepare(data, tokenizer, chat_template(data, tokenizer)).train.stores[0]


def sample(store: Store, index: int) -> list[Any]:
    """All of a sample."""
    names = ("sample_id", "group", "content_hash")
    values = [store.value(index, name) for name in names]
    return [store.tokens(index).tolist(), store.weights(index).tolist(), *values]


@pytest.fixture
def gated(
    folder: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[GrowingStore, Gated]]:
    """A growing store whose builder makes what it is let make. (Chunks are of ten rows; each is saved.)"""
    monkeypatch.setattr(growing_module, "Builder", Gated)
    store = begin(preparer_of(folder, tmp_path / "home", section(rows)), section(rows).train[0])
    assert store is not None
    builder = store.builder
    assert isinstance(builder, Gated)
    yield store, builder
    builder.finish()


def test_at_any_time_it_is_a_beginning_of_the_finished_store(
    gated: tuple[GrowingStore, Gated],
    folder: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, builder = gated
    whole = whole_store(folder, tmp_path / "whole", section(rows), monkeypatch)
    assert not store.refresh()
    sizes, had_weights = [], set()
    while not store.is_whole:
        builder.make(1)
        while store.refresh():
            pass
        sizes.append(len(store))
        had_weights.add(store.has_weights)
        assert store.lengths.tolist() == whole.lengths[: len(store)].tolist()
        assert [sample(store, index) for index in range(len(store))] == [
            sample(whole, index) for index in range(len(store))
        ]
        assert store.manifest["num_tokens"] == int(store.lengths.sum())
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 10
    assert had_weights == {False, True}  # a column that comes late: the files are written anew on the way
    assert store.manifest == {**whole.manifest, "ledger": store.manifest["ledger"]}
    assert store.max_token() == whole.max_token()


def test_what_the_disk_has_garbled_is_not_taken_in(gated: tuple[GrowingStore, Gated]) -> None:
    store, builder = gated
    builder.make(3)
    assert store.refresh()
    before, path = len(store), unfinished_folder(store.folder) / "train" / "data-00000.arrow"
    builder.make(2)
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert not store.refresh()
    assert len(store) == before
    path.write_bytes(content)
    assert store.refresh()
    assert len(store) > before


def test_its_plan_is_the_beginning_of_the_whole_plan(
    gated: tuple[GrowingStore, Gated],
    folder: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, builder = gated
    layout = Layout(256, 2, window=20)
    whole = Mixture([whole_store(folder, tmp_path / "whole", section(rows), monkeypatch)], [1.0])
    expected = make_plan(whole, layout, 3, 0)
    numbers = []
    while not store.is_whole:
        builder.make(4)
        store.refresh()
        plan = make_plan(Mixture([store], [1.0]), layout, 3, 0)
        numbers.append(plan.num_packs)
        assert np.array_equal(plan.pack_start, expected.pack_start[: plan.num_packs + 1])
        for name in ("store", "sample", "start", "end", "part"):
            assert np.array_equal(getattr(plan, name), getattr(expected, name)[: len(getattr(plan, name))])
    assert numbers[-1] == expected.num_packs
    assert len(set(numbers)) > 3


def test_prepared_meanwhile_begins_with_a_window(
    folder: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Gated):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.make(4)

    monkeypatch.setattr(growing_module, "Builder", Slow)
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    tokenizer, said = Tokenizer.load(folder), list[str]()
    data = section(rows)
    found = prepare_meanwhile(data, tokenizer, chat_template(data, tokenizer), say=said.append)
    (store,) = found.train.stores
    assert isinstance(store, GrowingStore)
    assert open_store(store.folder) is store
    assert 20 <= len(store) < 100
    assert found.ledgers[0].rows == len(store)
    assert "training begins with the first" in said[-1]
    assert isinstance(store.builder, Slow)
    store.builder.finish()
    assert end_growing([store]) == [store]
    assert store.is_whole
    assert not isinstance(open_store(store.folder), GrowingStore)
    again = prepare_meanwhile(data, tokenizer, chat_template(data, tokenizer), say=said.append)
    assert not isinstance(again.train.stores[0], GrowingStore)


def test_a_failed_preparation_is_told(gated: tuple[GrowingStore, Gated], rows: Path) -> None:
    store, builder = gated
    builder.make(2)
    assert store.refresh()
    with rows.open("a") as file:
        file.write('{"text": "more"}\n')
    builder.finish()
    with pytest.raises(InputError, match="the data changed while it was read"):
        store.refresh()


@pytest.fixture
def waiting(
    folder: Path,
    rows: Path,
    tmp_path: Path,
) -> Iterator[tuple[GrowingStore, subprocess.Popen[bytes]]]:
    """A growing store whose builder, a real process, waits for another builder: it is in the middle for sure."""
    said = threading.Event()
    preparer = preparer_of(folder, tmp_path / "home", section(rows), lambda note: said.set())
    source = section(rows).train[0]
    final = preparer.folders(source, resolve(source, print).identity, 0.0)["train"]
    with only_builder([final], print):
        store = begin(preparer, source)
        assert store is not None
        assert said.wait(60)
        yield store, store.builder._process
    store.builder.end()


def test_a_killed_preparation_is_an_error(waiting: tuple[GrowingStore, subprocess.Popen[bytes]]) -> None:
    store, process = waiting
    assert not store.refresh()
    process.kill()
    with pytest.raises(WorkError, match="killed by signal 9") as caught:
        store.wait(lambda: False)
    assert "data.processes=1" in str(caught.value.fix)


def test_the_process_ends_with_the_one_that_started_it(
    waiting: tuple[GrowingStore, subprocess.Popen[bytes]],
) -> None:
    _, process = waiting
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does at its end, however it ends
    assert process.wait(60) == 0


def test_the_process_makes_the_store(folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whole_store(folder, tmp_path / "home1", section(rows), monkeypatch)
    source = section(rows).train[0]
    store = begin(preparer_of(folder, tmp_path / "home2", section(rows)), source)
    assert store is not None
    assert isinstance(store.builder, Builder)
    store.wait(lambda: False)
    assert store.is_whole
    assert len(store) == len(whole)
    assert store.folder.name == whole.folder.name
    end_growing([store])


def test_a_signal_to_the_whole_group_is_left_to_the_run(waiting: tuple[GrowingStore, subprocess.Popen[bytes]]) -> None:
    _, process = waiting
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        process.send_signal(number)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0  # its own end, not a signal's
