"""Faults in the file operations of a save: every call that changes the disk can be counted, refused, or be the last."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.export import Export
from outlive.checkpoint.state import write_state
from outlive.checkpoint.write import write_export

CALLS = (
    "open",
    "write",
    "fsync",
    "close",
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "chmod",
    "link",
    "truncate",
)


class Killed(BaseException):
    """The process is dead: nothing after it is done."""


class Disk:
    """Stands before os's calls. `act(number, call)` decides what becomes of each; without it they are only noted."""

    def __init__(self, patch: pytest.MonkeyPatch, act: Callable[[int, Callable[[], Any]], Any] | None = None) -> None:
        self.done: list[tuple[str, Any]] = []
        for name in CALLS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name), act))

    def _wrapped(self, name: str, call: Any, act: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.done.append((name, args[0]))
            number = len(self.done) - 1
            return call(*args, **kwargs) if act is None else act(number, lambda: call(*args, **kwargs))

        return wrapped


def dies(at: int, after: bool) -> Callable[[int, Callable[[], Any]], Any]:
    """The call number `at` is the last, done (`after`) or not; later ones, of what cleans up, are not made."""

    def act(number: int, call: Callable[[], Any]) -> Any:
        if number > at or (number == at and not after):
            raise Killed
        result = call()
        if number == at:
            raise Killed
        return result

    return act


def refuses(at: int, reason: int = errno.ENOSPC) -> Callable[[int, Callable[[], Any]], Any]:
    """The disk refuses the call number `at`, and no other."""

    def act(number: int, call: Callable[[], Any]) -> Any:
        if number == at:
            raise OSError(reason, os.strerror(reason))
        return call()

    return act


def kills(at: int, after: bool) -> Callable[[int, Callable[[], Any]], Any]:
    """kill -9 of this very process, before or after the call number `at`."""

    def act(number: int, call: Callable[[], Any]) -> Any:
        if number == at and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call()
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return act


def tokenizer_folder(folder: Path) -> Path:
    """What a save needs of a tokenizer: files to copy."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text('{"model": "é"}')
    (folder / "tokenizer_config.json").write_text("{ }\n")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def tiny_export() -> Export:
    random = np.random.default_rng(0)
    tensors = {f"layers.{layer}.weight": random.normal(size=(8, 6)).astype(np.float32) for layer in range(3)}
    return Export("model", {"config.json": '{"model_type": "llama"}'}, tensors)


def save_step(checkpoints: Path, step: int, tokenizer: Path, loss: float | None = None) -> Path:
    """A checkpoint with model/ in two shards and state/, as a run writes it."""
    final = checkpoints / f"step-{step:08d}"
    about = {"step": step} if loss is None else {"step": step, "validation_loss": loss}
    with building_checkpoint(final, about) as building:
        write_export(
            building, tiny_export(), tokenizer=tokenizer, chat_template="{{ other }}", dtype="bf16", base=None,
            max_shard_bytes=200,
        )  # fmt: skip
        write_state(building, {"weight": np.arange(12.0), "step": np.array(3)}, {"step": step})
    return final
