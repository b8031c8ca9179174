"""`make bench-convert`: our conversion of a model of 2 GB beside `cp` and save_pretrained, in one run.

    python benchmarks/convert.py [--rounds 5] [--layers 30] --base DIR [--folder DIR] [--out FILE]

Each arm is a process of its own, its start included. What an arm is compared with runs right beside it, before it in
one round and after it in the next, since memory that a machine has to get back makes whoever comes first slower; a
ratio is the median of the rounds' ratios. Sources are in the page cache. What is written is on the disk when an arm
ends: `cp` is followed by an fsync of its files, as each conversion does of its own, and save_pretrained too. Anonymous
memory is the largest RssAnon of the process, read every few milliseconds; the import of torch and transformers is a
part of save_pretrained's time, and the ratio without it is given too. Writes benchmarks/convert.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outlive.checkpoint.convert import convert
from outlive.checkpoint.formats.detect import open_checkpoint
from outlive.checkpoint.model_folder import write_model_folder
from outlive.checkpoint.tensors.tensor import Box, Tensor, extent

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "convert.md"
CONVERT = [sys.executable, "-m", "outlive.cli.main", "convert"]
SAVE = """
import sys, time
import torch
from transformers import AutoModelForCausalLM
start = time.perf_counter()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[3]))
model.save_pretrained(sys.argv[2])
print(time.perf_counter() - start)
"""
# name: source, options, what it is compared with
OURS = {
    "huggingface → huggingface": ("huggingface", ["--to", "huggingface"], "cp, huggingface"),
    "huggingface → dcp": ("huggingface", ["--to", "dcp"], "cp, huggingface"),
    "dcp → huggingface": ("dcp", ["--to", "huggingface"], "cp, dcp"),
    "dcp → dcp": ("dcp", ["--to", "dcp"], "cp, dcp"),
    "huggingface → gguf, fp32": ("huggingface", ["--to", "gguf", "--dtype", "fp32"], "cp, huggingface"),
    "huggingface → huggingface, bf16": ("huggingface", ["--to", "huggingface", "--dtype", "bf16"], "save_pretrained"),
    "huggingface → dcp, bf16": ("huggingface", ["--to", "dcp", "--dtype", "bf16"], "save_pretrained"),
    "huggingface → gguf, bf16": ("huggingface", ["--to", "gguf", "--dtype", "bf16"], "save_pretrained"),
    "huggingface → gguf, q8_0": ("huggingface", ["--to", "gguf", "--dtype", "q8_0"], "save_pretrained"),
}


class Drawn(Tensor):
    """Normal numbers of mean 0 and deviation 0.02, float32, drawn as they are asked for."""

    dtype = "float32"

    def __init__(self, shape: Sequence[int], seed: int) -> None:
        self.shape, self.seed = tuple(shape), seed

    def read(self, box: Box) -> Any:
        drawn = np.random.default_rng([self.seed, *(begin for begin, _ in box)])
        return drawn.standard_normal(extent(box), np.float32) * np.float32(0.02)


def make_sources(folder: Path, base: Path, layers: int) -> dict[str, Path]:
    """The same model of random weights as a Hugging Face folder and as a checkpoint of torch.distributed.checkpoint."""
    from outlive.checkpoint.families.table import family_of

    own = json.loads((base / "config.json").read_text(encoding="utf-8"))
    config = own | {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": layers, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 64,
    }  # fmt: skip
    expected = family_of(config).expected(config)
    tensors = {name: Drawn(shape, seed) for seed, (name, shape) in enumerate(expected.items())}
    write_model_folder(folder / "huggingface", tensors, config, sources=[base], about={}, dtype="fp32")
    convert(open_checkpoint(folder / "huggingface"), folder / "dcp", "dcp")
    return {"huggingface": folder / "huggingface", "dcp": folder / "dcp"}


def measured(command: Sequence[str]) -> dict[str, float]:
    """Seconds and largest anonymous memory (bytes) of a process; what it prints as a number is `inner`, seconds."""
    peak, start = 0, time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        peak = max(peak, anonymous(process.pid))
        time.sleep(0.003)
    seconds = time.perf_counter() - start
    said = process.stdout.read().split() if process.stdout else []
    if process.returncode:
        raise SystemExit(f"{command[:6]} ended with {process.returncode}")
    inner = {"inner": float(said[-1])} if said and said[-1].replace(".", "", 1).isdigit() else {}
    return {"seconds": seconds, "anonymous": peak, **inner}


def anonymous(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def flushed(target: Path) -> float:
    """Seconds until the files of a folder are on the disk."""
    start = time.perf_counter()
    for path in sorted(target.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return time.perf_counter() - start


Results = dict[str, dict[str, float]]


def one_round(sources: dict[str, Path], folder: Path, number: int) -> dict[str, tuple[Results, str]]:
    """By the name of each conversion: what it and its peer took, and the peer's name."""
    target, found = folder / "made", {}
    for name, (source, options, peer) in OURS.items():
        copied = sources["dcp" if peer == "cp, dcp" else "huggingface"]
        commands = {
            name: [*CONVERT, str(sources[source]), str(target), *options],
            peer: ["cp", "-r", str(copied), str(target)]
            if peer.startswith("cp")
            else [sys.executable, "-c", SAVE, str(copied), str(target), "bfloat16"],
        }
        pair: Results = {}
        for one in sorted(commands, key=lambda one: (one == name) == (number % 2 == 0)):
            os.sync()
            pair[one] = measured(commands[one])
            if one == peer:
                waited = flushed(target)
                pair[one] = {key: value + waited * (key != "anonymous") for key, value in pair[one].items()}
            shutil.rmtree(target)
            print(f"{one:34} {pair[one]['seconds']:6.2f} s  {pair[one]['anonymous'] / 1e6:6.0f} MB", flush=True)
        found[name] = (pair, peer)
    return found


