"""Faults that other programs accept, planted in each format in which they can occur, and the kind that names each.

The page docs/verify.md has this list: `python tests/checkpoint/verify/plants.py` prints it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.checkpoint.verify.small import BIN_INDEX, BINS, FILES, INDEX, RANKS, SINGLE

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
Q_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
Q_B = Q_A.replace("lora_A", "lora_B")
EMBEDDINGS, HEAD, UP = "model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.up_proj.weight"


class Fault(NamedTuple):
    """`make` gets the folder of a whole checkpoint in `format`. `name`: how people meet it."""

    format: str
    name: str
    make: Callable[[Path], Any]
    kind: str


def without_manifest(folder: Path) -> Path:
    """The folder as other programs write it: with no hashes."""
    (folder / "manifest.json").unlink(missing_ok=True)
    return folder


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def tensors(file: str, make: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the tensors of a safetensors file, whose manifest is gone."""

    def change(folder: Path) -> None:
        found = {name: one.copy() for name, one in load_file(without_manifest(folder) / file).items()}
        make(found)
        save_file(found, folder / file, {"format": "pt"})

    return change


def flip(file: str, from_end: int, with_hashes: bool = False) -> Callable[[Path], None]:
    """Flip a bit of a file."""

    def change(folder: Path) -> None:
        data = bytearray((folder / file).read_bytes())
        data[-from_end] ^= 16
        (folder / file).write_bytes(data)
        with_hashes or without_manifest(folder)

    return change


