"""Promise: the same store, byte for byte, from any number of processes and through any interruption; no row is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from outlive.data import chunks as chunks_module
from outlive.data import preparer as preparer_module
from outlive.data.chunks import Chunk, Made, Recipe
from outlive.data.fold import Fold
from outlive.data.prepare import Prepared, chat_template, prepare
from outlive.data.preparer import Progress
from outlive.data.rows import Row
from outlive.data.samples import Policy
from outlive.data.store import MANIFEST
from outlive.data.workers import Workers
from outlive.run.config import Data, Source
from outlive.run.errors import InputError, WorkError
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.data.making.conftest import NUM_ROWS


def data(path: Path, **settings: Any) -> Data:
    settings = {"validation": 0.2, "bad_rows": "drop", "sequence_length": 4096, **settings}
    return Data(train=[Source(path=str(path))], **settings)


def prepared(folder: Path, home: Path, section: Data, **options: Any) -> Prepared:
    os.environ["OUTLIVE_HOME"] = str(home)
    tokenizer = Tokenizer.load(folder)
    return prepare(section, tokenizer, chat_template(section, tokenizer), **options)


def contents(home: Path) -> dict[str, Any]:
    """Every store's manifest, which has the hashes of its files."""
    folders = sorted((home / "stores").iterdir())
    assert not [entry.name for entry in folders if entry.name.startswith(".") and not entry.name.endswith(".lock")]
    return {entry.name: json.loads((entry / MANIFEST).read_text()) for entry in folders if entry.name[0] != "."}


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", "")


def test_any_number_of_processes_makes_the_same_store(folder: Path, rows: Path, tmp_path: Path) -> None:
    found = []
    for number in (1, 2, 3):
        home = tmp_path / f"home{number}"
        both = prepared(folder, home, data(rows, processes=number))
        found.append(contents(home))
        (ledger,) = both.ledgers
        assert (ledger.rows, ledger.kept, ledger.bad) == (NUM_ROWS, NUM_ROWS - 5, 5)
        assert {lint["id"] for lint in ledger.lints} >= {"duplicate", "near_duplicate"}
        assert [example["line"] for example in ledger.examples] == sorted(e["line"] for e in ledger.examples)
        assert both.train.stores[0].has_weights
        for side in both.sides:
            side.stores[0].verify()
    assert found[0] == found[1] == found[2]


def test_this_process_takes_part_and_keeps_the_order(folder: Path) -> None:
    """Whoever makes a chunk, chunks come back in order, and the first that stops the work is the one that is told."""
    line = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    tokenizer = Tokenizer.load(folder)
    recipe = Recipe("rows", tokenizer, ChatTemplate.of(tokenizer), Policy(), {}, None, 0.0, "rows")
    chunks = [Chunk(number, [Row(number, number + 1, None, None, line)], "messages") for number in range(60)]
    here: list[int] = []

    class Here(Recipe):
        def make(self, chunk: Chunk) -> Made:
            here.append(chunk.number)
            return super().make(chunk)

        def __reduce__(self) -> tuple[Any, ...]:  # the other processes know no Here
            return Recipe, tuple(getattr(recipe, own.name) for own in fields(recipe))

    own = Here(*(getattr(recipe, own.name) for own in fields(recipe)))
    with Workers(own, 2) as workers:
        found = list(workers.map(chunks))
    assert [made.number for made in found] == list(range(60))
    assert [made.rows.tolist() for made in found] == [[number] for number in range(60)]
    assert here
    assert 0 not in here  # given out: the other process is not there to look on
    preference = b'{"prompt": "a", "chosen": "b", "rejected": "c"}'
    for number in (50, 30):
        chunks[number] = Chunk(number, [Row(number, number + 1, None, None, preference)], "preference")
    done: list[int] = []
    with Workers(own, 2) as workers, pytest.raises(InputError, match="pairs of a better and a worse answer"):
        done.extend(made.number for made in workers.map(chunks))
    assert done == list(range(30))


