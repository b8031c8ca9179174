"""From a run to what the loop works on: data, model, adapter, method, optimizer, each checked before the next."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path

import torch

from outlive.data.batch import make_batch
from outlive.data.growing import open_store
from outlive.data.mixing_notes import notes_on
from outlive.data.plan import Cursor, Layout, Mixture
from outlive.data.prepare import (
    Prepared,
    chat_template,
    layout_of,
    mixture_of,
    prepare,
    prepare_meanwhile,
    validation_plan,
)
from outlive.data.preparer import Progress, no_progress
from outlive.data.store import Store
from outlive.engines.native.fit import check_fit, check_length
from outlive.engines.native.loop import Training
from outlive.engines.native.numbers import Movement, Skipped
from outlive.engines.native.schedule import make_optimizer
from outlive.engines.native.source import FixedBatches, PlanSource
from outlive.engines.native.state import Start, init_optimizer, read_start
from outlive.learn.adapters import add_adapter
from outlive.learn.methods import find_method
from outlive.learn.objective import Router
from outlive.modeling.causal import CausalModel
from outlive.modeling.dropout import Randomness, count_dropout
from outlive.modeling.loading import ModelPlace, find_model, fresh_model, isolates, load_config, load_model
from outlive.modeling.precision import compute_dtype
from outlive.modeling.proof import prove_isolation
from outlive.run.config import Run
from outlive.run.engine import Job
from outlive.run.errors import InputError
from outlive.run.home import outlive_home
from outlive.run.notes import to_stderr
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer

AUTO_MICRO_TOKENS = 4096  # one forward's capacity where batch.micro_tokens is auto


@dataclass
class Ready:
    """A run that is ready to be trained. `notes` say what was decided on the way, for the user."""

    run: Run
    place: ModelPlace
    tokenizer: Tokenizer
    template: ChatTemplate | None
    prepared: Prepared
    source: PlanSource
    notes: list[str] = field(default_factory=list)


def get_ready(
    run: Run,
    resume_from: Path | None = None,
    say: Callable[[str], None] = to_stderr,
    progress: Callable[[Progress], None] = no_progress,
) -> Ready:
    """Everything but the model: its place and config, tokenizer, template, stores, plan. Raises InputError.

    `resume_from`: the checkpoint whose place in the plan the source begins at. `say`, `progress`: who is told
    what the preparation of the data does.
    """
    place = place_of(run)
    check_length(run, load_config(place))
    tokenizer = Tokenizer.load(place.folder)
    template = chat_template(run.data, tokenizer)
    if template is not None and template.uses_date and run.data.date is None:
        # The day is part of the tokens: it is settled here, and run.yaml and the lock keep it.
        run = run.model_copy(update={"data": run.data.model_copy(update={"date": date.today().isoformat()})})
        template = chat_template(run.data, tokenizer)
    get = prepare_meanwhile if run.data.train_while_preparing else prepare
    prepared = get(run.data, tokenizer, template, find_method(run.method).columns, say, progress)
    source, notes = _source(run, place, prepared, read_start(resume_from))
    notes += notes_on(run, prepared)
    return Ready(run, place, tokenizer, template, prepared, source, notes)


def _source(run: Run, place: ModelPlace, prepared: Prepared, start: Start) -> tuple[PlanSource, list[str]]:
    """The source of steps from `start` on, and what is to be said of packing and of the place."""
    reason, notes, packing = isolates(load_config(place)), [], run.data.packing
    if reason is not None and packing != "none":
        notes.append(f"packing is off: {reason}; each sample has a forward of its own")
        packing = "none"
    layout = layout_of(run, packing)
    micro_packs = 1 if reason is not None else _micro_packs(run, layout)
    source = PlanSource(prepared.train, layout, run.seed, run.stop, micro_packs, start.cursor, start.tokens)
    source.wait()
    if start.plan == source.plan_key:
        num_packs = source.plan(start.cursor.epoch).num_packs
        if start.cursor.pack >= num_packs:
            raise InputError(
                f"the saved place in the data is pack {start.cursor.pack} of a pass of {num_packs}",
                where="state/trainer.json",
                fix="resume another checkpoint: --resume STEP",
            )
    if start.plan is None or start.plan == source.plan_key or start.cursor.pack == 0:
        return source, notes
    # The order is another now, and with it the rest of this pass: the next one begins, so that nothing comes twice.
    notes.append(f"the data or its order has changed: pass {start.cursor.epoch + 1} ends here, and the next one begins")
    after = Cursor(start.cursor.epoch + 1, 0, start.cursor.step)
    source = PlanSource(prepared.train, layout, run.seed, run.stop, micro_packs, after, start.tokens)
    source.wait()
    return source, notes


def job_of(ready: Ready, folder: Path, attempt: int = 1, resume_from: Path | None = None) -> Job:
    """The job that trains this run, as JSON can carry it."""
    validation = ready.prepared.validation
    return Job(
        run=ready.run,
        folder=folder,
        model=ready.place.folder,
        tokenizer=ready.place.folder,
        stores=[store.folder for store in ready.prepared.train.stores],
        validation_stores=[store.folder for store in validation.stores] if validation else [],
        attempt=attempt,
        resume_from=resume_from,
    )


def from_job(job: Job) -> Ready:
    """A job's stores and places, opened again."""
    run, place = job.run, place_of(job.run, job.model)
    tokenizer = Tokenizer.load(job.tokenizer)
    stores = [open_store(folder) for folder in job.stores]
    validation = [Store(folder) for folder in job.validation_stores]
    prepared = Prepared(
        mixture_of(run.data, stores),
        Mixture(validation, [1.0] * len(validation)) if validation else None,
        [],
    )
    source, _ = _source(run, place, prepared, read_start(job.resume_from))  # its notes were said when the job was made
    return Ready(run, place, tokenizer, chat_template(run.data, tokenizer), prepared, source)


