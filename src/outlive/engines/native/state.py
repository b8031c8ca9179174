"""The state of a training as plain data: tensors under canonical names, and the rest as JSON. And back again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from outlive.checkpoint.manifest import read_manifest
from outlive.checkpoint.state import read_trainer, state_files
from outlive.data.plan import Cursor
from outlive.modeling.names import canonical
from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.engines.native.loop import Training

VERSION = 1
MOMENTS = ("exp_avg", "exp_avg_sq")


class Start(NamedTuple):
    """Where training begins: at the beginning, or at a checkpoint's place in the plan."""

    cursor: Cursor = Cursor()
    tokens: int = 0
    """Tokens trained on so far."""
    plan: str | None = None
    """The key of the plan that the cursor belongs to."""


def read_start(checkpoint: Path | None) -> Start:
    """The place that a checkpoint stands for. Raises InputError where its trainer.json is damaged or another kind's."""
    if checkpoint is None:
        return Start()
    trainer = _read_trainer(checkpoint)
    return Start(Cursor(**trainer["cursor"]), trainer["tokens"], trainer["plan"])


def _read_trainer(checkpoint: Path) -> dict[str, Any]:
    """trainer.json, with everything that is read from it in its place and of its kind. Raises InputError."""
    trainer = read_trainer(checkpoint)
    try:
        if trainer["version"] != VERSION:
            raise ValueError(f"it has version {trainer['version']}; this version of outlive reads {VERSION}")
        if not isinstance(trainer["plan"], str) or type(trainer["owes_validation"]) is not bool:
            raise ValueError("plan is a text, and owes_validation is true or false")
        cursor, steps = trainer["cursor"], trainer["optimizer"]
        if sorted(cursor) != sorted(Cursor._fields):
            raise ValueError(f"cursor has the keys {', '.join(Cursor._fields)}")
        counts = {name: trainer[name] for name in ("step", "tokens", "skipped_steps", "skipped_in_a_row")}
        counts |= {"optimizer.step": steps["step"], **{f"cursor.{name}": cursor[name] for name in cursor}}
        for name, count in [*counts.items(), *steps["step_of"].items()]:
            if type(count) is not int or not 0 <= count < 2**53:
                raise ValueError(f"{name} is {count!r}, and no count")
        number = read_manifest(checkpoint).get("step", trainer["step"])
        if not number == trainer["step"] == cursor["step"]:
            raise ValueError(f"it is of step {cursor['step']}, and the checkpoint of step {number}")
    except KeyError as error:
        raise _not_gone_on_from(checkpoint, f"it lacks {error.args[0]}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise _not_gone_on_from(checkpoint, str(error)) from None
    return trainer


def _not_gone_on_from(checkpoint: Path, why: str) -> InputError:
    return InputError(
        f"trainer.json can't be gone on from: {why}",
        where=str(checkpoint),
        fix="resume another checkpoint: --resume STEP",
    )


def init_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Make AdamW's moments now, as its first step would: what a save needs is known before the first step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                **{name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in MOMENTS},
            }


def state_tensors(training: Training) -> dict[str, torch.Tensor]:
    """The trained parameters at training precision, and the optimizer's moments beside them, by canonical name."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in training.model.trained().items():
        state = training.optimizer.state[parameter]
        tensors[canonical(name)] = parameter.detach()
        tensors |= {f"optimizer.state.{canonical(name)}.{moment}": state[moment] for moment in MOMENTS}
    return tensors


def trainer_values(training: Training, num_steps: int) -> dict[str, Any]:
    """All of the state that is no tensor, as JSON."""
    source = training.source
    return {
        "version": VERSION,
        "step": source.cursor.step,
        "cursor": source.cursor._asdict(),
        "plan": source.plan_key,
        "tokens": source.tokens,
        "skipped_steps": training.skipped.total,
        "skipped_in_a_row": training.skipped.in_a_row,
        "owes_validation": training.owes_validation,
        "schedule": {"num_steps": num_steps, **training.schedule.model_dump(mode="json")},
        "optimizer": {"name": training.schedule.name, **_optimizer_steps(training)},
        # What is random is drawn from these numbers and the step alone, so that no generator's state is needed.
        "random": {"seed": training.randomness.seed, "step": source.cursor.step},
        "threads": torch.get_num_threads(),
    }


def _optimizer_steps(training: Training) -> dict[str, Any]:
    """How often each parameter was updated: one number, and those that differ (experts that no token reached)."""
    steps = {
        canonical(name): int(training.optimizer.state[parameter]["step"])
        for name, parameter in training.model.trained().items()
    }
    most = max(steps.values(), default=0)
    return {"step": most, "step_of": {name: step for name, step in steps.items() if step != most}}


def restore(training: Training, checkpoint: Path) -> None:
    """Put a checkpoint's state into `training`, in place. Raises InputError where names, shapes or dtypes differ."""
    trainer, targets = _read_trainer(checkpoint), state_tensors(training)
    found = set()
    for path in state_files(checkpoint):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  (it is no dict)
                    found.add(name)
                    _copy(targets.get(name), file.get_tensor(name), name, path)
        except (SafetensorError, OSError) as error:
            raise _does_not_fit(path, f"the file can't be read: {error}") from error
    if missing := sorted(targets.keys() - found):
        raise _does_not_fit(checkpoint, f"it lacks {len(missing)} tensors that are trained, such as {missing[0]}")
    steps = trainer["optimizer"]
    for name, parameter in training.model.trained().items():
        training.optimizer.state[parameter]["step"].fill_(steps["step_of"].get(canonical(name), steps["step"]))
    training.skipped.total = trainer["skipped_steps"]
    training.skipped.in_a_row = trainer["skipped_in_a_row"]
    training.owes_validation = trainer["owes_validation"]


@torch.no_grad()
def _copy(target: torch.Tensor | None, saved: torch.Tensor, name: str, path: Path) -> None:
    if target is None:
        raise _does_not_fit(path, f"{name} is not trained now")
    if target.shape != saved.shape:
        raise _does_not_fit(path, f"{name} has the shape {list(saved.shape)}, and {list(target.shape)} is trained now")
    if target.dtype != saved.dtype:  # rounded values would not go on with the same run
        raise _does_not_fit(path, f"{name} is {_dtype(saved)}, and {_dtype(target)} is trained now")
    target.copy_(saved)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _does_not_fit(path: Path, why: str) -> InputError:
    return InputError(
        f"the saved state does not fit this run: {why}",
        where=str(path),
        fix="resume with the model and adapter that it was trained with",
    )
