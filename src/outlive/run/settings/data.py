"""The `data` section: which rows are trained on, and which of their tokens carry loss."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from outlive.run.credentials import has_credentials
from outlive.run.settings.base import Count, Mistake, Section, Share, Whole


def refuse_credentials(value: str) -> str:
    """Raise Mistake when a text holds a URL with a user or a token in it: those never reach a run folder."""
    if has_credentials(value):
        raise Mistake("a URL with credentials in it", fix="take them out; credentials come from the environment only")
    return value


# The formats of rows that are read; docs/formats.md shows a row of each.
RowFormat = Literal[
    "messages", "prompt_completion", "text", "sharegpt", "conversation_pairs", "input_output", "tokens",
    "alpaca", "gpteacher", "dolly", "reflection", "oasst", "question_answer", "jeopardy", "context_qa", "article_qa",
    "multiple_choice", "explained_choice", "summarize_tldr", "open_orca", "camel_ai", "metharme", "prompt_response",
    "query_response", "revision", "preference", "chosen", "ranking", "kto", "prompt_answer", "stepwise",
]  # fmt: skip


class Source(Section):
    """One source of rows: files (`path`), or a data set of the Hugging Face hub (`hub`)."""

    omit_null: ClassVar[bool] = True  # written out without its null keys: a source has either path or hub

    path: str | None = None
    """A file of rows (JSON Lines, a JSON array, Parquet, Arrow or CSV, also compressed), a folder of them, a pattern
    such as data/*.jsonl, or a URL (s3://, gs://, https://, hf://). Relative to the current directory, not to the run
    file."""
    hub: str | None = None
    """A data set of the Hugging Face hub, as org/name."""
    subset: str | None = None
    """Which of a hub data set's configurations, where it has several."""
    split: str | None = None
    """Which split of a hub data set; null means train."""
    revision: str | None = None
    """Commit, tag or branch of a hub data set; null means its newest, which the lock pins."""
    limit: Count | None = None
    """Take only the first so many rows."""
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """How often the source's samples are taken, in the unit of data.mix_by: passes over the source per pass over the
    data (1 takes each sample once per epoch), or a share of the samples or tokens relative to the other sources."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """At most so many passes over the source in the whole run, after which data.used_up says what happens. Null sets
    no limit."""
    format: RowFormat | None = None
    """What a row holds (docs/formats.md lists all); null detects it from the first rows and reports it."""
    fields: dict[str, str] | None = None
    """Other names of columns: ours → the source's, which may be a dotted path such as data.turns. Keys of messages are
    named too: message.role, message.content."""
    roles: dict[str, str] | None = None
    """Other names of roles: the source's → ours (system, developer, user, assistant, tool)."""

    @field_validator("path", "hub")
    @classmethod
    def _named(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise Mistake("an empty name")
        return None if value is None else refuse_credentials(value)

    @model_validator(mode="after")
    def _one_place(self) -> Source:
        if (self.path is None) == (self.hub is None):
            raise Mistake("a source is either a path or a hub data set", fix="set exactly one of path and hub")
        for key in ("subset", "split", "revision"):
            if self.path is not None and getattr(self, key) is not None:
                raise Mistake(
                    "only hub data sets have this", key=(key,), fix=f"remove {key}, or use hub instead of path"
                )
        return self


def _a_validation(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        raise Mistake("0 is no share", fix="set it to null for no validation, or to a share between 0 and 1")
    return value


def _validation_kind(value: Any) -> str:
    return "share" if isinstance(value, int | float) else "sources"


class Data(Section):
    """Where the rows come from and how they become tokens and weights."""

    train: Annotated[list[Source], Field(min_length=1)]
    """The sources to train on."""
    mix_by: Literal["passes", "rows", "tokens"] = "passes"
    """What the sources' weights count: passes over each source, or shares of the samples (rows) or of the tokens."""
    pass_ends: Literal["all", "first"] = "all"
    """With shares, when a pass over the data (stop.epochs) ends: when all sources were seen once, so that small ones
    are seen several times, or as soon as the first was."""
    used_up: Literal["drop", "stop"] = "drop"
    """What happens when a source has taken its epochs: the others go on without it, or the run ends there."""
    order: Literal["global", "windowed"] = "global"
    """How a pass is shuffled and packed: as a whole (global), or (windowed) in the order of the sources, mixed evenly,
    within windows: for data whose order means something, or which is very large."""
    window: Annotated[Whole, Field(ge=1, le=2**31)] = 65536
    """Samples of one window."""
    train_while_preparing: bool = False
    """Begin to train as soon as the first window is prepared, while another process prepares the rest. For one source
    in windows; the steps are those that the finished data give."""
    validation: (
        Annotated[
            Annotated[Share, Tag("share")] | Annotated[list[Source], Field(min_length=1), Tag("sources")],
            Discriminator(_validation_kind),
            BeforeValidator(_a_validation),
        ]
        | None
    ) = 0.05
    """What the validation loss is measured on: a share of the training rows between 0 and 1 (split by content, so that
    equal rows land on one side), a list of sources of its own, or null for none."""
    validation_overlap: Literal["refuse", "allow"] = "refuse"
    """What to do when validation sources of their own share rows with the training sources."""
    sequence_length: Annotated[Whole, Field(ge=2, le=2**24)] = 2048
    """Length of one model sequence, in tokens."""
    loss_on: Literal["assistant", "last_assistant", "completion", "all"] = "assistant"
    """Which tokens are targets: every assistant turn, the last one, the completion of prompt and completion rows, or
    all tokens."""
    turn_end: Literal["content", "end_of_turn", "suffix"] = "end_of_turn"
    """Where a trained turn ends: at its content, with its end-of-turn token (so that the model learns to stop), or with
    all that the template writes after it."""
    overlong: Literal["drop", "truncate", "split"] = "drop"
    """Samples longer than sequence_length: dropped, cut at the end, or split into parts. Always counted and shown."""
    bad_rows: Literal["refuse", "drop"] = "refuse"
    """Rows that can't be trained on: stop and list them, or drop and count them."""
    packing: Literal["best_fit", "none", "concatenate"] = "best_fit"
    """How samples fill model sequences: whole samples packed tightly, one sample each, or end to end with cuts. Samples
    in one pack never see each other."""
    processes: Count | None = None
    """How many processes prepare the data; null: as many as this machine lets the run use and
    the rows are worth. It changes no token."""
    tokenize_with: Literal["auto", "tokenizers", "fastokens"] = "auto"
    """What gives the tokens' ids, which are the same: auto takes fastokens where it is installed and shows in a test on
    this tokenizer that it is as exact as tokenizers; a sample of the texts is compared all the way."""
    chat_template: str | None = None
    """A Jinja file used instead of the tokenizer's chat template. Relative to the current directory."""
    system: str | None = None
    """A system text for conversations that have none."""
    date: str | None = None
    """The date that templates which print today's date see, as YYYY-MM-DD; null takes the day of the first prepare,
    which the lock keeps."""

    @model_validator(mode="after")
    def _mixed(self) -> Data:
        """Keys that would say nothing beside the others are refused, not ignored."""
        idle = {
            "pass_ends": (self.pass_ends != "all" and self.mix_by == "passes", "mix_by: rows or tokens"),
            "used_up": (
                self.used_up != "drop" and all(one.epochs is None for one in self.train),
                "epochs of a source in data.train",
            ),
            "window": (self.window != 65536 and self.order == "global", "order: windowed"),
        }
        for key, (says_nothing, other) in idle.items():
            if says_nothing:
                raise Mistake(f"it says something only with {other}", key=(key,), fix=f"set {other}, or remove {key}")
        if self.train_while_preparing:
            self._refuse_what_needs_all_rows()
        if isinstance(self.validation, list):
            for place, one in enumerate(self.validation):
                if one.epochs is not None:
                    where = ("validation", place, "epochs")
                    raise Mistake("validation takes each row once", key=where, fix="remove epochs")
        return self

    def _refuse_what_needs_all_rows(self) -> None:
        own = isinstance(self.validation, list)
        plain = all(one.weight == 1 and one.epochs is None for one in self.train) and self.mix_by == "passes"
        needed = {
            "order: windowed": self.order == "windowed",
            "a single source in data.train": len(self.train) == 1,
            "mix_by: passes, with a weight of 1 and no epochs": plain,
            "validation: null, or sources of its own": self.validation is None or own,
            "validation_overlap: allow": self.validation_overlap == "allow" or not own,
            "bad_rows: drop": self.bad_rows == "drop",
        }
        for need, is_met in needed.items():
            if not is_met:
                raise Mistake(
                    f"training that begins before all rows were read needs {need}",
                    key=("train_while_preparing",),
                    fix=f"set {need}, or remove train_while_preparing",
                )

    @field_validator("date")
    @classmethod
    def _a_date(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                datetime.datetime.strptime(value, "%Y-%m-%d")
            except ValueError:
                raise Mistake(f"{value!r} is not a date", fix="write it as YYYY-MM-DD") from None
        return value