def page(rounds: Sequence[dict[str, tuple[Results, str]]], size: int) -> str:
    lines = [
        "# Conversion, measured", "",
        f"`make bench-convert` on commit {commit()}, {os.cpu_count()} cores, {len(rounds)} rounds: a Llama model of "
        f"{size / 1e9:.2f} GB in float32, random weights, sources in the page cache, targets on the disk at the end. "
        "Each arm is a process with its start and has its peer right beside it; ratios are medians of the rounds' "
        "ratios, with the least and the largest.", "",
        "| conversion | seconds | anonymous MB | peer | its seconds | its MB | times as fast |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]  # fmt: skip
    for name in OURS:
        pairs = [found[name] for found in rounds]
        peer = pairs[0][1]
        seconds = [statistics.median(pair[one]["seconds"] for pair, _ in pairs) for one in (name, peer)]
        memory = [max(pair[one]["anonymous"] for pair, _ in pairs) / 1e6 for one in (name, peer)]
        ratios = [pair[peer]["seconds"] / pair[name]["seconds"] for pair, _ in pairs]
        times = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        if "inner" in pairs[0][0][peer]:
            inner = statistics.median(pair[peer]["inner"] / pair[name]["seconds"] for pair, _ in pairs)
            times += f"; without the peer's imports {inner:.2f}"
        lines.append(
            f"| {name} | {seconds[0]:.2f} | {memory[0]:.0f} | {peer} | {seconds[1]:.2f} | {memory[1]:.0f} | {times} |"
        )
    lines += [
        "", "`cp` is `cp -r` and an fsync of each file. Conversions also hash every file (xxh3-128), look for NaN and "
        "infinities, and fsync files and folders. save_pretrained is from_pretrained in bf16, save_pretrained and an "
        "fsync of each file; it hashes nothing.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True)
    return (found.stdout.strip() or "unknown") + (" with changes" if changed.stdout.strip() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="where the model is made; a temporary folder by default")
    parser.add_argument("--base", type=Path, required=True, help="a folder of SmolLM2, for config and tokenizer")
    parser.add_argument("--out", type=Path, default=PAGE)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = Path(made)
        sources = make_sources(folder, asked.base, asked.layers)
        size = sum(path.stat().st_size for path in sources["huggingface"].rglob("*.safetensors"))
        rounds = [one_round(sources, folder, number) for number in range(asked.rounds)]
    asked.out.write_text(page(rounds, size), encoding="utf-8")
    print(asked.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
