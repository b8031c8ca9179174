"""What a run folder says before the first step: the resolved run, the lock, the data, the first batch as a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.engines.native.build import Ready
    from outlive.run.folder import RunFolder


def write_before(ready: Ready, folder: RunFolder) -> None:
    """What is known before the first step: the resolved run, the lock, the data, and the first batch as a page."""
    from outlive.cli.show.pages import first_batch_page
    from outlive.engines.native.engine import first_packs
    from outlive.run.files import write_atomic

    write_atomic(folder.run_yaml, ready.run.to_yaml())
    write_atomic(folder.lock, _json(lock_of(ready)))
    write_atomic(folder.data, _json(data_of(ready)))
    page = first_batch_page(ready.tokenizer, first_packs(ready), {"run": ready.run.name, "model": str(ready.run.model)})
    write_atomic(folder.first_batch, page)


def lock_of(ready: Ready) -> dict[str, Any]:
    """What lock.json says: versions, machine, and hashes of all that the run file only names."""
    import torch

    from outlive.run.lock import lock

    hashes = {
        "model": ready.place.content_hash(),
        "tokenizer": ready.tokenizer.hash,
        "chat_template": ready.template.hash if ready.template else None,
        "date": ready.run.data.date,
        "stores": [store.folder.name for store in ready.prepared.train.stores],
    }
    return {**lock(hashes, gpu=_gpu()), "threads": torch.get_num_threads()}


def data_of(ready: Ready) -> dict[str, Any]:
    """What data.json says: which stores, what became of every row, and the plan of the first pass."""
    plan = ready.source.plan(0)
    about = {"packs": plan.num_packs, "steps_per_epoch": plan.num_steps, "steps": ready.source.num_steps()}
    return {**ready.prepared.about(), "plan": about}


def settle_data(ready: Ready, folder: RunFolder, say: Callable[[str], None]) -> Ready | None:
    """Where the data were prepared while the run trained: end that, and write data.json again with what it came to.
    The run with its finished data; None where nothing was open, or the rows are not all prepared."""
    from outlive.data.growing import end_growing
    from outlive.data.prepare import prepare
    from outlive.learn.methods import find_method
    from outlive.run.files import write_atomic

    if not (growing := end_growing(ready.prepared.train.stores, say)):
        return None
    if not ready.prepared.train.is_whole:
        rows = sum(store.ledger.rows for store in growing)
        say(f"the run ended when {rows:,} rows were prepared; the next that needs more of them goes on there")
        return None
    columns = find_method(ready.run.method).columns
    prepared = prepare(ready.run.data, ready.tokenizer, ready.template, columns, say)
    whole = replace(ready, prepared=prepared, source=replace(ready.source, mixture=prepared.train, _plan=None))
    write_atomic(folder.data, _json(data_of(whole)))
    return whole


def _gpu() -> dict[str, Any] | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return {
        "name": torch.cuda.get_device_name(),
        "count": torch.cuda.device_count(),
        "cuda": torch.version.cuda,
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)
