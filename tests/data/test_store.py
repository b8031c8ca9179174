"""The store: what goes in comes out, other tools read it, damage is seen."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outlive.data import store_writer
from outlive.data.building import damage
from outlive.data.record_batch import IGNORED, Column, SampleRows
from outlive.data.samples import Sample
from outlive.data.store import HASH, MANIFEST, Store, hash_of
from outlive.data.store_writer import StoreWriter
from outlive.run.errors import InputError
from tests.stores import random_samples, write_store


def test_what_goes_in_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several record batches and files, too."""
    monkeypatch.setattr(store_writer, "BATCH_TOKENS", 40)
    monkeypatch.setattr(store_writer, "FILE_TOKENS", 100)
    samples = random_samples(range(2, 40))
    columns = {"advantage": Column("token"), "score": Column("segment", "int64")}
    values = [[{"advantage": np.arange(len(s.tokens), dtype=np.float32), "score": n}] for n, s in enumerate(samples)]
    store = write_store(tmp_path / "s", [[sample] for sample in samples], columns, values)
    assert len(store.manifest["files"]) > 2
    assert len(store) == len(samples)
    for index, sample in enumerate(samples):
        assert np.array_equal(store.tokens(index), sample.tokens)
        assert np.array_equal(store.weights(index), sample.weights)
        assert store.value(index, "sample_id") == f"test:{index}:0"
        assert np.array_equal(store.value(index, "advantage"), np.arange(len(sample.tokens)))
        assert store.value(index, "score") == index
    store.verify()


def test_other_tools_read_the_right_labels(tmp_path: Path) -> None:
    """An Arrow stream whose labels are -100 where there is no target, unshifted, -100 first: as trainers expect it."""
    sample = Sample(np.array([5, 6, 7, 8], np.int32), np.array([0, 0, 1, 1], np.float32))
    folder = tmp_path / "s"
    folder.mkdir()
    writer = StoreWriter(folder)
    writer.add_row([sample], "f:0")
    writer.close({})
    with pa.memory_map(str(folder / "data-00000.arrow")) as file:
        table = pa.ipc.open_stream(file).read_all()
    assert table["labels"].to_pylist() == [[IGNORED, IGNORED, 7, 8]]
    assert table["input_ids"].to_pylist() == [[5, 6, 7, 8]]
    assert "weight" not in table.column_names
    assert Store(folder).weights(0).tolist() == [0, 0, 1, 1]


def test_a_column_of_weights_comes_with_the_first_real_weight(tmp_path: Path) -> None:
    """Earlier samples, of earlier record batches and files too, get the weights that their labels say."""
    samples = random_samples([7] * 40)
    plain = [sample._replace(weights=(sample.weights > 0.5).astype(np.float32)) for sample in samples[:30]]
    given = [*plain, *samples[30:]]
    writer = StoreWriter(tmp_path)
    for number, sample in enumerate(given):
        rows = SampleRows()
        rows.add([sample], f"f:{number}", number, [{}])
        writer.add(rows.batch({}))
    writer.close({})
    store = Store(tmp_path)
    store.verify()
    assert store.has_weights
    assert [store.weights(index).tolist() for index in range(40)] == [
        s.weights.tolist() for s in [*plain, *samples[30:]]
    ]
    assert store.whole_column("group").tolist() == list(range(40))
    assert store.manifest["num_targets"] == sum(int((s.weights > 0).sum()) for s in [*plain, *samples[30:]])


def test_a_damaged_file_is_seen(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [[sample] for sample in random_samples((9, 9))])
    path = store.folder / "data-00000.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        Store(store.folder).verify()


def test_another_version_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", [[sample] for sample in random_samples((9,))])
    manifest = json.loads((store.folder / "manifest.json").read_text())
    (store.folder / "manifest.json").write_text(json.dumps({**manifest, "store_version": 99}))
    with pytest.raises(InputError, match="version 99"):
        Store(store.folder)


def test_no_flipped_bit_of_a_manifest_passes(tmp_path: Path) -> None:
    """Counts, hashes, template and ledger are in no other file; white space alone may differ."""
    path = write_store(tmp_path / "s", [[sample] for sample in random_samples((9,))]).folder / MANIFEST
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            is_same = json.loads(bytes(changed)) == json.loads(whole)
        except ValueError:
            is_same = False
        assert (damage(path.parent) is None) == is_same, (place, bytes(changed[place - 20 : place + 20]))
    path.write_bytes(whole)
    assert damage(path.parent) is None


def test_no_flipped_bit_of_a_file_passes(tmp_path: Path) -> None:
    """Also in the header and the schema, which Arrow takes for other columns: opened or looked at, damage is said."""
    folder = write_store(tmp_path / "s", [[sample] for sample in random_samples((9,))]).folder
    path = folder / "data-00000.arrow"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        problem = damage(folder)
        assert problem is not None
        assert "damaged" in problem.what
        with contextlib.suppress(InputError):  # it reads no hashes, so that a change of a token passes
            Store(folder)


def without(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: {**manifest, "files": {}},
        lambda manifest: {**manifest, "template": "{{ another }}"},
        lambda manifest: without(manifest, "ledger"),
        lambda manifest: without(manifest, HASH),
        lambda manifest: without(manifest, "columns") | {"colums": {}},
        lambda manifest: (changed := without(manifest, "columns")) | {HASH: hash_of(changed)},
        lambda manifest: "[" * 100_000,
        lambda manifest: "{" + '"a": {' * 100_000,
    ],
)
def test_a_manifest_of_another_form_is_damage(tmp_path: Path, change: Any) -> None:
    path = write_store(tmp_path / "s", [[sample] for sample in random_samples((9,))]).folder / MANIFEST
    changed = change(json.loads(path.read_text()))
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    problem = damage(path.parent)
    assert problem is not None
    assert "damaged" in problem.what
    assert MANIFEST in str(problem.where)
