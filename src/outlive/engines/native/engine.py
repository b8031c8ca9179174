"""The native engine behind the contract that all engines share."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from outlive.checkpoint.folder import saved_checkpoints
from outlive.data.batch import make_batch
from outlive.engines.native.build import Ready, build, checkpoints_activations, from_job, place_of
from outlive.engines.native.handover import Rounding, merged, rounding
from outlive.engines.native.loop import Training, train
from outlive.engines.native.memory import explained
from outlive.engines.native.numbers import ROUNDED, finite
from outlive.engines.native.saver import Saver, Served
from outlive.engines.native.state import restore
from outlive.learn.methods import find_method
from outlive.run.config import Run
from outlive.run.engine import EngineFacts, Job, Problem, Result, TokensAndWeights
from outlive.run.errors import InputError, OutliveError, WorkError
from outlive.run.events import Events
from outlive.run.folder import RunFolder
from outlive.run.metrics import Record, Writer

FACTS = EngineFacts(
    name="native",
    does=("sft", "pretraining", "lora", "packing", "user loss", "exact resume"),
    exit="model/ and adapter/ open in transformers, PEFT and vLLM; stores open in Hugging Face datasets; state/ is "
    "safetensors, which torch.distributed.checkpoint reads too",
    needs=("torch", "transformers", "peft"),
    limits=("one process",),
)
LOOK_FOR_FROZEN = 20  # after so many steps, and at the end: early enough to stop a run that learns nothing


class Native:
    """Outlive's own loop. `show` receives every record and every note as they come, for a progress display.

    `stop_asked` says whether the run is to be saved and ended after the step that it is in.
    """

    facts = FACTS

    def __init__(
        self,
        show: Callable[[Record], None] = lambda record: None,
        say: Callable[[str], None] = lambda note: None,
        stop_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self.show, self.say, self.stop_asked = show, say, stop_asked

    def check(self, run: Run) -> list[Problem]:
        """What can be seen before anything is read: a model that is not there, a loss that can't be imported."""
        problems = []
        for probe in (lambda: find_method(run.method), lambda: place_of(run)):
            try:
                probe()
            except InputError as error:
                problems.append(Problem("error", error.what, error.where, error.fix))
        return problems

    def first_batch(self, job: Job) -> TokensAndWeights:
        """The first step's packs, with weights as targets and the segment of each token."""
        return first_packs(from_job(job))

    def train(self, job: Job) -> Result:
        """Train, validate, save. metrics.jsonl grows with every step; checkpoints appear whole or not at all."""
        ready = from_job(job)
        with _memory_explained(ready):
            training = build(ready)
        if job.resume_from is not None:
            restore(training, job.resume_from)
        for note in ready.notes:
            self.say(note)
        with Attempt(job, ready, training, self) as attempt, _memory_explained(ready):
            attempt.begin()
            steps = train(training, attempt.record, attempt.saver)
            return attempt.finish(steps)


