"""The Python API: an import that costs nothing, and an own loop of at most 25 lines that trains as the engine does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outlive.checkpoint.manifest import verify_manifest
from tests.engines.test_loop import ready_for, run_losses, tiny_folder

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_loop.py"


def test_import_loads_nothing_heavy() -> None:
    code = "import outlive, sys; print([m for m in ('torch', 'pydantic', 'numpy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_own_loop(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    lines = [
        line for line in EXAMPLE.read_text().splitlines() if line.strip() and not line.lstrip().startswith(('"""', "#"))
    ]
    assert len(lines) <= 25
    model = tiny_folder(tmp_path / "model", "llama")
    run_file = tmp_path / "own.yaml"
    settings = [
        "batch.sequences=4",
        "stop.steps=6",
        "precision=fp32",
        "optimizer.schedule=constant",
        "optimizer.lr=1e-3",
    ]
    settings += ["optimizer.warmup=0", "optimizer.clip=null", "data.packing=none", "data.sequence_length=64"]
    ready = ready_for(model, rows, *settings)
    run_file.write_text(ready.run.to_yaml())
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(run_file)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    printed = [float(line.split("loss ")[1]) for line in done.stdout.splitlines()]
    assert printed == pytest.approx(run_losses(ready), abs=1e-4)
    (saved,) = tmp_path.glob("*-own")
    verify_manifest(saved)
    assert (saved / "model" / "model.safetensors").is_file()
