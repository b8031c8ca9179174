"""What the machine has and what the process used of it."""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from pathlib import Path


@cache
def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:  # no Linux
        return {}
    lines = (line.partition(":") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in lines}


def cpu_model() -> str | None:
    """The processor's name, or None where the system does not say."""
    return _cpuinfo().get("model name") or platform.processor() or None


def cpu_flags() -> frozenset[str]:
    """The processor's features by the kernel's names, such as avx512_bf16 (x86) or bf16 (Arm); empty where unknown."""
    return frozenset((_cpuinfo().get("flags") or _cpuinfo().get("features") or "").split())


def peak_memory() -> int:
    """The most memory that the process has held so far, in bytes (resident set); 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""
    if found := re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE):
        return int(found[1]) * 1024  # getrusage's figure begins with that of the process which started this one
    if os.name != "posix":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def available_memory() -> int:
    """Bytes that a process can still take without swapping, within its container's limit; 0 where nothing says so."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return 0
    free = int(found[1]) * 1024 if found else 0
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))
