"""The run file's models and `load_run`: the one place to import them from."""

from __future__ import annotations

from outlive.run.load import LoadedRun, load_run
from outlive.run.settings.base import Section
from outlive.run.settings.data import Data, Source
from outlive.run.settings.training import Adapter, Batch, Checkpoint, Export, Method, Optimizer, Stop
from outlive.run.settings.whole import SCHEMA_VERSION, FreshModel, Init, Run, plain

__all__ = [
    "SCHEMA_VERSION",
    "Adapter",
    "Batch",
    "Checkpoint",
    "Data",
    "Export",
    "FreshModel",
    "Init",
    "LoadedRun",
    "Method",
    "Optimizer",
    "Run",
    "Section",
    "Source",
    "Stop",
    "load_run",
    "plain",
]
