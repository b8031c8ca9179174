"""Promise: one store per content, built once and right, whoever builds at the same time and whoever was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from outlive.data import building as building_module
from outlive.data.chunks import Made
from outlive.data.fold import Fold
from outlive.data.prepare import Prepared, chat_template, prepare
from outlive.data.store import Store
from outlive.run.config import Data, Source
from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer

# A builder that says what it does, and waits for a line in the middle of building.
BUILDER = """
import sys
from pathlib import Path
from outlive.data import prepare as module
from outlive.data import preparer
from outlive.run.config import Data, Source
from outlive.text.tokenizer import Tokenizer

def say(what): print(what, flush=True)

class Waiting(preparer.Fold):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        say("building")
        sys.stdin.readline()

preparer.Fold = Waiting
tokenizer = Tokenizer.load(Path(sys.argv[1]))
data = Data(train=[Source(path=sys.argv[2])], validation=0.2, sequence_length=64)
prepared = module.prepare(data, tokenizer, module.chat_template(data, tokenizer), say=say)
say(f"done {len(prepared.train.stores[0])} {prepared.train.stores[0].folder.name}")
"""


class Builder:
    """Another process that prepares the data."""

    def __init__(self, tokenizer: Path, rows: Path) -> None:
        command = [sys.executable, "-c", BUILDER, str(tokenizer), str(rows)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin: IO[str] = self.process.stdin
        self.stdout: IO[str] = self.process.stdout

    def line(self) -> str:
        return self.stdout.readline().strip()

    def go_on(self) -> None:
        self.stdin.write("\n")
        self.stdin.flush()

    def end(self) -> list[str]:
        return self.process.communicate()[0].splitlines()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tokenizer's folder; stores go to tmp_path/home."""
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    building_module._damage.cache_clear()
    return tiny_tokenizer(tmp_path / "tokenizer")


def prepared(folder: Path, rows: Path, said: list[str] | None = None, limit: int | None = None) -> Prepared:
    tokenizer = Tokenizer.load(folder)
    data = Data(train=[Source(path=str(rows), limit=limit)], validation=0.2, sequence_length=64)
    say: Callable[[str], None] = said.append if said is not None else lambda note: pytest.fail(note)
    return prepare(data, tokenizer, chat_template(data, tokenizer), say=say)


def stores(tmp_path: Path) -> list[str]:
    return sorted(entry.name for entry in (tmp_path / "home" / "stores").iterdir())


def test_the_second_of_two_builders_waits_says_so_once_and_finds_it_built(
    folder: Path, rows: Path, tmp_path: Path
) -> None:
    first = Builder(folder, rows)
    assert first.line() == "building"
    second = Builder(folder, rows)
    assert second.line() == "another process prepares the same data: waiting for it"
    first.go_on()
    (done,) = first.end()
    assert done.startswith("done ")
    assert second.end() == [done]
    both = prepared(folder, rows)
    assert stores(tmp_path) == sorted(store.folder.name for side in both.sides for store in side.stores)
    for side in both.sides:
        for store in side.stores:
            store.verify()
    assert sum(len(store) for side in both.sides for store in side.stores) == 60


def test_a_killed_builder_frees_the_waiting_one_which_clears_up(folder: Path, rows: Path, tmp_path: Path) -> None:
    """And leaves alone what builders of other stores have in the making."""
    first = Builder(folder, rows)
    assert first.line() == "building"
    others = tmp_path / "home" / "stores" / f".{'0' * 32}.{'1' * 16}.tmp"
    others.mkdir()
    assert len([name for name in stores(tmp_path) if name.endswith(".unfinished")]) == 1
    second = Builder(folder, rows)
    assert second.line().startswith("another process")
    first.process.kill()
    first.process.communicate()
    assert second.line() == "building"
    second.go_on()
    (done,) = second.end()
    assert done.startswith("done ")
    names = {store.folder.name for side in prepared(folder, rows).sides for store in side.stores}
    assert stores(tmp_path) == sorted([*names, others.name])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty_manifest(path: Path) -> None:
    path.with_name("manifest.json").write_text("{}")


def half_manifest(path: Path) -> None:
    manifest = path.with_name("manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": {"data-00000.arrow": "hash"}}))


DAMAGES = [cut, flip, Path.unlink, lambda path: path.write_bytes(b""), empty_manifest, half_manifest]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_built_again_and_said(
    folder: Path, rows: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    before = prepared(folder, rows)
    (store,), (held,) = (side.stores for side in before.sides)
    tokens = [store.tokens(index).tolist() for index in range(len(store))]
    kept = held.folder.stat().st_ino
    damage(store.folder / "data-00000.arrow")
    said: list[str] = []
    again = prepared(folder, rows, said)
    (note,) = said
    assert str(store.folder) in note
    assert f"built again from {rows}" in note
    assert [again.train.stores[0].tokens(index).tolist() for index in range(len(store))] == tokens
    again.train.stores[0].verify()
    assert held.folder.stat().st_ino == kept  # the other side was whole, and may be in use
    assert len(stores(tmp_path)) == 2
    prepared(folder, rows)


def test_a_store_without_its_manifest_was_never_finished(folder: Path, rows: Path) -> None:
    first = prepared(folder, rows).train.stores[0]
    (first.folder / "manifest.json").unlink()
    said: list[str] = []
    assert len(prepared(folder, rows, said).train.stores[0]) == len(first)
    assert len(said) == 1


@pytest.mark.parametrize("damage", [cut, Path.unlink, empty_manifest, half_manifest])
def test_a_damaged_store_can_not_be_opened(folder: Path, rows: Path, damage: Callable[[Path], None]) -> None:
    """Sizes are looked at whenever a store is opened; hashes once, before training."""
    store = prepared(folder, rows).train.stores[0]
    damage(store.folder / "data-00000.arrow")
    with pytest.raises(InputError) as caught:
        Store(store.folder)
    assert str(store.folder) in str(caught.value)


def test_files_are_hashed_once_in_a_process(folder: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(folder, rows)
    prepared(folder, rows)
    monkeypatch.setattr(Store, "verify", lambda store: pytest.fail("read again"))
    prepared(folder, rows)


def test_a_store_of_an_older_version_is_named_with_what_happens(folder: Path, rows: Path) -> None:
    store = prepared(folder, rows).train.stores[0]
    (store.folder / "manifest.json").write_text(json.dumps({**store.manifest, "store_version": 1}))
    with pytest.raises(InputError, match="version 1") as caught:
        Store(store.folder)
    assert "build a new store from the rows" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("limit", "how"),
    [(None, "another last row"), (3, "another last row"), (3, "another row"), (3, "same bytes written again")],
)
def test_a_file_that_changes_while_it_is_read_is_refused(
    folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, how: str
) -> None:
    add = Fold.add
    whole = rows.read_text()

    def change(fold: Fold, made: Made) -> None:
        add(fold, made)
        texts = {
            "another last row": whole + whole.splitlines()[0],
            "another row": whole.replace("Hello", "Hallo"),
            "same bytes written again": whole,  # perhaps after others, which were read
        }
        rows.write_text(texts[how])
        os.utime(rows, ns=(1, 1))

    monkeypatch.setattr(Fold, "add", change)
    with pytest.raises(InputError, match="changed while it was read"):
        prepared(folder, rows, limit=limit)
    assert stores(tmp_path) == []
