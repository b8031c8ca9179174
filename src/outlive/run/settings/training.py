"""The sections that say how the model is trained: method, adapter, optimizer, batch, stop."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from outlive.run.settings.base import Count, Mistake, NotBuilt, Section, later
from outlive.run.settings.data import refuse_credentials

STORE_COLUMNS = ("input_ids", "labels", "weight", "sample_id", "group", "role", "prefix", "content_hash")


class Method(Section):
    """What is learned."""

    name: Annotated[
        Literal["sft"],
        later("dpo", "ipo", "orpo", "simpo", "cpo", "kto", "grpo", "gspo", "ppo", "rloo", "gkd", "distill", "reward"),
    ] = "sft"
    """What is minimised. For sft the cross-entropy of the next token, over the target tokens."""
    loss: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    """A loss of your own in place of the method's, as module:function."""
    columns: dict[str, Literal["token", "segment", "group"]] = Field(default_factory=dict)
    """Further columns of the rows that your own loss reads: one number per segment or per group."""
    router_aux_coef: Annotated[float, Field(ge=0)] | None = None
    """Coefficient of a mixture-of-experts model's load-balancing term; null takes the model's own, 0 leaves it out."""
    router_aux_mode: Literal["segment", "micro_batch"] = "segment"
    """Over what the load-balancing term is computed: each segment (the same in all batch layouts), or each micro-batch
    as in Hugging Face transformers."""

    @model_validator(mode="after")
    def _columns_fit(self) -> Method:
        if self.columns and self.loss is None:
            raise Mistake(
                f"{self.name} reads no further columns", key=("columns",), fix="name your own loss in method.loss"
            )
        for name, kind in self.columns.items():
            if kind == "token":
                raise Mistake("columns of tokens are not built in this version", key=("columns", name))
            if name in STORE_COLUMNS:
                fix = f"give the column another name in your rows, such as my_{name}"
                raise Mistake(f"the store has a column {name} of its own", key=("columns", name), fix=fix)
        return self


class Adapter(Section):
    """A small trained part beside frozen weights. Without this section all weights are trained."""

    kind: Annotated[Literal["lora"], later("qlora", "dora", "rslora", "pissa", "ia3", "oft", "vera", "adalora")] = (
        "lora"
    )
    """Which kind. LoRA puts low-rank matrices beside linear layers (Hu et al. 2021, arXiv:2106.09685)."""
    rank: Count = 16
    """Rank of the matrices."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """The adapter's output is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapter's inputs set to zero in training."""
    targets: Literal["all-linear"] | Annotated[list[str], Field(min_length=1)] = "all-linear"
    """Which layers get one: all linear layers but the head, or a list of layer names."""


class Optimizer(Section):
    """How gradients become steps."""

    decided_elsewhere: ClassVar[frozenset[str]] = frozenset({"lr"})

    name: Annotated[
        Literal["adamw"], later("adamw_8bit", "muon", "adafactor", "lion", "sgd", "adopt", "galore", "came", "dion")
    ] = "adamw"
    """Which one. AdamW is Adam with decoupled weight decay (Loshchilov and Hutter 2017, arXiv:1711.05101)."""
    lr: Annotated[float, Field(gt=0)] = 1e-4
    """Peak learning rate. When not given: 1e-4 with an adapter, 2e-5 for all weights, 3e-4 for a fresh model."""
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Field(strict=False)
    ] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square, per step."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second mean."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay, per unit of learning rate."""
    schedule: Annotated[
        Literal["cosine", "linear", "constant"],
        later("wsd", "warmup_stable_decay", "polynomial", "inverse_sqrt", "rex", "one_cycle", "cosine_with_restarts"),
    ] = "cosine"
    """How the learning rate goes from its peak to min_lr_ratio after the warm-up."""
    warmup: Annotated[float, Field(ge=0)] = 0.03
    """Linear warm-up from 0: below 1 a share of all steps, from 1 a number of steps."""
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Learning rate at the end, as a share of the peak (cosine and linear)."""
    schedule_steps: Count | None = None
    """Steps over which the schedule goes from the peak to its end, the warm-up included; null: all steps of the run.
    Steps after them have the learning rate of the end."""
    clip: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest norm of the whole gradient, above which it is scaled down; null for none."""

    @model_validator(mode="after")
    def _fit(self) -> Optimizer:
        if self.warmup >= 1 and not self.warmup.is_integer():
            raise Mistake(
                f"{self.warmup} is neither a share below 1 nor a whole number of steps",
                key=("warmup",),
                fix="set optimizer.warmup to, for example, 0.03 or 100",
            )
        if self.schedule == "constant" and self.min_lr_ratio > 0:
            raise Mistake(
                "a constant schedule has no end to go down to",
                key=("min_lr_ratio",),
                fix="remove optimizer.min_lr_ratio, or set optimizer.schedule to cosine or linear",
            )
        return self


