"""lock.json: what a run was made with, so that it can be made again. Never environment variables, never credentials."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlive.run.credentials import without_credentials
from outlive.run.machine import cpu_flags, cpu_model

# What decides how fast, and in which format, a CPU multiplies matrices.
_CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_bf16",
    "amx_int8",
    "amx_tile",
    "asimd",
    "bf16",
    "sve",
)


def lock(
    hashes: Mapping[str, Any] | None = None, gpu: Mapping[str, Any] | None = None, folder: Path | str = "."
) -> dict[str, Any]:
    """The lock as a JSON value.

    `hashes` and other facts come from the caller (model revision, stores, template date), as does `gpu` where torch
    is loaded anyway; `folder` is where the user's own code lies, for its git commit. Nothing is imported to find a
    version.
    """
    content = {
        "python": platform.python_version(),
        "packages": packages(),
        "platform": {
            "system": platform.platform(),
            "machine": platform.machine(),
            "libc": "-".join(platform.libc_ver()),
        },
        "cpu": cpu(),
        "gpu": dict(gpu) if gpu else None,
        "git": git(folder),
        "hashes": dict(hashes or {}),
    }
    cleaned: dict[str, Any] = without_credentials(content)
    return cleaned


def packages() -> dict[str, str]:
    """Every installed distribution and its version, by name; with a local part where there is one (2.13.0+cpu)."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(name.lower().replace("_", "-"), distribution.version)  # the first on the path is imported
    return dict(sorted(found.items()))


def cpu() -> dict[str, Any]:
    """Model, number of logical CPUs, and those flags that matter for training."""
    return {
        "model": cpu_model(),
        "count": os.cpu_count(),
        "flags": [flag for flag in _CPU_FLAGS if flag in cpu_flags()],
    }


def git(folder: Path | str = ".") -> dict[str, Any] | None:
    """Commit of the repository that `folder` lies in and whether tracked files differ from it; None outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changed is None else bool(changed)}


def _git(folder: Path | str, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git here, or a file system too slow to ask
    return done.stdout.strip() if done.returncode == 0 else None