def test_chunks_do_not_change_what_a_row_becomes(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chunk or thirty: the same samples, groups, ledger and lints (record batches lie elsewhere in the files)."""
    found = []
    for size in (2000, 1 << 20):
        monkeypatch.setattr(chunks_module, "CHUNK_BYTES", size)
        both = prepared(folder, tmp_path / f"home{size}", data(rows, processes=1))
        stores = [side.stores[0] for side in both.sides]
        columns = [store.whole_column(name).tolist() for store in stores for name in ("group", "content_hash")]
        columns += [[store.value(index, "sample_id") for index in range(len(store))] for store in stores]
        tokens = [store.tokens(index).tolist() for store in stores for index in range(len(store))]
        weights = [store.weights(index).tolist() for store in stores for index in range(len(store))]
        found.append((columns, tokens, weights, both.ledgers[0].to_json()))
    assert found[0] == found[1]


class _Stop(BaseException):
    """As a kill: nothing may catch it."""


@pytest.mark.parametrize("after", [1, 7, 19])
def test_an_interrupted_preparation_goes_on_where_it_was(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    prepared(folder, tmp_path / "whole", data(rows, processes=1))
    made: list[int] = []
    make = Recipe.make

    def counted(recipe: Recipe, chunk: Chunk) -> Made:
        if len(made) == after:
            raise _Stop
        made.append(chunk.number)
        return make(recipe, chunk)

    home, said = tmp_path / "home", list[str]()
    monkeypatch.setattr(Recipe, "make", counted)
    with pytest.raises(_Stop):
        prepared(folder, home, data(rows, processes=1))
    monkeypatch.setattr(Recipe, "make", lambda recipe, chunk: made.append(chunk.number) or make(recipe, chunk))
    prepared(folder, home, data(rows, processes=1), say=said.append)
    assert len(said) == 1
    assert "going on after the" in said[0]
    assert made == sorted(set(made))  # no chunk was made twice
    assert contents(home) == contents(tmp_path / "whole")


def test_what_is_damaged_of_an_unfinished_store_is_made_anew(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(folder, tmp_path / "whole", data(rows, processes=1))
    add = Fold.add

    def stopping(fold: Fold, made: Made) -> None:
        add(fold, made)
        if made.number == 9:
            raise _Stop

    for number, name in enumerate(["train/data-00000.arrow", "earlier-rows", "state.json"]):
        home, said = tmp_path / f"home{number}", list[str]()
        monkeypatch.setattr(Fold, "add", stopping)
        with pytest.raises(_Stop):
            prepared(folder, home, data(rows, processes=1))
        (path,) = (home / "stores").glob(f".*.unfinished/{name}")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        monkeypatch.setattr(Fold, "add", add)
        prepared(folder, home, data(rows, processes=1), say=said.append)
        assert ["begins anew" in note for note in said] == [True]
        assert contents(home) == contents(tmp_path / "whole")


def test_rows_whose_file_was_renamed_meanwhile_have_one_name(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is in the samples' ids: what was prepared under another one is made anew."""
    add = Fold.add

    def stopping(fold: Fold, made: Made) -> None:
        add(fold, made)
        if made.number == 9:
            raise _Stop

    home, said, other = tmp_path / "home", list[str](), rows.with_name("other.jsonl")
    monkeypatch.setattr(Fold, "add", stopping)
    with pytest.raises(_Stop):
        prepared(folder, home, data(rows, processes=1))
    monkeypatch.setattr(Fold, "add", add)
    rows.rename(other)
    both = prepared(folder, home, data(other, processes=1), say=said.append)
    assert ["files of other names" in note for note in said] == [True]
    for side in both.sides:
        (store,) = side.stores
        assert {str(store.value(index, "sample_id")).split(":")[0] for index in range(len(store))} == {"other.jsonl"}


KILLED = """
import os, sys
from pathlib import Path
from outlive.data import chunks, preparer
from outlive.data.fold import Fold
chunks.CHUNK_BYTES = 2000
preparer.SAVE_SECONDS = -1.0
from outlive.data.prepare import chat_template, prepare
from outlive.run.config import Data, Source
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
add = Fold.add
def killed(fold, made):
    add(fold, made)
    if made.number == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
Fold.add = killed
section = Data(train=[Source(path=sys.argv[2])], validation=0.2, bad_rows="drop", sequence_length=4096, processes=2)
tokenizer = Tokenizer.load(sys.argv[1])
prepare(section, tokenizer, chat_template(section, tokenizer))
"""


def test_a_kill_loses_nothing_and_leaves_no_process(folder: Path, rows: Path, tmp_path: Path) -> None:
    prepared(folder, tmp_path / "whole", data(rows, processes=2))
    home = tmp_path / "home"
    env = os.environ | {"OUTLIVE_HOME": str(home)}
    for number in (3, 4, 11):
        command = [sys.executable, "-c", KILLED, str(folder), str(rows), str(number)]
        done = subprocess.run(command, env=env, capture_output=True, timeout=120)  # ends when its workers closed stderr
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    prepared(folder, home, data(rows, processes=2))
    assert contents(home) == contents(tmp_path / "whole")


def test_an_error_in_another_process_is_the_error_and_nothing_stays(folder: Path, rows: Path, tmp_path: Path) -> None:
    template = tmp_path / "endless.jinja"
    loops = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}"
    answer = "{{ messages[0].content }}{{ messages[-1].content }}<|im_end|>"
    template.write_text("{% if '!' in messages[-1].content %}" + loops + "{% endif %}" + answer)
    home = tmp_path / "home"
    with pytest.raises(InputError, match="stopped"):
        prepared(folder, home, data(rows, processes=2, chat_template=str(template)))
    assert [entry for entry in (home / "stores").iterdir() if not entry.name.endswith(".lock")] == []