class Batch(Section):
    """How much goes into one optimizer step, over all ranks, and how much into one pass of one device."""

    tokens: Count | None = None
    """Capacity of one optimizer step over all ranks, in tokens: whole packs of sequence_length are taken up to it. When
    neither tokens nor sequences is given: 16384."""
    sequences: Count | None = None
    """In place of tokens: model sequences (packs; with packing none, samples) per optimizer step over all ranks."""
    micro_tokens: Literal["auto"] | Count = "auto"
    """Capacity of one pass of one device, in tokens, with batch.tokens; auto chooses it."""
    micro_sequences: Literal["auto"] | Count = "auto"
    """Model sequences in one pass of one device, with batch.sequences; auto chooses it."""

    @model_validator(mode="after")
    def _one_measure(self) -> Batch:
        if self.tokens is not None and self.sequences is not None:
            raise Mistake(
                "batch.tokens and batch.sequences both say how large a step is", fix="keep one and remove the other"
            )
        if self.sequences is None and self.tokens is None:
            self.settle(tokens=16384)
        measure, other = ("tokens", "sequences") if self.sequences is None else ("sequences", "tokens")
        if getattr(self, f"micro_{other}") != "auto":
            raise Mistake(
                f"the step is measured in {measure}",
                key=(f"micro_{other}",),
                fix=f"set batch.micro_{measure} instead, or batch.{other} in place of batch.{measure}",
            )
        whole, micro = getattr(self, measure), getattr(self, f"micro_{measure}")
        if micro != "auto" and micro > whole:
            raise Mistake(
                f"one pass ({micro}) can't be larger than the whole step ({whole})",
                key=(f"micro_{measure}",),
                fix=f"raise batch.{measure} or lower batch.micro_{measure}",
            )
        return self


class Stop(Section):
    """When training ends: at whichever of the given ones is reached first."""

    epochs: Count | None = None
    """Passes over the training data. When none of epochs, steps and tokens is given: 2."""
    steps: Count | None = None
    """Optimizer steps."""
    tokens: Count | None = None
    """Tokens trained on, padding not counted."""
    nonfinite_steps: Count = 5
    """After so many steps in a row whose loss or gradient is no number, training stops. Each of them changes no
    weights and is counted."""
    early_stopping: Annotated[None, NotBuilt(None)] = None
    """Stop when the validation loss or an eval no longer improves."""

    @model_validator(mode="after")
    def _an_end(self) -> Stop:
        if self.epochs is None and self.steps is None and self.tokens is None:
            self.settle(epochs=2)
        return self


def _a_measure(value: Any) -> Any:
    if isinstance(value, str) and value != "validation_loss":
        raise Mistake(f"{value!r} is no measure of this version", fix="set checkpoint.best to validation_loss or null")
    return value


class Checkpoint(Section):
    """What is saved while training runs. Every checkpoint can be gone on from; the last step is always saved."""

    every: Count | None = 200
    """Steps between two checkpoints; null saves at the end only."""
    keep: Count | None = 3
    """How many of the newest checkpoints are kept, besides the best; null keeps all."""
    best: Annotated[Literal["validation_loss"], BeforeValidator(_a_measure)] | None = "validation_loss"
    """The measure by which the best checkpoint is chosen and kept; null chooses none. With validation_loss, each
    checkpoint is validated."""
    model: Literal["every", "best", "last"] = "every"
    """Which checkpoints also hold a model or adapter that can be served: every one, those that were the best so far
    when they were saved, or the last."""


class Export(Section):
    """What the finished run hands over."""

    dtype: Literal["bf16", "fp32", "fp16"] = "bf16"
    """Number format of the saved weights."""
    merged: bool = False
    """At the end, also save the base model with the adapter merged in, as model/ beside adapter/."""
    gguf: Annotated[str | None, NotBuilt(None)] = None
    """Also save a GGUF file of this quantisation."""
    hub: str | None = None
    """At the end, also upload what was saved to this repository of the Hugging Face hub, as ORG/NAME. One that is not
    there yet is made private. The token comes from the environment."""

    @field_validator("hub")
    @classmethod
    def _no_token(cls, value: str | None) -> str | None:
        return None if value is None else refuse_credentials(value)
