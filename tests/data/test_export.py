"""Exports: other tools read a store's tokens, labels and weights, in its order or a plan's; or they are refused."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlive.data import export_files, export_rows
from outlive.data.batch import make_batch, shifted
from outlive.data.export import EXPORTS, export
from outlive.data.export_rows import Outgoing
from outlive.data.plan import Layout, Mixture, make_plan
from outlive.data.record_batch import IGNORED, Column
from outlive.data.samples import Sample
from outlive.data.store import Store
from outlive.data.store_writer import StoreWriter
from outlive.run.errors import InputError
from outlive.run.files import hash_file
from outlive.text.tokenizer import Tokenizer
from tests.cli.bad import outcome, refused
from tests.fixtures import tiny_tokenizer
from tests.stores import random_samples, write_store

Rows = list[dict[str, Any]]
LENGTHS = [2 + (11 * place) % 29 for place in range(40)]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))


@pytest.fixture
def mixture(tmp_path: Path) -> Mixture:
    """Two stores, one with real weights and one with 0 and 1 alone."""
    real = write_store(tmp_path / "real", [[sample] for sample in random_samples(LENGTHS)])
    (tmp_path / "plain").mkdir()
    writer = StoreWriter(tmp_path / "plain")
    for number, sample in enumerate(random_samples(LENGTHS[:15], seed=1)):
        writer.add_row([sample._replace(weights=(sample.weights > 0).astype(np.float32))], f"plain:{number}")
    writer.close({"source": "plain", "source_hash": "", "ledger": {}})
    return Mixture([real, Store(tmp_path / "plain")], [1.0, 2.0])


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several record batches, and several files."""
    monkeypatch.setattr(export_rows, "BATCH_TOKENS", 60)
    monkeypatch.setattr(export_files, "FILE_TOKENS", 200)


def _arrow(folder: Path, side: str) -> Rows:
    rows: Rows = []
    for file in json.loads((folder / side / "state.json").read_text())["_data_files"]:
        with pa.memory_map(str(folder / side / file["filename"])) as source:
            rows += pa.ipc.open_stream(source).read_all().to_pylist()
    return rows


def _hugging_face(folder: Path, side: str) -> Rows:
    datasets = pytest.importorskip("datasets")
    both = datasets.load_from_disk(str(folder))
    alone = datasets.load_from_disk(str(folder / side))
    rows = alone.to_list()
    assert both[side].to_list() == rows
    assert alone.features == both[side].features == datasets.Features.from_arrow_schema(alone.data.schema)
    return rows


def _parquet(folder: Path, side: str) -> Rows:
    return pq.read_table(folder / f"{side}.parquet").to_pylist()


