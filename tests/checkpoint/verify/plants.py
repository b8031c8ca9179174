"""Faults that other programs accept, planted in each format in which they can occur, and the kind that names each.

The page docs/verify.md has this list: `python tests/checkpoint/verify/plants.py` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.checkpoint.verify.planting import (
    UP,
    cut,
    cut_rows,
    cut_trainer,
    flip,
    gguf,
    gguf_text,
    lost,
    lost_rows,
    map,
    of_another,
    old_index,
    over,
    pickled,
    set,
    settings,
    tensors,
    tied,
    with_counts,
    with_nan,
    zero_half,
)
from tests.checkpoint.verify.small import BIN_INDEX, BINS, FILES, INDEX, RANKS, SINGLE

ADAPTER, ADAPTER_BIN, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_model.bin", "adapter_config.json"
Q_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
Q_B = Q_A.replace("lora_A", "lora_B")
EMBEDDINGS = "model.embed_tokens.weight"


class Fault(NamedTuple):
    """`make` gets the folder of a whole checkpoint in `format`. `name`: how people meet it."""

    format: str
    name: str
    make: Callable[[Path], Any]
    kind: str


_STATE = "state/shard-00001-model-00001-of-00001.safetensors"
FAULTS = [
    Fault("huggingface", "truncated", cut(SINGLE), "damaged_file"),
    Fault("huggingface", "one byte flipped, with hashes", flip(SINGLE, 1000, True), "other_hash"),
    Fault("huggingface", "second half zero (lost pages), with hashes", zero_half(SINGLE), "other_hash"),
    Fault("huggingface", "second half zero (lost pages)", zero_half(SINGLE, False), "zeroed"),
    Fault("huggingface", "stale index beside one file", old_index, "stale_index"),
    Fault("huggingface", "T1: first rank's pieces lost in consolidation", tensors(SINGLE, lost_rows), "zero_rows"),
    Fault("huggingface", "T2: last rank's pieces lost in consolidation", tensors(SINGLE, cut_rows), "expected_shape"),
    Fault("huggingface", "T12: tied by the config, values differ", tied, "tied_differ"),
    Fault("huggingface", "NaN", tensors(SINGLE, set("model.norm.weight", 3, np.nan)), "not_finite"),
    Fault("huggingface", "missing tensor", tensors(SINGLE, lambda t: t.pop(UP)), "expected_missing"),
    Fault("sharded", "shard of the index missing: the first", lost(FILES[0]), "missing_file"),
    Fault("sharded", "shard of the index missing: the last", lost(FILES[1]), "missing_file"),
    Fault("sharded", "keys absent from the index", lambda f: map(f, INDEX, lambda m: m.pop(UP)), "not_in_index"),
    Fault("sharded", "T15: a shard copied over another", over(FILES[0], FILES[1]), "missing_tensor"),
    Fault("sharded", "truncated", cut(FILES[1]), "damaged_file"),
    Fault("dcp", "truncated", cut("__0_0.distcp"), "damaged_file"),
    Fault("dcp", "one byte flipped", flip("__0_0.distcp", 3000), "other_checksum"),
    Fault("dcp", "one byte flipped, with hashes", flip("__0_0.distcp", 3000, True), "other_hash"),
    Fault("dcp", "data file missing", lost("__0_0.distcp"), "missing_file"),
    Fault("dcp", ".metadata missing", lost(".metadata"), "damaged_index"),
    Fault("dcp", ".metadata truncated", cut(".metadata"), "damaged_index"),
    Fault("dcp", "T12: tied by the config, values differ", tied, "tied_differ"),
    Fault("dcp", "file of another save", over("__0_0.distcp", "__1_0.distcp"), "extra_file"),
    Fault("dcp", "another config", settings("config.json", num_hidden_layers=2), "expected_missing"),
    Fault("dcp of 2 ranks", "first rank's file missing", lost("__0_0.distcp"), "missing_file"),
    Fault("dcp of 2 ranks", "last rank's file missing", lost("__1_0.distcp"), "missing_file"),
    Fault("dcp of 2 ranks", "T15: a rank's file copied over another's", over(
        "__0_0.distcp", "__1_0.distcp"), "same_files"),
    Fault("dcp safetensors", "T1: first rank's file missing", lost(RANKS[0]), "missing_file"),
    Fault("dcp safetensors", "T2: last rank's file missing", lost(RANKS[1]), "expected_shape"),
    Fault("dcp safetensors", "T15: a rank's file copied over another's", over(*RANKS), "same_files"),
    Fault("dcp safetensors", "T3: integer buffers", with_counts, "whole_numbers"),
    Fault("dcp safetensors", "NaN", with_nan, "not_finite"),
    Fault("dcp safetensors", "T12: tied by the config, values differ", tied, "tied_differ"),
    Fault("dcp safetensors", "truncated", cut(RANKS[1]), "damaged_file"),
    Fault("checkpoint", "state/: truncated", cut(_STATE), "damaged_file"),
    Fault("checkpoint", "state/: one byte flipped, with hashes", flip(_STATE, 9, True), "other_hash"),
    Fault("checkpoint", "state/: trainer.json damaged", cut_trainer, "damaged_state"),
    Fault("checkpoint", "model/: one byte flipped, with hashes", flip(f"model/{SINGLE}", 9, True), "other_hash"),
    Fault("bins", "shard of the index missing: the first", lost(BINS[0]), "missing_file"),
    Fault("bins", "shard of the index missing: the last", lost(BINS[1]), "missing_file"),
    Fault("bins", "truncated", cut(BINS[0]), "damaged_file"),
    Fault("bins", "one byte flipped", flip(BINS[0], 30_000), "other_checksum"),
    Fault("bins", "second half zero (lost pages)", lambda f: pickled(f, BINS[1], lambda t: [
        one.view(-1)[one.numel() // 3 :].zero_() for one in t.values()]), "zeroed"),
    Fault("bins", "keys absent from the index and the file", lambda f: (
        map(f, BIN_INDEX, lambda m: m.pop(UP)), pickled(f, BINS[1], lambda t: t.pop(UP, None)),
        pickled(f, BINS[0], lambda t: t.pop(UP, None))), "expected_missing"),
    Fault("bins", "T12: tied by the config, values differ", tied, "tied_differ"),
    Fault("bins", "T15: a shard copied over another", over(*BINS), "same_files"),
    Fault("bins", "NaN", lambda f:
         pickled(f, BINS[1], lambda t: t["model.norm.weight"].fill_(float("nan"))), "not_finite"),
    Fault("gguf", "truncated", cut("model.gguf"), "damaged_file"),
    Fault("gguf", "one byte flipped, with hashes", flip("model.gguf", 9, True), "other_hash"),
    Fault("gguf", "NaN", gguf("output_norm.weight", lambda n: n.__setitem__(3, np.nan)), "not_finite"),
    Fault("gguf", "pages of zeros", gguf("blk.0.ffn_up.weight", lambda n: n.reshape(-1)[7:2000].fill(0)), "zeroed"),
    Fault("gguf", "T1: rows of zeros in every matrix", lambda f: [
        gguf(f"blk.0.{one}.weight", lambda n: n[: len(n) // 2].fill(0))(f) for one in (
            "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")], "zero_rows"),
    Fault("gguf", "missing tensor", gguf_text(b"blk.0.ffn_up.weight", b"blk.9.ffn_up.weight"), "expected_missing"),
    Fault("gguf", "no rule of cutting texts", gguf_text(b"tokenizer.ggml.pre", b"tokenizer.ggml.prx"), "no_pre"),
    Fault("gguf", "no template", gguf_text(b"tokenizer.chat_template", b"tokenizer.chat_templatX"), "no_template"),
    Fault("gguf", "no end of turn", gguf_text(b"eos_token_id", b"eos_token_ix"), "eos_differs"),
    Fault("gguf", "no tokens", gguf_text(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenX"), "no_tokenizer"),
    Fault("gguf of 2 parts", "first part missing", lost("m-00001-of-00002.gguf"), "missing_file"),
    Fault("gguf of 2 parts", "last part missing", lost("m-00002-of-00002.gguf"), "missing_file"),
    Fault("gguf of 2 parts", "T15: a part copied over another", over(
        "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), "same_files"),
    Fault("adapter", "truncated", cut(ADAPTER), "damaged_file"),
    Fault("adapter", "one byte flipped, with hashes", flip(ADAPTER, 9, True), "other_hash"),
    Fault("adapter", "no weights", lost(ADAPTER), "no_weights"),
    Fault("adapter", "no config", lost(ADAPTER_CONFIG), "adapter_config"),
    Fault("adapter", "NaN", tensors(ADAPTER, set(Q_A, (0, 0), np.nan)), "not_finite"),
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
    Fault("adapter", "made for another base (hash)", of_another, "other_base"),
    Fault("adapter", "tokens added, embeddings not saved", tensors(
        ADAPTER, lambda t: t.update({f"base_model.model.{EMBEDDINGS}": np.ones((9, 48), np.float32)})), "vocabulary"),
    Fault("adapter .bin", "truncated", cut(ADAPTER_BIN), "damaged_file"),
    Fault("adapter .bin", "one byte flipped", flip(ADAPTER_BIN, 30_000), "other_checksum"),
    Fault("adapter .bin", "NaN", lambda f: pickled(
        f, ADAPTER_BIN, lambda t: t[Q_A].fill_(float("nan"))), "not_finite"),
    Fault("adapter .bin", "another rank in the config", settings(ADAPTER_CONFIG, r=8), "adapter_rank"),
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