def build(ready: Ready) -> Training:
    """The model in training form and all around it, as before the first step. Raises InputError where the isolation
    proof fails."""
    run = ready.run
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_causal(ready.place, run, device, ready.notes)
    method = find_method(run.method)
    stores = [store for mixture in ready.prepared.sides for store in mixture.stores]
    check_fit(model, stores, str(run.model))
    ready.source.on_growth = partial(check_fit, model, ready.prepared.train.stores, str(run.model))
    _prove(model, ready)
    randomness = Randomness(run.seed)
    count_dropout(model.model, randomness)
    if checkpoints_activations(run):
        model.model.gradient_checkpointing_enable({"use_reentrant": False})
        if run.adapter is not None:
            model.model.enable_input_require_grads()
    optimizer = make_optimizer(model.trained().values(), run.optimizer)
    init_optimizer(optimizer)
    return Training(
        model=model,
        method=method,
        router=Router.of(model.config, run.method.router_aux_coef, run.method.router_aux_mode),
        source=ready.source,
        optimizer=optimizer,
        schedule=run.optimizer,
        randomness=randomness,
        validation=_validation(ready),
        skipped=Skipped(run.stop.nonfinite_steps),
        movement=Movement(model.trained()),
    )


def checkpoints_activations(run: Run) -> bool:
    """Whether activations are recomputed in the backward pass: as the run file says; auto means on a GPU."""
    return run.activation_checkpointing is True or (
        run.activation_checkpointing == "auto" and torch.cuda.is_available()
    )


def load_causal(place: ModelPlace, run: Run, device: torch.device, notes: list[str]) -> CausalModel:
    """The model as the run trains it: what is trained in fp32, what is frozen in the computation's dtype."""
    dtype, why = compute_dtype(run.precision, device)
    notes.append(f"precision: {str(dtype).removeprefix('torch.')} ({why}); what is trained is kept in float32")
    per_document = isolates(load_config(place)) is None
    kept = torch.float32 if run.adapter is None else dtype
    model = load_model(place, kept, per_document=per_document, seed=run.seed, device=device, notes=notes)
    if run.adapter is not None:
        model = add_adapter(model, run.adapter, run.seed)
    return CausalModel(model, dtype, per_document, device)


def place_of(run: Run, folder: Path | None = None) -> ModelPlace:
    """Where the run's model comes from; `folder` where it is known already."""
    if isinstance(run.model, str) and folder is not None:
        return ModelPlace(folder, trust_remote_code=run.trust_remote_code)
    if isinstance(run.model, str):
        return find_model(run.model, outlive_home(), run.trust_remote_code)
    return fresh_model(run.model.init.config, run.model.init.tokenizer)


def _micro_packs(run: Run, layout: Layout) -> int:
    """Packs of one forward: what the run file says, else as many as hold AUTO_MICRO_TOKENS."""
    if isinstance(run.batch.micro_sequences, int):
        return run.batch.micro_sequences
    tokens = run.batch.micro_tokens if isinstance(run.batch.micro_tokens, int) else AUTO_MICRO_TOKENS
    return max(1, min(layout.packs_per_step, tokens // layout.sequence_length))


def _prove(model: CausalModel, ready: Ready) -> None:
    plan = ready.source.plan(0)
    first = make_batch(plan, ready.prepared.train, plan.step_packs(0)[: ready.source.micro_packs])
    try:
        proof = prove_isolation(model, first)
    except (torch.OutOfMemoryError, MemoryError, InputError):
        raise
    except Exception as error:  # models run their own code, and not every one takes what ours hands to it
        raise InputError(
            f"the model can't be run on the first documents: {type(error).__name__}: {error}",
            where=f"model: {ready.run.model}",
            fix="this model can't be trained by the native engine; please report it",
        ) from error
    if not math.isfinite(proof.difference):
        raise InputError(
            "the model gives log-probabilities that are no numbers (NaN or infinite) before any training",
            where=f"model: {ready.run.model}",
            fix="look for broken weights, or a very large adapter.alpha",
        )
    if not proof.holds:
        raise InputError(
            f"documents that share a sequence do not give what transformers gives for each alone: log-probabilities "
            f"differ by {proof.difference:.3g} (rounding allows {proof.tolerance:.3g})",
            where=f"model: {ready.run.model}",
            fix="this model can't be trained by the native engine; please report it",
        )
    ready.notes.append(
        f"isolation proved on {proof.num_documents} documents: log-probabilities differ by {proof.difference:.2g} "
        f"from transformers' own"
    )


def _validation(ready: Ready) -> FixedBatches | None:
    if ready.prepared.validation is None:
        return None
    plan = validation_plan(ready.prepared.validation, ready.source.layout)
    return FixedBatches(plan, ready.prepared.validation, ready.source.micro_packs)