def _jsonl(folder: Path, side: str) -> Rows:
    rows = [json.loads(line) for line in (folder / f"{side}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{**row, "weight": row["weights"]} for row in rows]


def _megatron(folder: Path, side: str) -> Rows:
    """Read from the description of the format alone."""
    index = (folder / f"{side}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, num_sequences, num_bounds = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    dtype = {4: np.dtype("<i4"), 8: np.dtype("<u2")}[code]
    place = 9 + 8 + 1 + 8 + 8
    lengths = np.frombuffer(index, "<i4", num_sequences, place)
    places = np.frombuffer(index, "<i8", num_sequences, place + 4 * num_sequences)
    bounds = np.frombuffer(index, "<i8", num_bounds, place + 12 * num_sequences)
    assert place + 12 * num_sequences + 8 * num_bounds == len(index)
    assert bounds.tolist() == list(range(num_sequences + 1))  # one document a sequence, the first 0, the last S
    bin_ = (folder / f"{side}.bin").read_bytes()
    mask = np.fromfile(folder / f"{side}.mask", np.uint8)
    real = folder / f"{side}.weight"
    weights = np.fromfile(real, "<f4") if real.exists() else mask.astype(np.float32)
    assert len(mask) == len(weights) == len(bin_) // dtype.itemsize == lengths.sum()
    assert np.array_equal(mask, weights > 0)
    rows = []
    for begin, length in zip(places.tolist(), lengths.tolist(), strict=True):
        tokens = np.frombuffer(bin_, dtype, length, begin).astype(np.int64)
        cut = slice(begin // dtype.itemsize, begin // dtype.itemsize + length)
        labels = np.where(mask[cut] == 1, tokens, IGNORED)
        rows.append({"input_ids": tokens.tolist(), "labels": labels.tolist(), "weight": weights[cut].tolist()})
    return rows


READERS: dict[str, tuple[str, Callable[[Path, str], Rows]]] = {
    "arrow": ("hf", _arrow),
    "datasets": ("hf", _hugging_face),
    "parquet": ("parquet", _parquet),
    "jsonl": ("jsonl", _jsonl),
    "megatron": ("megatron", _megatron),
}
each_reader = pytest.mark.parametrize(("form", "read"), READERS.values(), ids=READERS)


def _is(row: dict[str, Any], tokens: Any, weights: Any) -> bool:
    labels = np.where(weights > 0, tokens, IGNORED)
    return (
        row["input_ids"] == tokens.tolist()
        and row["labels"] == labels.tolist()
        and np.array_equal(np.array(row["weight"], np.float32), weights)
    )


@each_reader
def test_the_samples_of_the_stores(
    form: str, read: Callable[[Path, str], Rows], mixture: Mixture, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Each once, in their order: tokens, labels and real weights."""
    manifest = export(form, {"train": Outgoing(mixture)}, tmp_path / "out", tokenizer, {})
    rows = read(tmp_path / "out", "train")
    stored = [(store, index) for store in mixture.stores for index in range(len(store))]
    assert len(rows) == len(stored)
    for row, (store, index) in zip(rows, stored, strict=True):
        assert _is(row, store.tokens(index), store.weights(index))
        assert row.get("sample_id", store.value(index, "sample_id")) == store.value(index, "sample_id")
    counts = manifest["sides"]["train"]
    assert counts["samples"] == counts["rows"] == len(stored)
    for key in ("tokens", "targets"):
        assert counts[key] == sum(store.manifest[f"num_{key}"] for store in mixture.stores)


@each_reader
@pytest.mark.parametrize("packing", ["best_fit", "concatenate"])
def test_the_order_of_the_plan(
    packing: Any, form: str, read: Callable[[Path, str], Rows], mixture: Mixture, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Packs, or their segments, are what the loop trains: the targets of each position, and positions that restart."""
    plan = make_plan(mixture, Layout(32, 4, packing), seed=3, epoch=0)
    export(form, {"train": Outgoing(mixture, plan)}, tmp_path / "out", tokenizer, {})
    rows = read(tmp_path / "out", "train")
    batches = [make_batch(plan, mixture, [pack]) for pack in range(plan.num_packs)]
    packed = EXPORTS[form].row_of_plan == "pack"
    assert len(rows) == (len(batches) if packed else len(plan.store))
    ends = iter(rows)
    for pack, batch in enumerate(batches):
        segments = [slice(s.start, s.end) for s in batch.segments]
        if packed:
            row = next(ends)
            assert row["position_ids"] == batch.positions.tolist()
            assert row["seq_lengths"] == [s.stop - s.start for s in segments]
            assert row["sample_id"] == [s.sample_id for s in batch.segments]
            assert row["part"] == [s.part for s in batch.segments]
            got = {name: np.array(row[name]) for name in ("input_ids", "labels", "weight")}
        else:
            several = [next(ends) for _ in segments]
            assert {row.get("pack", pack) for row in several} == {pack}
            got = {name: np.concatenate([row[name] for row in several]) for name in ("input_ids", "labels", "weight")}
        for cut in segments:
            assert np.array_equal(got["input_ids"][cut], batch.tokens[cut])
            assert got["labels"][cut][0] == IGNORED
            assert np.array_equal(shifted(got["weight"][cut].astype(np.float32)), batch.target_weight[cut])
            targets = np.where(batch.target_weight[cut] > 0, batch.target_ids[cut], IGNORED)
            assert np.array_equal(np.append(got["labels"][cut][1:], IGNORED), targets)


def test_memory_is_bounded(mixture: Mixture, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """No record batch and no row group holds more than the bound and one row; files end, too."""
    longest = max(LENGTHS)
    export("parquet", {"train": Outgoing(mixture)}, tmp_path / "parquet", tokenizer, {})
    file = pq.ParquetFile(tmp_path / "parquet" / "train.parquet")
    groups = [file.read_row_group(number)["input_ids"] for number in range(file.num_row_groups)]
    assert len(groups) > 5
    assert all(sum(map(len, group.to_pylist())) < 60 + longest for group in groups)
    export("hf", {"train": Outgoing(mixture)}, tmp_path / "hf", tokenizer, {})
    files = sorted((tmp_path / "hf" / "train").glob("data-*.arrow"))
    assert len(files) > 2
    assert files[0].name == f"data-00000-of-{len(files):05d}.arrow"
    for path in files:
        sizes = [len(batch["input_ids"].values) for batch in pa.ipc.open_stream(path.read_bytes())]
        assert max(sizes) < 60 + longest
        assert sum(sizes[:-1]) < 200


def _pairs(folder: Path, number: int, shared: bool = False) -> Store:
    """Two pairs, each with a column of tokens and one of the group; `shared`: the answers go on from a prompt."""
    columns = {"seen": Column("token"), "margin": Column("group")}
    rows, values = [], []
    for pair in range(2):
        samples = [
            sample._replace(role=role, part=part, prefix=0 if shared and part else -1)
            for part, (role, sample) in enumerate(
                zip(("prefix", "chosen", "rejected"), random_samples((5, 7, 9), number + pair), strict=True)
            )
        ][0 if shared else 1 :]
        rows.append(samples)
        values.append([{"seen": s.weights * 2, "margin": 0.1 + pair} for s in samples])
    return write_store(folder, rows, columns, values)


@pytest.mark.parametrize("name", ["arrow", "parquet", "jsonl"])
def test_groups_and_columns_stay(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """With numbers of groups that are one store's alone."""
    form, read = READERS[name]
    stores = [_pairs(tmp_path / "a", 0, shared=True), _pairs(tmp_path / "b", 5, shared=True)]
    export(form, {"train": Outgoing(Mixture(stores, [1.0, 1.0]))}, tmp_path / "out", tokenizer, {})
    rows = read(tmp_path / "out", "train")
    assert [row["group"] for row in rows] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert [row["role"] for row in rows] == ["prefix", "chosen", "rejected"] * 4
    assert [row["prefix"] for row in rows] == [-1, 0, 0] * 4
    for place, row in enumerate(rows):
        store, index = stores[place // 6], place % 6
        assert np.array_equal(np.array(row["seen"], np.float32), store.value(index, "seen"))
        assert np.float32(row["margin"]) == np.float32(store.value(index, "margin"))


@pytest.mark.parametrize("name", ["arrow", "parquet"])
def test_groups_and_columns_stay_in_packs(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    form, read = READERS[name]
    mixture = Mixture([_pairs(tmp_path / "a", 0)], [1.0])
    plan = make_plan(mixture, Layout(40, 1), seed=0, epoch=0)
    export(form, {"train": Outgoing(mixture, plan)}, tmp_path / "out", tokenizer, {})
    (row,) = read(tmp_path / "out", "train")
    batch = make_batch(plan, mixture, [0])
    assert row["role"] == [segment.role for segment in batch.segments] == ["chosen", "rejected"] * 2
    assert row["group"][0] == row["group"][1] != row["group"][2] == row["group"][3]
    assert row["margin"][::2] == batch.columns["margin"].tolist()
    assert np.concatenate([row["seen"][1:7], [0]]).tolist() == batch.columns["seen"][:7].tolist()


def test_what_a_format_has_no_place_for_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """By name; and nothing is left."""
    pairs = [[s._replace(role="chosen"), s._replace(role="rejected", part=1)] for s in random_samples((5, 7))]
    grouped = Mixture([write_store(tmp_path / "g", pairs)], [1.0])
    columns = Mixture([_pairs(tmp_path / "c", 0)], [1.0])
    shared = Mixture([_pairs(tmp_path / "s", 0, shared=True)], [1.0])
    plan = make_plan(shared, Layout(64, 1), seed=0, epoch=0)
    taken = write_store(tmp_path / "t", [random_samples((4,))], {"role_": Column("segment")}, [[{"role_": 1.0}]])
    taken.columns = {"labels": Column("token")}
    infinite = write_store(tmp_path / "i", [random_samples((4,))], {"m": Column("segment")}, [[{"m": np.inf}]])
    for form, outgoing, said in [
        ("megatron", Outgoing(grouped), "no place for samples that belong together"),
        ("megatron", Outgoing(columns), "columns of a method: `seen`"),
        ("hf", Outgoing(shared, plan), "shared prompt"),
        ("parquet", Outgoing(shared, plan), "shared prompt"),
        ("parquet", Outgoing(Mixture([taken], [1.0])), "column `labels` of its own"),
        ("jsonl", Outgoing(Mixture([taken], [1.0])), "column `labels` of its own"),
        ("jsonl", Outgoing(Mixture([infinite], [1.0])), "no infinities, and column `m`"),
    ]:
        with pytest.raises(InputError, match=said) as error:
            export(form, {"train": outgoing}, tmp_path / "out" / form, tokenizer, {})
        assert error.value.fix
        assert not list((tmp_path / "out").iterdir())


@each_reader
def test_no_sample_at_all(form: str, read: Callable[[Path, str], Rows], tokenizer: Tokenizer, tmp_path: Path) -> None:
    """An export of nothing is one that other tools open."""
    mixture = Mixture([write_store(tmp_path / "s", [])], [1.0])
    plan = make_plan(mixture, Layout(8, 1), seed=0, epoch=0)
    for number, outgoing in enumerate((Outgoing(mixture), Outgoing(mixture, plan))):
        export(form, {"train": outgoing}, tmp_path / f"out{number}", tokenizer, {})
        assert read(tmp_path / f"out{number}", "train") == []


@pytest.mark.parametrize(("largest", "code"), [(65_498, 8), (65_499, 4), (151_935, 4), (2**31 - 1, 4)])
def test_large_ids(largest: int, code: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Megatron's two bytes a token hold a vocabulary below 65,500; no id is ever cut."""
    sample = Sample(np.array([1, largest, 2], np.int32), np.array([0, 1, 0], np.float32))
    outgoing = Outgoing(Mixture([write_store(tmp_path / "s", [[sample]])], [1.0]))
    export("megatron", {"train": outgoing}, tmp_path / "out", tokenizer, {})
    assert (tmp_path / "out" / "train.idx").read_bytes()[17] == code
    (row,) = _megatron(tmp_path / "out", "train")
    assert row["input_ids"] == [1, largest, 2]
    about = json.loads((tmp_path / "out" / "train.json").read_text())
    assert about["dtype"] == {8: "uint16", 4: "int32"}[code]
    assert (about["documents"], about["tokens"], about["targets"]) == (1, 3, 1)
    assert about["tokenizer_hash"] == tokenizer.hash
    for name, file in about["files"].items():
        assert hash_file(tmp_path / "out" / name) == file["xxh3_128"]


def test_megatrons_own_reader(mixture: Mixture, tokenizer: Tokenizer, tmp_path: Path) -> None:
    module = pytest.importorskip("megatron.core.datasets.indexed_dataset", exc_type=ImportError)
    export("megatron", {"train": Outgoing(mixture)}, tmp_path / "out", tokenizer, {})
    read = module.IndexedDataset(str(tmp_path / "out" / "train"))
    stored = [(store, index) for store in mixture.stores for index in range(len(store))]
    assert len(read) == len(stored)
    assert read.document_indices.tolist() == list(range(len(stored) + 1))
    for place, (store, index) in enumerate(stored):
        assert np.array_equal(read[place], store.tokens(index))


_KILLED = """
import os, sys
from pathlib import Path
from outlive.data.export_building import building_alone
with building_alone(Path(sys.argv[1])) as folder:
    (folder / "train.jsonl").write_text("half")
    print("half", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_export_left_is_removed_by_the_next_of_its_name(
    mixture: Mixture, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    place, other = tmp_path / "out", f".out.{'0' * 16}.tmp"
    (tmp_path / other).mkdir()  # somebody else's: it may be at work
    command = [sys.executable, "-c", _KILLED, str(place)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"half\n"
    with pytest.raises(InputError, match="another process writes this export"):
        export("jsonl", {"train": Outgoing(mixture)}, place, tokenizer, {})
    process.communicate()
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(".out.")]) == 3
    export("jsonl", {"train": Outgoing(mixture)}, place, tokenizer, {})
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out.")] == [other]


def test_the_manifest_has_every_file(mixture: Mixture, tokenizer: Tokenizer, tmp_path: Path) -> None:
    for form in EXPORTS:
        folder = tmp_path / form
        sides = {"train": Outgoing(mixture), "validation": Outgoing(mixture)}
        manifest = export(form, sides, folder, tokenizer, {"run": "r"})
        assert json.loads((folder / "manifest.json").read_text()) == manifest
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert set(manifest["files"]) == files - {"manifest.json"}
        for name, about in manifest["files"].items():
            assert (hash_file(folder / name), (folder / name).stat().st_size) == (about["xxh3_128"], about["size"])
        assert [source["weight"] for source in manifest["sides"]["train"]["sources"]] == [1.0, 2.0]


@pytest.fixture
def here(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that prepares a run of 60 chats, in an empty folder."""
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_tokenizer(tmp_path / "model")
    return ["prepare", "--model", "model", "--data", str(rows), "data.sequence_length=128", "batch.tokens=256"]


@pytest.mark.parametrize("order", ["store", "plan"])
def test_the_command(order: str, here: list[str]) -> None:
    """Both sides, in every format; the text is what the tokens say."""
    for form in EXPORTS:
        done = outcome(
            [*here, "data.validation=0.2", "--export", form, "--to", f"out/{form}", "--order", order, "--json"]
        )
        result = json.loads(done.stdout)
        assert result["export"]["folder"] == f"out/{form}"
        assert result["export"]["order"] == order
        for side in ("train", "validation"):
            counts = result["export"]["sides"][side]
            if order == "plan":  # what it counts are visits
                assert "samples" not in counts
                counts["samples"] = counts.pop("segments")
            for key in ("samples", "tokens", "targets"):
                assert counts[key] == sum(store[f"num_{key}"] for store in result[side])
            assert counts["samples"] > 0
        if order == "plan" and EXPORTS[form].row_of_plan == "pack":
            assert result["export"]["sides"]["train"]["rows"] == result["plan"]["packs"]
    line = json.loads(Path("out/jsonl/train.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert line["text"] == Tokenizer.load("model").decode(line["input_ids"])
    assert set(line["weights"]) == {0, 1}


def test_the_command_refuses(here: list[str]) -> None:
    """Before any work: no store is made."""
    Path("there").mkdir()
    for arguments, said in [
        (["--export", "hf", "--to", "there"], "there"),
        (["--export", "parqet", "--to", "out"], "parquet"),
        (["--export", "hf", "--to", "out", "--order", "random"], "store, plan"),
        (["--export", "hf"], "--to FOLDER"),
        (["--to", "out"], "--export hf"),
        (["--order", "plan"], "--export hf"),
    ]:
        refused([*here, *arguments], said)
        assert not Path("home").exists()
        assert not Path("out").exists()
    assert not list(Path("there").iterdir())


def test_weights_of_sources_are_said_to_count_in_a_plan_alone(here: list[str]) -> None:
    done = outcome([*here, "data.train.0.weight=2", "--export", "jsonl", "--to", "out"])
    assert "note: each sample is exported once" in done.stderr


def test_the_page_lists_what_there_is(mixture: Mixture) -> None:
    """Each format with what a row of it is, each column, each file."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    for name, form in EXPORTS.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert line.split("|")[4].split(",")[0].strip() == f"a {form.row_of_plan}"
    plan = make_plan(mixture, Layout(32, 4), seed=0, epoch=0)
    for outgoing in (Outgoing(mixture), Outgoing(mixture, plan)):
        assert [name for name in export_rows.arrow_schema(outgoing).names if f"`{name}`" not in page] == []
