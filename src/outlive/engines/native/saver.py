"""Saves while training goes on: a snapshot in memory, written by a thread; what is kept; the trial save."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.export import Export
from outlive.checkpoint.folder import (
    Saved,
    best,
    free_space,
    remove,
    saved_checkpoints,
    size_of,
    superfluous,
)
from outlive.checkpoint.state import FOLDER as STATE
from outlive.checkpoint.state import write_state
from outlive.checkpoint.write import write_export
from outlive.engines.native.loop import Training
from outlive.engines.native.state import state_tensors, trainer_values
from outlive.modeling.names import canonical
from outlive.run.config import Checkpoint
from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.run.folder import RunFolder
from outlive.run.machine import available_memory
from outlive.run.sizes import size

SNAPSHOT_SHARE = 0.5  # of the free memory: a snapshot that needs more is not taken, and training waits for the disk


@dataclass(frozen=True)
class Served:
    """What makes a served folder of weights: the tokenizer's folder, a template of the run's own, dtype, base."""

    tokenizer: Path
    chat_template: str | None
    dtype: Any
    base: Mapping[str, str] | None


@dataclass
class Saver:
    """The keeper of a run: `due`, `save`, `wait`. One save is under way at most, so memory holds one snapshot."""

    folder: RunFolder
    section: Checkpoint
    served: Served
    about: Mapping[str, Any]
    event: Callable[..., None]
    say: Callable[[str], None]
    sync_metrics: Callable[[], None] = lambda: None
    stop_asked: Callable[[], bool] = lambda: False
    in_background: bool = True
    merged: Callable[[], Export] | None = None
    """The merged model, which the last checkpoint holds beside the adapter."""
    _snapshot: dict[str, torch.Tensor] = field(default_factory=dict)
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None
    _done: list[dict[str, Any]] = field(default_factory=list)

    def due(self, step: int) -> bool:
        """Whether the state after `step` steps is to be saved. Raises WorkError where an earlier save has failed."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()
        return self.section.every is not None and step % self.section.every == 0

    def validates(self) -> bool:
        """Whether what is saved is validated first."""
        return self.section.best == "validation_loss"

    def trial(self, training: Training, num_steps: int) -> None:
        """Save what every checkpoint will hold, once, and take it away: so that no save fails for want of a permission,
        or of space that could have been counted before. Raises InputError where the planned saves don't fit."""
        trial = self.folder.checkpoints / f".trial.{secrets.token_hex(8)}.tmp"
        started = time.perf_counter()
        self._write(training, trial, {}, state_tensors(training), trainer_values(training, num_steps), True)
        one, state = size_of(trial), size_of(trial / STATE)
        remove(Saved(0, trial, {}))
        seconds = time.perf_counter() - started
        at_end = 0 if self.merged is None else _merged_size(training, self.served.dtype)
        steps = num_steps - training.source.cursor.step
        if self.section.model == "last":
            self._refuse_too_little_space(state, one - state + at_end, steps)
        else:
            self._refuse_too_little_space(one, at_end, steps)
        self.in_background = self._snapshot_fits(training)
        how = (
            "while training goes on" if self.in_background else "while training waits: a snapshot needs too much memory"
        )
        self.say(f"trial save: a checkpoint takes {size(one)} and {seconds:.1f} s; saves are written {how}")

    def _refuse_too_little_space(self, one: int, at_end: int, steps: int) -> None:
        at_once = planned = 1 + (steps // self.section.every if self.section.every else 0)
        needed = one * planned
        if self.section.keep is not None:
            at_once = min(planned, self.section.keep + 2)  # + best, + the next
            held = sum(size_of(saved.path) for saved in saved_checkpoints(self.folder.checkpoints))
            # What is there goes when newer ones come; but the next one comes first.
            needed = min(needed, max(one * (self.section.keep + 2) - held, one))
        needed, free = needed + at_end, free_space(self.folder.checkpoints)
        if needed > free:
            raise InputError(
                f"the checkpoints of this run need {size(needed)} ({at_once} at once, {size(one)} each), "
                f"and {size(free)} are free",
                where=str(self.folder.checkpoints),
                fix="free some space, lower checkpoint.keep, raise checkpoint.every, or set checkpoint.model=last",
            )

    def save(self, training: Training, validation_loss: float | None, last: bool) -> None:
        """Save the state as it is now; written in the background where memory allows it and the run goes on."""
        self.wait()
        step, num_steps = training.source.cursor.step, training.source.num_steps()
        about = {**self.about, "step": step, "tokens": training.source.tokens, "validation_loss": validation_loss}
        trainer, with_model = trainer_values(training, num_steps), self._holds_model(validation_loss, last)
        merged = self.merged() if last and self.merged is not None else None
        tensors = state_tensors(training)
        if self.in_background and not last:
            tensors = self._take_snapshot(tensors)
        self.sync_metrics()
        arguments = (training, self.folder.checkpoint(step), about, tensors, trainer, with_model, merged)
        if last or not self.in_background:
            self._save(*arguments)
            self.wait()
            return
        self._thread = threading.Thread(target=self._save, args=arguments, name=f"save of step {step}")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the save under way. Raises WorkError where it failed: the checkpoints before it are as they were."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for values in self._done:
            self.event(**values)
        self._done.clear()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Let the save under way end, whatever comes of it: another error ends the run."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _holds_model(self, validation_loss: float | None, last: bool) -> bool:
        if self.section.model == "every" or (self.section.model == "last" and last):
            return True
        if self.section.model == "best" and validation_loss is not None:
            before = best(saved_checkpoints(self.folder.checkpoints))
            return before is None or validation_loss <= before.manifest["validation_loss"]
        # Without a validation loss nothing can be the best: the last is what there is to serve.
        return self.section.model == "best" and last and best(saved_checkpoints(self.folder.checkpoints)) is None

    def _save(
        self, training: Training, folder: Path, about: Mapping[str, Any], tensors: Mapping[str, torch.Tensor],
        trainer: Mapping[str, Any], with_model: bool, merged: Export | None = None,
    ) -> None:  # fmt: skip
        started = time.perf_counter()
        try:
            self._write(training, folder, about, tensors, trainer, with_model, merged)
            seconds = time.perf_counter() - started
            values = {"step": about["step"], "path": str(folder), "bytes": size_of(folder), "seconds": seconds}
            self._done.append({"kind": "saved", **values})
            self._keep()
        except OutliveError as error:
            self._failure = error
        except BaseException as error:  # a thread's error is raised where the run waits for it
            self._failure = WorkError(
                f"the checkpoint could not be written: {type(error).__name__}: {error}",
                where=str(folder),
                fix="see what the error says",
            )
            self._failure.__cause__ = error

    def _write(
        self, training: Training, folder: Path, about: Mapping[str, Any], tensors: Mapping[str, torch.Tensor],
        trainer: Mapping[str, Any], with_model: bool, merged: Export | None = None,
    ) -> None:  # fmt: skip
        with building_checkpoint(folder, about) as building:
            write_state(building, tensors, trainer)
            if with_model:
                names = {name: tensors[canonical(name)] for name in training.model.trained()}
                write_served(building, training.model.export(names), self.served)
            if merged is not None:
                write_served(building, merged, self.served)

    def _keep(self) -> None:
        """Remove what is kept no longer, after the new checkpoint is safe."""
        saved = saved_checkpoints(self.folder.checkpoints)
        kept = best(saved) if self.section.best else None
        for old in superfluous(saved, self.section.keep, kept):
            remove(old)
            self._done.append({"kind": "removed", "step": old.step, "path": str(old.path)})

    def _take_snapshot(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies of the tensors in main memory; the same memory at each save."""
        for name, tensor in tensors.items():
            if name not in self._snapshot:
                self._snapshot[name] = torch.empty_like(tensor, device="cpu")
            self._snapshot[name].copy_(tensor)
        return self._snapshot

    def _snapshot_fits(self, training: Training) -> bool:
        needed = sum(tensor.numel() * tensor.element_size() for tensor in state_tensors(training).values())
        free = available_memory()
        return free == 0 or needed <= SNAPSHOT_SHARE * free


def _merged_size(training: Training, dtype: str) -> int:
    """About the bytes of the merged model: all parameters in the export's dtype."""
    width = 4 if dtype == "fp32" else 2
    return width * int(sum(parameter.numel() for parameter in training.model.model.parameters()))


def write_served(building: Any, export: Export, served: Served) -> str:
    """Write model/ or adapter/ into a checkpoint that is being built. Returns the part's name."""
    return write_export(
        building,
        export,
        tokenizer=served.tokenizer,
        chat_template=served.chat_template,
        dtype=served.dtype,
        base=served.base,
    )
