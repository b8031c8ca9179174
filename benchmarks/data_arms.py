"""How `make bench-data` runs its arms: each in a process of its own, in turns; and the environments that they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TRL = "trl==1.16.0"
Results = dict[str, list[dict[str, float]]]


class Arm(NamedTuple):
    """One thing to measure: which script's arm, with which further settings, on how many processes or threads."""

    side: str
    arm: str
    processes: int = 1
    given: Mapping[str, Any] = {}


class Bench:
    """Runs arms and keeps what they measured; `missing` says what could not be measured and why."""

    def __init__(self, trl_python: Path | None, common: dict[str, Any]) -> None:
        self.trl_python, self.common = trl_python, common
        self.results: Results = {}
        self.missing: list[str] = []

    def rounds(self, arms: Mapping[str, Arm], number: int) -> None:
        failed: set[str] = set()
        for place in range(number):
            for name, arm in arms.items():
                if name in failed or (arm.side == "trl" and self.trl_python is None):
                    continue
                print(f"round {place + 1} of {number}: {name} …", file=sys.stderr, flush=True)
                try:
                    self.results.setdefault(name, []).append(self.run(arm))
                except RuntimeError as error:
                    failed.add(name)
                    self.results.pop(name, None)
                    self.missing.append(f"{name}: {error}")

    def run(self, arm: Arm) -> dict[str, Any]:
        """What one process measured. Threads of every kind: as many as processes."""
        python = str(self.trl_python) if arm.side == "trl" else sys.executable
        threads = str(1 if arm.side == "trl" else arm.processes)  # TRL's processes have one thread each
        env = {**os.environ, "OMP_NUM_THREADS": threads, "RAYON_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
        env |= {"TOKENIZERS_PARALLELISM": str(threads != "1").lower(), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        given = json.dumps({**self.common, **arm.given, "processes": arm.processes})
        script = ROOT / "benchmarks" / f"data_{arm.side}.py"
        done = subprocess.run([python, script, arm.arm, given], capture_output=True, text=True, env=env)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def trl_environment(home: Path) -> Path:
    """TRL's own Python, made once. torch comes from the constraints' version, so that no other is downloaded."""
    folder, mark = home / "bench-trl", home / "bench-trl" / ".installed"
    if not (mark.exists() and mark.read_text() == TRL):
        command([sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        command([*pip, "torch", "transformers", TRL])
        mark.write_text(TRL)
    return folder / "bin" / "python"


def command(arguments: Sequence[str]) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        said = next((line for line in lines if line.startswith("ERROR")), lines[-1])  # pip's first error is the cause
        raise RuntimeError(f"{' '.join(arguments[:4])} … failed: {said}")
    return done.stdout.strip()