@dataclass
class Attempt:
    """One start of a run: what it writes besides its steps, and what it tells. A context manager, which closes its
    files and adds to an error where the run can go on from."""

    job: Job
    ready: Ready
    training: Training
    engine: Native
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        run, self.folder = self.ready.run, RunFolder(self.job.folder)
        self.metrics, self.events = Writer(self.folder.metrics), Events(self.folder.events, self.job.attempt)
        # The base is hashed before the training, so that it is what was trained on, and no late failure.
        served = Served(self.ready.place.folder, _own_template(self.ready), run.export.dtype, _base(self.ready))
        self.saver = Saver(
            self.folder, run.checkpoint, served, {"run": run.name, "attempt": self.job.attempt}, self.event, self.say,
            self.metrics.sync, self.engine.stop_asked,
        )  # fmt: skip

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.saver.abandon()
        self.metrics.close()
        self.events.close()
        if isinstance(error, OutliveError) and not isinstance(error, InputError):
            raise self._with_last_good(error) from error

    def begin(self) -> None:
        """All that can go wrong at the end, tried before the first step."""
        training, num_steps = self.training, self.training.source.num_steps()
        resumed = str(self.job.resume_from) if self.job.resume_from else None
        self.event("started", step=training.source.cursor.step, num_steps=num_steps, resumed_from=resumed)
        if self.ready.run.export.merged:
            self.saver.merged = lambda: merged(self.ready, training, self._tell_rounding)
        self.saver.trial(training, num_steps)
        self.started = time.perf_counter()

    def finish(self, steps: int) -> Result:
        """What came of it; `steps` are done. The last save is waited for."""
        seconds = time.perf_counter() - self.started
        self.saver.wait()
        stopped = steps < self.training.source.num_steps()
        self.event("stopped" if stopped else "done", step=steps)
        if not stopped:
            self._look_for_frozen()
            self._check_rounding()
            if self.training.skipped.in_a_row:
                self.say(f"the last {self.training.skipped.in_a_row} steps changed no weights: look at report.html")
        return _result(self.records, steps, seconds, self._output(), "stopped" if stopped else "done")

    def say(self, note: str) -> None:
        """Tell the user."""
        self.engine.say(note)

    def event(self, kind: str, **values: object) -> None:
        """Write down what happened, and tell the user where it matters."""
        self.events.write(kind, **values)
        if kind == "skipped_step":
            self.say(f"step {values['step']} changed no weights: {values['why']}; events.jsonl names its samples")

    def record(self, entry: Record) -> None:
        """Take a record of the loop's."""
        entry = replace(entry, attempt=self.job.attempt)
        self.metrics.write(entry)
        self.records.append(entry)
        self.engine.show(entry)
        if entry.kind == "train" and len(self.records) > 1 and entry.step == LOOK_FOR_FROZEN:
            self._look_for_frozen()

    def _look_for_frozen(self) -> None:
        trained = self.training.model.trained()
        found = self.training.movement.standing_still(trained, self.training.optimizer.state)
        if found and any(record.kind == "train" and record.skipped is None for record in self.records):
            self.events.write("frozen_parameters", parameters=found)
            fix = "; raise optimizer.lr" if ROUNDED in found[0] else ""
            self.say(f"{len(found)} of {len(trained)} parameters do not move, such as {found[0]}{fix}")

    def _check_rounding(self) -> None:
        dtype = self.ready.run.export.dtype
        if self.ready.run.adapter is None and dtype != "fp32":
            try:
                self._tell_rounding(rounding(self.training, dtype))
            except (RuntimeError, MemoryError) as error:  # all is saved: no reason to fail
                self.say(f"what the export in {dtype} rounds away could not be measured: {error}")

    def _tell_rounding(self, found: Rounding) -> None:
        self.events.write("rounding", **vars(found))
        self.say(found.sentence())
        losses = [record.loss for record in self.records if record.kind == "validation" and record.loss is not None]
        gain = losses[0] - losses[-1] if len(losses) > 1 else None
        if found.loses(gain):
            self.say("the rounding takes back a part of what was learned: set export.dtype=fp32, or raise optimizer.lr")

    def _output(self) -> Path | None:
        served = [path for saved in saved_checkpoints(self.folder.checkpoints) if (path := saved.served())]
        return served[-1] if served else None

    def _with_last_good(self, error: OutliveError) -> OutliveError:
        """The error, with where the run can go on from."""
        if not self.folder.root.exists():
            what = f"the run folder was deleted during the run, with all that was saved ({error.what})"
            return WorkError(what, where=str(self.folder.root), fix="start the run again")
        saved = saved_checkpoints(self.folder.checkpoints)
        if not saved and self.job.attempt == 1 and not self.records:
            return error  # nothing was begun, and there is nothing to go on from
        good = f"the last good checkpoint is {saved[-1].path}" if saved else "no checkpoint was saved before"
        fix = f"{error.fix}; then go on with `outlive train {self.folder.root} --resume`" if error.fix else None
        return WorkError(f"{error.what}; {good}", where=error.where, fix=fix)


def _memory_explained(ready: Ready) -> AbstractContextManager[None]:
    return explained(ready.run, ready.source.layout, ready.source.micro_packs, checkpoints_activations(ready.run))


def _own_template(ready: Ready) -> str | None:
    return ready.template.source if ready.run.data.chat_template and ready.template else None


def _base(ready: Ready) -> dict[str, str] | None:
    """What an adapter is bound to; None where all weights are trained."""
    if ready.run.adapter is None:
        return None
    return {"model": str(ready.run.model), "content_hash": ready.place.content_hash()}


def first_packs(ready: Ready) -> TokensAndWeights:
    """The first step's packs as they are trained on."""
    plan = ready.source.plan(0)
    tokens, weights, segments = [], [], []
    for pack in plan.step_packs(0):
        batch = make_batch(plan, ready.prepared.train, [pack])
        tokens.append(batch.tokens.tolist())
        weights.append([0.0, *batch.target_weight[:-1].tolist()])
        segments.append(batch.segment_ids.tolist())
    return TokensAndWeights(tokens, weights, segments)


def _result(
    records: list[Record], num_steps: int, seconds: float, output: Path | None, status: Literal["done", "stopped"]
) -> Result:
    steps = [record for record in records if record.kind == "train"]
    validations = [record for record in records if record.kind == "validation"]
    return Result(
        status=status,
        steps=num_steps,
        tokens=sum(record.tokens or 0 for record in steps),
        target_tokens=sum(record.target_tokens or 0 for record in steps),
        seconds=seconds,
        loss=finite(steps[-1].loss) if steps else None,
        validation_loss=finite(validations[-1].loss) if validations else None,
        output=output,
    )
