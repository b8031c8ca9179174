"""The run file as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from outlive.run.folder import name_mistake
from outlive.run.settings.base import Mistake, NotBuilt, Section, Whole, later
from outlive.run.settings.data import Data, refuse_credentials
from outlive.run.settings.training import Adapter, Batch, Checkpoint, Export, Method, Optimizer, Stop

SCHEMA_VERSION = 1


class Init(Section):
    """What a fresh model is made from."""

    config: Annotated[
        Annotated[str, Tag("path")] | Annotated[dict[str, Any], Tag("values")],
        Discriminator(lambda value: "path" if isinstance(value, str) else "values"),
    ]
    """A Hugging Face config: its file or folder, or its values (model_type and sizes)."""
    tokenizer: str
    """The folder of the tokenizer."""


class FreshModel(Section):
    """A model with new, random weights, drawn from the run's seed."""

    init: Init
    """Config and tokenizer of the fresh model."""

    def __str__(self) -> str:
        kind = self.init.config if isinstance(self.init.config, str) else self.init.config.get("model_type", "model")
        return f"fresh {kind}"


class Run(Section):
    """A whole run, as plain data. Relative paths are relative to the current directory, not to the run file."""

    schema_version: Literal[1] = 1
    """Version of this file's keys."""
    name: str = "run"
    """Name of the run folder, runs/<name>. When not given: the run file's name without its ending; without a run file,
    model and data."""
    model: Annotated[
        Annotated[str, Tag("name")] | Annotated[FreshModel, Tag("fresh")],
        Discriminator(lambda value: "name" if isinstance(value, str) else "fresh"),
    ]
    """What is trained: a Hugging Face hub id, a folder, a .gguf file, or for a fresh one
    {init: {config: …, tokenizer: …}}."""
    data: Data
    """Where the rows come from and how they become tokens and weights."""
    method: Method = Method()
    """What is learned."""
    adapter: Adapter | None = None
    """A small trained part beside frozen weights. Without this section all weights are trained."""
    optimizer: Optimizer = Optimizer()
    """How gradients become steps."""
    batch: Batch = Batch()
    """How much goes into one optimizer step, over all ranks, and how much into one pass of one device."""
    stop: Stop = Stop()
    """When training ends: at whichever of the given ones is reached first."""
    precision: Annotated[Literal["auto", "fp32", "bf16"], later("fp16", "fp8")] = "auto"
    """Number format of the computation; weights that are trained are kept in fp32. auto: bf16 where the hardware
    computes it, else fp32."""
    parallel: Annotated[dict[str, int], NotBuilt({})] = Field(default_factory=dict)
    """How the work is split over devices."""
    activation_checkpointing: bool | Literal["auto"] = "auto"
    """Recompute activations in the backward pass, to save memory. auto: off on a CPU."""
    checkpoint: Checkpoint = Checkpoint()
    """What is saved while training runs."""
    export: Export = Export()
    """What the finished run hands over."""
    evals: Annotated[list[Any], NotBuilt([])] = Field(default_factory=list)
    """Tasks that are scored while training runs."""
    track: Annotated[list[Any], NotBuilt([])] = Field(default_factory=list)
    """Trackers that the metrics are sent to."""
    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 0
    """Seed of everything random: order of the data, dropout, new weights."""
    engine: Annotated[
        Literal["native"],
        later("trl", "axolotl", "llamafactory", "swift", "unsloth", "torchtitan", "nemo", "verl", "oumi"),
    ] = "native"
    """What trains. The native engine is Outlive's own loop."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model's files. Off unless you trust whoever wrote them."""

    @field_validator("name")
    @classmethod
    def _a_folder_name(cls, value: str) -> str:
        if reason := name_mistake(value):
            raise Mistake(reason, fix="use letters, digits, - and _")
        return value

    @field_validator("model")
    @classmethod
    def _a_model(cls, value: str | FreshModel) -> str | FreshModel:
        if isinstance(value, str):
            if not value.strip():
                raise Mistake("an empty name", fix="name a hub id, a folder or a .gguf file")
            refuse_credentials(value)
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Run:
        if "lr" not in self.optimizer.model_fields_set:
            lr = 1e-4 if self.adapter else 2e-5 if isinstance(self.model, str) else 3e-4
            self.settle(optimizer=self.optimizer.model_copy(update={"lr": lr}))
        if self.adapter and not isinstance(self.model, str):
            raise Mistake(
                "an adapter beside fresh weights could not be used: it is saved alone, and they are not",
                key=("adapter",),
                fix="remove the adapter section: a fresh model is trained whole",
            )
        if self.export.merged and not self.adapter:
            raise Mistake(
                "there is no adapter to merge: all weights are trained",
                key=("export", "merged"),
                fix="remove export.merged: model/ holds the whole model",
            )
        if self.data.train_while_preparing and (self.stop.steps is None or self.stop.epochs or self.stop.tokens):
            raise Mistake(
                "how many steps an epoch or so many tokens take is known only when all rows are prepared",
                key=("data", "train_while_preparing"),
                cause=("stop",),
                fix="set stop.steps, and neither stop.epochs nor stop.tokens",
            )
        length = self.data.sequence_length
        for key in ("tokens", "micro_tokens"):
            size = getattr(self.batch, key)
            if isinstance(size, int) and size < length:
                raise Mistake(
                    f"{size} is less than one pack of data.sequence_length ({length})",
                    key=("batch", key),
                    cause=("data", "sequence_length"),
                    fix=f"set batch.{key} to {length} or more, or lower data.sequence_length",
                )
        if self.stop.steps is not None and 1 <= self.stop.steps <= self.optimizer.warmup:
            raise Mistake(
                f"the warm-up ({self.optimizer.warmup:g} steps) would not end before the run ({self.stop.steps} steps)",
                key=("optimizer", "warmup"),
                cause=("stop", "steps"),
                fix="lower optimizer.warmup or raise stop.steps",
            )
        return self

    @classmethod
    def load(cls, path: Path | str, *overrides: str) -> Run:
        """The run of a run file, with overrides such as "optimizer.lr=1e-5". Raises InputError (exit code 2)."""
        from outlive.run.load import load_run

        return load_run(path, list(overrides)).run

    def to_yaml(self) -> str:
        """The resolved run as a run file that loads to an equal run."""
        from outlive.run.yaml_file import dump

        return dump(plain(self))


def plain(section: Section) -> dict[str, Any]:
    """A section as dicts, lists, texts and numbers, every key in the order of its model."""
    omit_null = getattr(section, "omit_null", False)
    values = {name: _plain(getattr(section, name)) for name in type(section).model_fields}
    return {name: value for name, value in values.items() if value is not None or not omit_null}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