def cut(file: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (without_manifest(folder) / file).read_bytes()
        (folder / file).write_bytes(data[: 2 * len(data) // 3])

    return change


def zero_half(file: str, with_hashes: bool = True) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        with_hashes or without_manifest(folder)

    return change


def lost(file: str) -> Callable[[Path], None]:
    return lambda folder: (without_manifest(folder) / file).unlink()


def over(source: str, target: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copy(without_manifest(folder) / source, folder / target)


def settings(file: str, **changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(without_manifest(folder) / file, **changes)


def _lost_rows(found: dict[str, Any]) -> None:
    for tensor in found.values():
        tensor[: (len(tensor) + 1) // 2] = 0


def _cut_rows(found: dict[str, Any]) -> None:
    for name, tensor in found.items():
        found[name] = np.ascontiguousarray(tensor[: (len(tensor) + 1) // 2])


def _map(folder: Path, file: str, make: Callable[[dict[str, str]], Any]) -> None:
    content = json.loads((without_manifest(folder) / file).read_text())
    make(content["weight_map"])
    (folder / file).write_text(json.dumps(content))


def _set(name: str, place: Any, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda found: found[name].__setitem__(place, value)


def _old_index(folder: Path) -> None:
    (without_manifest(folder) / INDEX).write_text(json.dumps({"weight_map": {"a": FILES[0]}}))


def _tied(folder: Path) -> None:
    edit(without_manifest(folder) / "config.json", tie_word_embeddings=True)


def _with_counts(folder: Path) -> None:
    """A buffer of whole numbers in the file of the first rank."""
    _first_rank(folder, lambda t: t.update({"model.counts": np.ones(3, np.int64)}))


def _with_nan(folder: Path) -> None:
    _first_rank(folder, lambda t: t[UP].__setitem__((3, 3), np.nan))


def _first_rank(folder: Path, make: Callable[[dict[str, Any]], Any]) -> None:
    path = without_manifest(folder) / RANKS[0]
    with safe_open(path, "np") as file:
        about = file.metadata()
    found = load_file(path)
    make(found)
    begins = json.loads(about["DCP_SHARDING_INFO"]) | {"model.counts": {"saved_offsets": [0]}}
    save_file(found, path, about | {"DCP_SHARDING_INFO": json.dumps(begins)})


def _of_another(folder: Path) -> None:
    (without_manifest(folder) / "base.json").write_text(json.dumps({"model": "x", "content_hash": "0" * 32}))


def _cut_trainer(folder: Path) -> None:
    (without_manifest(folder) / "state" / "trainer.json").write_text("{")


def _pickled(folder: Path, file: str, make: Callable[[dict[str, Any]], Any]) -> None:
    import torch

    found = torch.load(without_manifest(folder) / file)
    make(found)
    torch.save(found, folder / file)


def _gguf(name: str, make: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change the numbers of a tensor where they lie in model.gguf."""

    def change(folder: Path) -> None:
        from outlive.checkpoint.formats.gguf import open_gguf

        path = without_manifest(folder) / "model.gguf"
        piece = open_gguf(path).tensors[name].pieces[0]  # type: ignore[attr-defined]
        shape = tuple(end - begin for begin, end in piece.box)
        numbers = np.memmap(path, np.float32, "r+", piece.offset, shape)
        make(numbers)
        numbers.flush()

    return change


def _gguf_text(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Change a text of the header for one of the same length."""

    def change(folder: Path) -> None:
        path = without_manifest(folder) / "model.gguf"
        data = path.read_bytes()
        assert len(old) == len(new)
        assert old in data
        path.write_bytes(data.replace(old, new, 1))

    return change


_STATE = "state/shard-00001-model-00001-of-00001.safetensors"
FAULTS = [
    Fault("huggingface", "truncated", cut(SINGLE), "damaged_file"),
    Fault("huggingface", "one byte flipped, with hashes", flip(SINGLE, 1000, True), "other_hash"),
    Fault("huggingface", "second half zero (lost pages), with hashes", zero_half(SINGLE), "other_hash"),
    Fault("huggingface", "second half zero (lost pages)", zero_half(SINGLE, False), "zeroed"),
    Fault("huggingface", "stale index beside one file", _old_index, "stale_index"),
    Fault("huggingface", "T1: first rank's pieces lost in consolidation", tensors(SINGLE, _lost_rows), "zero_rows"),
    Fault("huggingface", "T2: last rank's pieces lost in consolidation", tensors(SINGLE, _cut_rows), "expected_shape"),
    Fault("huggingface", "T12: tied by the config, values differ", _tied, "tied_differ"),
    Fault("huggingface", "NaN", tensors(SINGLE, _set("model.norm.weight", 3, np.nan)), "not_finite"),
    Fault("huggingface", "missing tensor", tensors(SINGLE, lambda t: t.pop(UP)), "expected_missing"),
    Fault("sharded", "shard of the index missing: the first", lost(FILES[0]), "missing_file"),
    Fault("sharded", "shard of the index missing: the last", lost(FILES[1]), "missing_file"),
    Fault("sharded", "keys absent from the index", lambda f: _map(f, INDEX, lambda m: m.pop(UP)), "not_in_index"),
    Fault("sharded", "T15: a shard copied over another", over(FILES[0], FILES[1]), "missing_tensor"),
    Fault("sharded", "truncated", cut(FILES[1]), "damaged_file"),
    Fault("dcp", "truncated", cut("__0_0.distcp"), "damaged_file"),
    Fault("dcp", "one byte flipped", flip("__0_0.distcp", 3000), "other_checksum"),
    Fault("dcp", "one byte flipped, with hashes", flip("__0_0.distcp", 3000, True), "other_hash"),
    Fault("dcp", "data file missing", lost("__0_0.distcp"), "missing_file"),
    Fault("dcp", ".metadata missing", lost(".metadata"), "damaged_index"),
    Fault("dcp", ".metadata truncated", cut(".metadata"), "damaged_index"),
    Fault("dcp", "T12: tied by the config, values differ", _tied, "tied_differ"),
    Fault("dcp", "file of another save", over("__0_0.distcp", "__1_0.distcp"), "extra_file"),
    Fault("dcp", "another config", settings("config.json", num_hidden_layers=2), "expected_missing"),
    Fault("dcp of 2 ranks", "first rank's file missing", lost("__0_0.distcp"), "missing_file"),
    Fault("dcp of 2 ranks", "last rank's file missing", lost("__1_0.distcp"), "missing_file"),
    Fault("dcp of 2 ranks", "T15: a rank's file copied over another's", over(
        "__0_0.distcp", "__1_0.distcp"), "same_files"),
    Fault("dcp safetensors", "T1: first rank's file missing", lost(RANKS[0]), "missing_file"),
    Fault("dcp safetensors", "T2: last rank's file missing", lost(RANKS[1]), "expected_shape"),
    Fault("dcp safetensors", "T15: a rank's file copied over another's", over(*RANKS), "same_files"),
    Fault("dcp safetensors", "T3: integer buffers", _with_counts, "whole_numbers"),
    Fault("dcp safetensors", "NaN", _with_nan, "not_finite"),
    Fault("dcp safetensors", "T12: tied by the config, values differ", _tied, "tied_differ"),
    Fault("dcp safetensors", "truncated", cut(RANKS[1]), "damaged_file"),
    Fault("checkpoint", "state/: truncated", cut(_STATE), "damaged_file"),
    Fault("checkpoint", "state/: one byte flipped, with hashes", flip(_STATE, 9, True), "other_hash"),
    Fault("checkpoint", "state/: trainer.json damaged", _cut_trainer, "damaged_state"),
    Fault("checkpoint", "model/: one byte flipped, with hashes", flip(f"model/{SINGLE}", 9, True), "other_hash"),
    Fault("bins", "shard of the index missing: the first", lost(BINS[0]), "missing_file"),
    Fault("bins", "shard of the index missing: the last", lost(BINS[1]), "missing_file"),
    Fault("bins", "truncated", cut(BINS[0]), "damaged_file"),
    Fault("bins", "one byte flipped", flip(BINS[0], 30_000), "other_checksum"),
    Fault("bins", "second half zero (lost pages)", lambda f: _pickled(f, BINS[1], lambda t: [
        one.view(-1)[one.numel() // 3 :].zero_() for one in t.values()]), "zeroed"),
    Fault("bins", "keys absent from the index and the file", lambda f: (
        _map(f, BIN_INDEX, lambda m: m.pop(UP)), _pickled(f, BINS[1], lambda t: t.pop(UP, None)),
        _pickled(f, BINS[0], lambda t: t.pop(UP, None))), "expected_missing"),
    Fault("bins", "T12: tied by the config, values differ", _tied, "tied_differ"),
    Fault("bins", "T15: a shard copied over another", over(*BINS), "same_files"),
    Fault("bins", "NaN", lambda f:
         _pickled(f, BINS[1], lambda t: t["model.norm.weight"].fill_(float("nan"))), "not_finite"),
    Fault("gguf", "truncated", cut("model.gguf"), "damaged_file"),
    Fault("gguf", "one byte flipped, with hashes", flip("model.gguf", 9, True), "other_hash"),
    Fault("gguf", "NaN", _gguf("output_norm.weight", lambda n: n.__setitem__(3, np.nan)), "not_finite"),
    Fault("gguf", "pages of zeros", _gguf("blk.0.ffn_up.weight", lambda n: n.reshape(-1)[7:2000].fill(0)), "zeroed"),
    Fault("gguf", "T1: rows of zeros in every matrix", lambda f: [
        _gguf(f"blk.0.{one}.weight", lambda n: n[: len(n) // 2].fill(0))(f) for one in (
            "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")], "zero_rows"),
    Fault("gguf", "missing tensor", _gguf_text(b"blk.0.ffn_up.weight", b"blk.9.ffn_up.weight"), "expected_missing"),
    Fault("gguf", "no rule of cutting texts", _gguf_text(b"tokenizer.ggml.pre", b"tokenizer.ggml.prx"), "no_pre"),
    Fault("gguf", "no template", _gguf_text(b"tokenizer.chat_template", b"tokenizer.chat_templatX"), "no_template"),
    Fault("gguf", "no end of turn", _gguf_text(b"eos_token_id", b"eos_token_ix"), "eos_differs"),
    Fault("gguf", "no tokens", _gguf_text(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenX"), "no_tokenizer"),
    Fault("gguf of 2 parts", "first part missing", lost("m-00001-of-00002.gguf"), "missing_file"),
    Fault("gguf of 2 parts", "last part missing", lost("m-00002-of-00002.gguf"), "missing_file"),
    Fault("gguf of 2 parts", "T15: a part copied over another", over(
        "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), "same_files"),
    Fault("adapter", "truncated", cut(ADAPTER), "damaged_file"),
    Fault("adapter", "one byte flipped, with hashes", flip(ADAPTER, 9, True), "other_hash"),
    Fault("adapter", "no weights", lost(ADAPTER), "no_weights"),
    Fault("adapter", "no config", lost(ADAPTER_CONFIG), "adapter_config"),
    Fault("adapter", "NaN", tensors(ADAPTER, _set(Q_A, (0, 0), np.nan)), "not_finite"),
    Fault("adapter", "A without B", tensors(ADAPTER, lambda t: t.pop(Q_B)), "adapter_tensors"),
    Fault("adapter", "empty tensors (ZeRO-3)", tensors(
        ADAPTER, lambda t: t.update({Q_A: np.zeros((0,), np.float32)})), "adapter_tensors"),
    Fault("adapter", "another rank in the config", settings(ADAPTER_CONFIG, r=8), "adapter_rank"),
    Fault("adapter", "DoRA without magnitudes", settings(ADAPTER_CONFIG, use_dora=True), "adapter_tensors"),
    Fault("adapter", "a module without tensors", settings(
        ADAPTER_CONFIG, target_modules=["q_proj", "down_proj", "v_proj"]), "adapter_targets"),
    Fault("adapter", "a module that is not adapted", settings(
        ADAPTER_CONFIG, target_modules=["q_proj"]), "adapter_targets"),
    Fault("adapter", "a whole module not saved", settings(
        ADAPTER_CONFIG, modules_to_save=["lm_head", "embed_tokens"]), "expected_missing"),
    Fault("adapter", "never trained", tensors(ADAPTER, lambda t: [
        one.fill(0) for name, one in t.items() if "lora_B" in name]), "untrained"),
    Fault("adapter", "made for another base (shapes)", tensors(
        ADAPTER, lambda t: t.update({Q_A: np.ones((4, 50), np.float32)})), "adapter_shape"),
    Fault("adapter", "made for another base (names)", tensors(ADAPTER, lambda t: [
        t.update({name.replace("layers.0", "layers.7"): t.pop(name)}) for name in (Q_A, Q_B)]), "other_base"),
    Fault("adapter", "made for another base (hash)", _of_another, "other_base"),
    Fault("adapter", "tokens added, embeddings not saved", tensors(
        ADAPTER, lambda t: t.update({f"base_model.model.{EMBEDDINGS}": np.ones((9, 48), np.float32)})), "vocabulary"),
]  # fmt: skip


def table() -> Iterator[str]:
    """The list, for the page, with those of `test_verify`."""
    from tests.checkpoint.verify.test_verify import SHARDED_FAULTS, SINGLE_FAULTS

    yield "| format | fault | named |"
    yield "|---|---|---|"
    for fault in FAULTS:
        yield f"| {fault.format} | {fault.name} | `{fault.kind}` |"
    for form, faults in (("huggingface", SINGLE_FAULTS), ("sharded", SHARDED_FAULTS)):
        for name, (_, kind) in faults.items():
            yield f"| {form} | {name} | `{kind}` |"


if __name__ == "__main__":
    print("\n".join(table()))
