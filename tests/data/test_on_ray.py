"""Promise: a Ray cluster makes the same store, byte for byte, as this process does."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from outlive.data import chunks as chunks_module
from outlive.data import on_ray
from outlive.data.chunks import Chunk, chunks_of
from outlive.data.on_ray import OnRay
from outlive.data.prepare import Prepared, chat_template, prepare
from outlive.data.reading import source_rows
from outlive.data.rows import ReadCounts, parsed
from outlive.run.config import Data, Source
from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer

BAD = ["no JSON", "", "[1]", '{"text": ""}', "   ", '{"text": "\\ud83d"}']


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Texts and what is none, a byte order mark, blank lines; small chunks."""
    monkeypatch.setattr(chunks_module, "CHUNK_BYTES", 600)
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"text": f"row number {number}, which says little"}) for number in range(120)]
    for number, bad in enumerate(BAD):
        lines.insert(20 * number + 5, bad)
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    return path


def _prepared(tokenizer: Tokenizer, path: Path, elsewhere: Any = None) -> Prepared:
    section = Data(train=[Source(path=str(path))], validation=0.2, bad_rows="drop", sequence_length=512, processes=1)
    return prepare(section, tokenizer, chat_template(section, tokenizer), elsewhere=elsewhere)


def test_a_chunk_is_the_same_by_its_place(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlive.data.rows.MAX_LINE", 2000)
    lines = rows.read_bytes().split(b"\r\n")
    rows.write_bytes(b"\r\n".join([*lines[:70], b'{"text": "' + b"x" * 5000 + b'"}', *lines[70:]]))
    chunks = list(chunks_of(source_rows([rows], ReadCounts())))
    assert len(chunks) > 8
    for chunk in chunks:
        reference = chunk.reference({"": rows})
        assert reference.path == rows
        again = reference.chunk()
        assert [repr(parsed(row)) for row in again.rows] == [repr(parsed(row)) for row in chunk.rows]
        assert (again.number, again.format) == (chunk.number, chunk.format)


def test_rows_without_a_place_go_along(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"text": f"row {number}"} for number in range(5)]))
    (chunk,) = chunks_of(source_rows([path], ReadCounts()))
    assert chunk.reference({"": path}).chunk() == Chunk(0, chunk.rows)


def test_ray_makes_the_same_store_and_prints_nothing_of_its_own(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    found, handler = [], signal.getsignal(signal.SIGTERM)
    for name, elsewhere in (("here", None), ("there", OnRay(2))):
        monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / name))
        both = _prepared(tokenizer, rows, elsewhere)
        found.append([store.manifest for side in both.sides for store in side.stores])
        for side in both.sides:
            side.stores[0].verify()
    assert found[0] == found[1]
    assert found[0][0]["ledger"]["kept"] == 120
    assert signal.getsignal(signal.SIGTERM) == handler
    told = capfd.readouterr()
    assert "core_worker" not in told.err + told.out, told


def test_without_ray_it_is_said_what_to_install(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    with pytest.raises(InputError, match="Ray Data can't be imported") as caught:
        _prepared(tokenizer, rows, OnRay())
    assert "outlive[ray]" in str(caught.value.fix)
    assert not list((tmp_path / "home" / "stores").glob("*.unfinished"))


def test_an_error_on_a_worker_is_the_error(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker sends it back as a value: what Ray makes of exceptions has neither their fix nor their place."""
    import pickle

    class Recipe:
        def make(self, chunk: Chunk) -> None:
            raise InputError("this stops all", where="x:1", fix="mend it")

    (chunk, *_) = chunks_of(source_rows([rows], ReadCounts()))
    monkeypatch.setattr(on_ray, "_recipe", lambda pickled: Recipe())
    made = pickle.loads(on_ray._make({"chunk": pickle.dumps(chunk.reference({"": rows}))}, b"")["made"])
    assert isinstance(made, InputError)
    assert (made.what, made.where, made.fix) == ("this stops all", "x:1", "mend it")
