"""Out of memory, explained: what was asked, what was there, and the next knob to turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from outlive.data.plan import Layout
from outlive.run.config import Run
from outlive.run.errors import WorkError
from outlive.run.machine import available_memory, peak_memory
from outlive.run.sizes import size

_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ ?\w*)")
_CPU_SAYS = re.compile(r"can't allocate memory|not enough memory|bad allocation|Cannot allocate memory")


@contextmanager
def explained(run: Run, layout: Layout, micro_packs: int, checkpointing: bool) -> Iterator[None]:
    """Turn out-of-memory errors of the block into a WorkError that says what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and not _CPU_SAYS.search(str(error)):
            raise
        raise WorkError(
            f"out of memory: {_asked(error)}; {_there()}",
            where="training",
            fix=knob(run, layout, micro_packs, checkpointing),
        ) from error


def knob(run: Run, layout: Layout, micro_packs: int, checkpointing: bool) -> str:
    """The next setting to change, those that change no result first."""
    length = layout.sequence_length
    if micro_packs > 1:
        if run.batch.sequences is not None:
            return f"set batch.micro_sequences={micro_packs // 2} (the same step in smaller passes: equal results)"
        return f"set batch.micro_tokens={micro_packs // 2 * length} (the same step in smaller passes: equal results)"
    if not checkpointing:
        return "set activation_checkpointing=true (equal results, about a third slower)"
    if run.adapter is None:
        return "train an adapter in place of all weights: adapter.rank=16 (no gradients and moments for the rest)"
    if length > 256:
        return f"set data.sequence_length={length // 2} (longer samples are then cut or dropped, as data.overlong says)"
    return "use a smaller model, or a machine with more memory"


def _asked(error: BaseException) -> str:
    text = str(error)
    if found := re.search(r"you tried to allocate (\d+) bytes", text):
        return f"{size(int(found[1]))} were asked for at once"
    found = _ASKED.search(text)
    return f"{found[1]} were asked for at once" if found else "an allocation failed"


def _there() -> str:
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        held = size(torch.cuda.memory_allocated())
        return f"{size(free)} of the GPU's {size(total)} were free, and this process held {held}"
    return f"{size(available_memory())} were free, and this process held {size(peak_memory())} at its peak"
