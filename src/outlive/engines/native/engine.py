"""The native engine behind the contract that all engines share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outlive.checkpoint.write import save
from outlive.data.batch import make_batch
from outlive.engines.native.build import Ready, build, from_job, place_of
from outlive.engines.native.loop import train
from outlive.learn.methods import find_method
from outlive.run.config import Run
from outlive.run.engine import EngineFacts, Job, Problem, Result, TokensAndWeights
from outlive.run.errors import InputError
from outlive.run.folder import RunFolder
from outlive.run.metrics import Record, Writer

FACTS = EngineFacts(
    name="native",
    does=("sft", "pretraining", "lora", "packing", "user loss"),
    exit="model/ and adapter/ open in transformers, PEFT and vLLM; stores open in Hugging Face datasets",
    needs=("torch", "transformers", "peft"),
    limits=("one process", "saves once, at the end"),
)


class Native:
    """Outlive's own loop. `show` receives every record and every note as they come, for a progress display."""

    facts = FACTS

    def __init__(
        self, show: Callable[[Record], None] = lambda record: None, say: Callable[[str], None] = lambda note: None
    ) -> None:
        self.show, self.say = show, say

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
        ready = from_job(job)
        return first_packs(ready)

    def train(self, job: Job) -> Result:
        """Train, validate, save. metrics.jsonl grows with every step; the checkpoint appears whole or not at all."""
        ready = from_job(job)
        training = build(ready)
        for note in ready.notes:
            self.say(note)
        folder, records = RunFolder(job.folder), []
        base = _base(ready)  # before the training, so that it is what was trained on, and no late failure
        started = time.perf_counter()
        with Writer(folder.metrics) as writer:

            def record(entry: Record) -> None:
                entry = replace(entry, attempt=job.attempt)
                writer.write(entry)
                records.append(entry)
                self.show(entry)

            num_steps = train(training, record)
        seconds = time.perf_counter() - started
        output = self._save(ready, training.model.model, folder.checkpoint(num_steps), base)
        return _result(records, num_steps, seconds, output)

    def _save(self, ready: Ready, model: object, folder: Path, base: dict[str, str] | None) -> Path:
        run = ready.run
        template = ready.template.source if run.data.chat_template and ready.template else None
        about = {"run": run.name, "step": int(folder.name.removeprefix("step-"))}
        return save(
            model, folder, tokenizer=ready.place.folder, chat_template=template, dtype=run.export.dtype, base=base,
            about=about,
        )  # fmt: skip


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


def _result(records: list[Record], num_steps: int, seconds: float, output: Path) -> Result:
    steps = [record for record in records if record.kind == "train"]
    validations = [record for record in records if record.kind == "validation"]
    return Result(
        status="done",
        steps=num_steps,
        tokens=sum(record.tokens or 0 for record in steps),
        target_tokens=sum(record.target_tokens or 0 for record in steps),
        seconds=seconds,
        loss=steps[-1].loss if steps else None,
        validation_loss=validations[-1].loss if validations else None,
        output=output,
    )
