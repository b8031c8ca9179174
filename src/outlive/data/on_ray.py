"""Chunks made by a Ray cluster, through Ray Data (seen on release 2.60), and given back in their order.

The workers read JSON Lines themselves, so the files have to be where all of them can read them; rows of other forms are
sent to them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from outlive.data.chunks import Chunk, Made, Recipe, Reference
from outlive.run.errors import InputError, OutliveError, WorkError


@dataclass(frozen=True)
class OnRay:
    """Makes chunks on the cluster that RAY_ADDRESS names, or on a Ray of this machine that is started for it.

    `processes`: how many workers, one CPU each; None: as many as there are CPUs.
    """

    processes: int | None = None

    def __call__(self, recipe: Recipe, chunks: Iterator[Chunk], paths: Mapping[str, Path]) -> Iterator[Made]:
        """What became of each chunk, in their order. Raises what `Recipe.make` raises, and WorkError for Ray's own
        errors. The source is read once before, for the places of its chunks."""
        ray = _ray()
        references = [chunk.reference(paths) for chunk in chunks]
        if not references:
            return
        with _started(ray, self.processes):
            workers = self.processes or max(1, int(ray.cluster_resources().get("CPU", 1)))
            rows = iter(_data_set(ray, recipe, references, min(workers, len(references))).iter_rows())
            while (row := _next(ray, rows)) is not None:
                made = pickle.loads(row["made"])
                if isinstance(made, OutliveError):
                    raise made
                yield made


@lru_cache(maxsize=1)
def _recipe(pickled: bytes) -> Recipe:
    """Of a worker's process: read once, for all the chunks that it is given."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    recipe: Recipe = pickle.loads(pickled)
    return recipe


def _make(row: dict[str, Any], recipe: bytes) -> dict[str, Any]:
    reference: Reference = pickle.loads(row["chunk"])
    try:
        made: object = _recipe(recipe).make(reference.chunk())
    except OutliveError as error:
        made = error
    return {"made": pickle.dumps(made, protocol=5)}


def _data_set(ray: Any, recipe: Recipe, references: list[Reference], workers: int) -> Any:
    items = [{"chunk": pickle.dumps(reference, protocol=5)} for reference in references]
    # Tasks, not actors: of each actor that Ray Data starts, Ray prints an error that its arguments might be lost.
    return ray.data.from_items(items, override_num_blocks=len(items)).map(
        _make,
        fn_args=(pickle.dumps(recipe, protocol=5),),
        compute=ray.data.TaskPoolStrategy(size=workers),
        num_cpus=1,
    )


@contextlib.contextmanager
def _started(ray: Any, processes: int | None) -> Iterator[None]:
    ours = not ray.is_initialized()
    if ours:
        handler = signal.getsignal(signal.SIGTERM)  # Ray puts its own in its place, and leaves it there
        address = os.environ.get("RAY_ADDRESS")
        local = {} if address else {"num_cpus": processes, "include_dashboard": False}
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
            _restore(handler)
        except Exception as error:  # ConnectionError, ValueError, RuntimeError … by cause
            raise WorkError(
                f"Ray can't be reached: {error}",
                where=f"RAY_ADDRESS={address}" if address else "a Ray of this machine",
                fix="start a cluster (ray start --head) and name it in RAY_ADDRESS, or leave out --on ray",
            ) from error
    context = ray.data.DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    try:
        yield
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before
        if ours:
            ray.shutdown()


def _restore(handler: Any) -> None:
    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, handler)


def _next(ray: Any, rows: Iterator[Any]) -> Any:
    try:
        return next(rows, None)
    except ray.exceptions.RayError as error:
        fix = "see Ray's logs; with too little memory, take fewer workers: data.processes=1"
        raise WorkError(f"a worker failed: {str(error).strip().splitlines()[-1]}", where="Ray Data", fix=fix) from error


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    try:
        import ray
        import ray.data
    except ImportError as error:
        fix = "pip install 'outlive[ray]'"
        raise InputError(f"Ray Data can't be imported: {error}", where="--on ray", fix=fix) from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray
