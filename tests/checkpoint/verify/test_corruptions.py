"""Promise: whatever is done to the bytes of a checkpoint, verify names it or says what is wrong; no crash, no hang."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_few_hundred_corruptions() -> None:
    """In a process of its own, whose memory is limited. `make prove` does 5,000."""
    script = Path(__file__).with_name("corruptions.py")
    done = subprocess.run(
        [sys.executable, str(script), "--cases", "400", "--seed", "1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "corruptions missed: 0." in done.stdout