def test_a_process_that_dies_is_an_error_that_says_what_to_do(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "dies" / "outlive_dies.py"
    worker.parent.mkdir()
    worker.write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setenv("PYTHONPATH", str(worker.parent))
    monkeypatch.setattr("outlive.data.workers.WORKER", "outlive_dies")
    with pytest.raises(WorkError, match="killed by signal 9") as caught:
        prepared(folder, tmp_path / "home", data(rows, processes=2))
    assert "data.processes=1" in str(caught.value.fix)


def test_files_of_one_source_are_read_in_their_order_as_one(folder: Path, rows: Path, tmp_path: Path) -> None:
    from outlive.data import sources

    lines = rows.read_text().splitlines(keepends=True)
    for name, part in (("a/x.jsonl", lines[:100]), ("b/x.jsonl", lines[100:])):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("".join(part))
    files = [tmp_path / "a/x.jsonl", tmp_path / "b/x.jsonl"]
    several = sources.SourceFiles("both", files, "1" * 32)
    whole = prepared(folder, tmp_path / "whole", data(rows, processes=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparer_module, "resolve", lambda source, say: several)
        both = prepared(folder, tmp_path / "home", data(rows, processes=2))
    one, other = whole.train.stores[0], both.train.stores[0]
    assert [one.tokens(index).tolist() for index in range(len(one))] == [
        other.tokens(i).tolist() for i in range(len(other))
    ]
    ids = [str(other.value(index, "sample_id")) for index in range(len(other))]
    assert ids[0].startswith("a/x.jsonl:")
    assert ids[-1] == "b/x.jsonl:" + str(one.value(len(one) - 1, "sample_id")).split(":", 1)[1]
    ledger, expected = both.ledgers[0], whole.ledgers[0]
    assert (ledger.rows, ledger.refused, ledger.lints) == (expected.rows, expected.refused, expected.lints)
    assert [example["file"] for example in ledger.examples] == ["a/x.jsonl"] * 2 + ["b/x.jsonl"] * 3


def test_progress_is_told(folder: Path, rows: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    prepared(folder, tmp_path / "home", data(rows, processes=1), progress=told.append)
    assert len(told) > 10
    assert told[-1].num_rows == NUM_ROWS
    assert told[-1].num_bytes == told[-1].all_bytes == rows.stat().st_size
    assert all(one.num_rows < other.num_rows for one, other in pairwise(told))


def test_a_recipe_is_the_same_in_another_process(folder: Path, rows: Path) -> None:
    import pickle

    from outlive.data.samples import Policy

    tokenizer = Tokenizer.load(folder)
    template = chat_template(data(rows), tokenizer)
    recipe = Recipe("rows", tokenizer, template, Policy(), {}, None, 0.0, "rows.jsonl")
    again: Recipe = pickle.loads(pickle.dumps(replace(recipe)))
    assert again.tokenizer.hash == tokenizer.hash
    assert again.template is not None
    assert template is not None
    assert again.template.hash == template.hash


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (WorkError("the disk is full", where="disk", fix="free some space"), True),
        (KeyboardInterrupt(), True),
        (SystemExit(143), True),
        (InputError("a row is wrong"), False),
        (AttributeError("our fault"), False),
    ],
)
def test_what_is_prepared_stays_where_the_input_is_not_to_blame(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, kept: bool
) -> None:
    """A full disk or a worker that was killed costs none of the work that was done, and the user is told so."""
    prepared(folder, tmp_path / "whole", data(rows, processes=1))
    add = Fold.add

    def failing(fold: Fold, made: Made) -> None:
        if made.number == 9:
            raise error
        add(fold, made)

    home, said = tmp_path / "home", list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(Fold, "add", failing)
        with pytest.raises(type(error)) as caught:
            prepared(folder, home, data(rows, processes=1), say=said.append)
    told = [*said, str(getattr(caught.value, "fix", "")), *getattr(caught.value, "__notes__", [])]
    assert any("prepared so far, and kept" in text for text in told) == kept
    assert bool(list((home / "stores").glob(".*.unfinished"))) == kept
    said.clear()
    prepared(folder, home, data(rows, processes=1), say=said.append)
    assert ["going on after the" in note for note in said] == [True] * kept
    assert contents(home) == contents(tmp_path / "whole")
