"""Where Outlive keeps what can be made again: stores and converted models."""

from __future__ import annotations

import os
from pathlib import Path


def outlive_home() -> Path:
    """Where stores and models are kept: $OUTLIVE_HOME, else ~/.cache/outlive."""
    return Path(os.environ.get("OUTLIVE_HOME") or Path.home() / ".cache" / "outlive")
