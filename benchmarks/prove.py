"""`make prove`: what takes too long for every change. Writes docs/measured.md, with the commit it was measured on.

    python benchmarks/prove.py [--only PART]...

Times are of one machine and one day: read ratios. Each part runs alone, one after the other, and renews its own section
of the page; the others stay.
"""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.page import renewed  # noqa: E402

PAGE = ROOT / "docs" / "measured.md"
SEEDS = (0, 1, 2)


def quickstart() -> list[str]:
    """Three seeds of the quickstart, and the keyword baseline on the same rows."""
    lines = ["| seed | exact match before | after | training | whole |", "|---|---|---|---|---|"]
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as runs:
            started = time.perf_counter()
            printed = run("examples/quickstart/quickstart.py", f"seed={seed}", "--runs", runs)
            whole = time.perf_counter() - started
        before, after = re.findall(r"exact match: before (.*\]) → after (.*\])", printed)[0]
        seconds = re.findall(r"targets\) in (\d+) s", printed)[0]
        lines.append(f"| {seed} | {before} | {after} | {seconds} s | {whole:.0f} s |")
    baseline = run("examples/quickstart/baseline.py").strip().splitlines()[-1]
    return [*lines, "", f"Keyword baseline on the same rows: {baseline}"]


def parity() -> list[str]:
    """12 steps of 4 whole chats on SmolLM2, fp32, constant 1e-4, against the hand-written loop of the tests."""
    from tests.engines.test_loop import PARITY, hand_written, ready_for, run_losses
    from tests.fixtures import cases

    lines = ["| trained | largest difference of 12 losses | outlive | hand-written |", "|---|---|---|---|"]
    for name, adapter in (("all weights", []), ("LoRA, rank 16", ["adapter.rank=16"])):
        ready = ready_for(base_model(), cases() / "chat400.jsonl", *PARITY, *adapter)
        ours, seconds = timed(lambda ready=ready: run_losses(ready))
        theirs, theirs_seconds = timed(lambda ready=ready: hand_written(ready, 12, 1e-4))
        difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        lines.append(f"| {name} | {difference:.1e} | {seconds:.0f} s | {theirs_seconds:.0f} s |")
    return lines


def commands() -> list[str]:
    """Whole-process times of the commands that are typed most, median of 7."""
    from tests.fixtures import cases

    chats = str(cases() / "chat400.jsonl")
    lines = ["| command | median | fastest |", "|---|---|---|"]
    for arguments in (
        ["--help"],
        ["train", "--help"],
        ["inspect", chats],
        ["inspect", chats, "--tokenizer", base_model()],
    ):
        seconds = sorted(timed(lambda a=arguments: outlive(*map(str, a)))[1] for _ in range(7))
        shown = " ".join("DIR" if a == base_model() else Path(a).name for a in map(str, arguments))
        lines.append(f"| `outlive {shown}` | {statistics.median(seconds):.2f} s | {seconds[0]:.2f} s |")
    return lines


def loss() -> list[str]:
    """TargetLoss against logits of all positions and cross_entropy: 2,048 tokens, half of them targets, V = 49,152."""
    import torch

    from outlive.modeling.target_loss import Head, weighted_sum

    hidden = torch.randn(2048, 576, requires_grad=True)
    weight, ids = torch.randn(49152, 576) * 0.02, torch.randint(0, 49152, (2048,))
    targets = torch.arange(0, 2048, 2)

    def ours() -> None:
        weighted_sum(hidden[targets], Head(weight), ids[targets], torch.ones(1024)).backward()

    def plain() -> None:
        labels = torch.full((2048,), -100).index_copy(0, targets, ids[targets])
        torch.nn.functional.cross_entropy(hidden @ weight.t(), labels, reduction="sum").backward()

    pairs = [(timed(ours)[1], timed(plain)[1]) for _ in range(5)]
    ratio = statistics.median(a / b for a, b in pairs)
    return [f"Forward and backward in fp32, frozen head: {ratio:.2f} of the plain form's time (median of 5 pairs)."]


def kills() -> list[str]:
    """kill -9 of a run of 40 steps (packed, three forwards a step, several passes over the data; checkpoints every 5
    steps, written in the background), at moments drawn over the whole run, and before, inside and after every file
    operation of a save. Each run is resumed; losses, gradient norms and the final state are compared bit for bit."""
    return run("benchmarks/kills.py").strip().splitlines()


def corruptions() -> list[str]:
    """5,000 random corruptions of small checkpoints of every format, looked at by `outlive verify` with their manifest
    and without: no crash, no hang, bounded memory, and with the manifest each is named."""
    return run("tests/checkpoint/verify/corruptions.py", "--cases", "5000").strip().splitlines()


def timed(work: Callable[[], object]) -> tuple[object, float]:
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def outlive(*arguments: str) -> str:
    return run("-m", "outlive.cli.main", *arguments)


def base_model() -> Path:
    return Path(run("examples/quickstart/base_model.py").strip())


def faults() -> int:
    import yaml

    return len(yaml.safe_load((ROOT / "tests" / "faults.yaml").read_text(encoding="utf-8")))


def machine() -> str:
    from outlive.run.machine import cpu_flags, cpu_model

    formats = sorted({"avx512_bf16", "amx_bf16", "bf16"} & cpu_flags())
    named = ", ".join(formats) or "no bf16"
    return f"{os.cpu_count()} cores of {cpu_model()} ({named}), Python {platform.python_version()}"


PARTS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "kills": ("Killed and resumed", kills),
    "quickstart": ("Quickstart", quickstart),
    "parity": ("Parity with a hand-written loop", parity),
    "commands": ("Commands", commands),
    "loss": ("TargetLoss", loss),
    "corruptions": ("Corruptions", corruptions),
}
FAULTS = "Faults held"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure, and renew the sections of docs/measured.md.")
    parser.add_argument("--only", choices=PARTS, action="append")
    only = parser.parse_args().only or list(PARTS)
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    for name in only:
        title, part = PARTS[name]
        print(f"{name} …", flush=True)
        lines = "\n".join(part())
        print(lines, flush=True)
        about = f"Commit `{commit.stdout.strip()}`; {machine()}."
        save({title: "\n\n".join([inspect.cleandoc(part.__doc__ or ""), lines, about])})
    save({FAULTS: f"{faults()} known faults of the field are held by a test: `tests/faults.yaml`."})


def save(sections: dict[str, str]) -> None:
    """At once, so that a part that fails takes nothing of those before it along."""
    page = renewed(PAGE.read_text(encoding="utf-8"), sections)
    replacement = PAGE.with_suffix(".md.new")
    replacement.write_text(page, encoding="utf-8")
    replacement.replace(PAGE)


if __name__ == "__main__":
    main()
