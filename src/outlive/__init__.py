"""Outlive: training for open language models, in which the framework is a part and the data is yours.

    import outlive

    run = outlive.Run.load("run.yaml")
    result = outlive.train(run)

Names are loaded when they are used: `import outlive` alone costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlive import checkpoint as checkpoint
    from outlive import data as data
    from outlive import learn as learn
    from outlive import modeling as modeling
    from outlive.api import METHODS as METHODS
    from outlive.api import Method as Method
    from outlive.api import Router as Router
    from outlive.api import Term as Term
    from outlive.api import batches as batches
    from outlive.api import generate as generate
    from outlive.api import objective as objective
    from outlive.api import prepare as prepare
    from outlive.api import show as show
    from outlive.api import train as train
    from outlive.run.config import Run as Run

_MODULES = ("checkpoint", "data", "evals", "learn", "modeling", "scoring", "text")
_NAMES = dict.fromkeys(
    ("METHODS", "Method", "Router", "Term", "batches", "generate", "objective", "prepare", "show", "train"),
    "outlive.api",
)
_NAMES["Run"] = "outlive.run.config"

__all__ = [*_MODULES, *_NAMES]


def __getattr__(name: str) -> object:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"outlive.{name}")
    raise AttributeError(f"module 'outlive' has no attribute {name!r}")
