"""Promise: blocks that come and go are made of memory that is there already."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from outlive.run.malloc import keep_freed_blocks
if sys.argv[1] == "kept":
    keep_freed_blocks()
for _ in range(50):
    blocks = [np.ones(1 << 20, np.uint8) for _ in range(6)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives blocks back at once")
def test_freed_blocks_are_used_again() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("kept", "given back")
    )
    assert given_back - kept > 30 * 256  # pages of 4 KiB: of most of the blocks that came again
