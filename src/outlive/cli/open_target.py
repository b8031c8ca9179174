"""What `inspect` is pointed at, opened: a file of rows, a run file, a run folder or a store: all as one stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.data.conversation import Conversation
from outlive.data.ledger import Ledger
from outlive.data.rows_file import check_rows_file, compression
from outlive.run.errors import InputError
from outlive.text.refusal import Refusal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from outlive.data.naming import Naming
    from outlive.data.pipeline import RowResult
    from outlive.data.rows import Row
    from outlive.data.sample_turns import Turn
    from outlive.data.samples import SampleMaker
    from outlive.text.template import ChatTemplate
    from outlive.text.tokenizer import Tokenizer

RUN_FILES = (".yaml", ".yml")


@dataclass(frozen=True)
class Options:
    """What the command line says about how rows become tokens. None: not said. `limit`: rows of each source."""

    tokenizer: Path | None = None
    chat_template: Path | None = None
    loss_on: str | None = None
    turn_end: str | None = None
    sequence_length: int | None = None
    overlong: str | None = None
    system: str | None = None
    format: str | None = None
    limit: int | None = None
    special: tuple[str, ...] = ()

    def said(self, *names: str) -> dict[str, Any]:
        """The options among `names` that were given."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


POLICY = ("loss_on", "turn_end", "sequence_length", "overlong", "system")


@dataclass(frozen=True)
class Item:
    """One sample of a row, or the row's conversation where there is no tokenizer, or its refusal.

    tokens int32 [L]; weights float32 [L], as in a sample. `trained`: the turns of the conversation that carry loss.
    `about`: role and prefix of a sample that belongs to a group; file and line of a row that is refused. `turns`: makes
    what is known of the messages that its tokens come from, which takes as long as the sample did.
    """

    row: int
    part: int = 0
    tokens: npt.NDArray[np.int32] | None = None
    weights: npt.NDArray[np.float32] | None = None
    conversation: Conversation | None = None
    trained: list[int] = field(default_factory=list)
    lints: list[str] = field(default_factory=list)
    refusal: Refusal | None = None
    about: dict[str, Any] = field(default_factory=dict)
    turns: Callable[[], list[Turn] | None] = lambda: None


@dataclass
class SourceRows:
    """The rows of one source. The ledger, which has the lints, is full once `items` is used up. `side`: of a store."""

    name: str
    items: Iterator[Item]
    ledger: Ledger
    side: str = "train"


@dataclass
class Opened:
    """A target: its sources, the tokenizer that decodes them (None: text only), facts and notes for the reader."""

    sources: list[SourceRows]
    tokenizer: Tokenizer | None
    facts: dict[str, str]
    notes: list[str] = field(default_factory=list)


def open_target(named: str, options: Options) -> Opened:
    """Open whatever is named. Raises InputError where it is nothing that can be looked into."""
    target = Path(named)
    if options.special and (target.is_dir() or target.suffix in RUN_FILES or options.tokenizer is None):
        raise InputError("--special is for rows, with a tokenizer", fix="name a file of rows and --tokenizer DIR")
    if target.is_dir():
        from outlive.cli.open_store import open_run_folder, open_store

        if (target / "run.yaml").exists():
            return open_run_folder(target, options)
        if _is_store(target / "manifest.json"):
            return open_store(target, options)
    if target.suffix in RUN_FILES:
        from outlive.cli.open_store import open_run_file

        return open_run_file(target, options)
    return open_rows(named, options)


def open_rows(path: str, options: Options) -> Opened:
    """Bare files of rows: as samples where a tokenizer is named, else as text."""
    notes: list[str] = []
    files = files_of(path, notes)
    ledger = Ledger(path, format=options.format or "", format_reason="named by --format")
    if options.tokenizer is None:
        return _as_texts(files, options, ledger, notes)
    tokenizer = load_tokenizer(options.tokenizer)
    tokenizer.add_special(options.special)
    template = read_template(options.chat_template, tokenizer)
    facts = {
        "tokenizer": f"{tokenizer.folder} ({tokenizer.vocab_size:,} tokens)",
        "chat template": _template_name(options.chat_template, template),
    }
    policy = options.said(*POLICY)
    facts |= {"loss on": policy.get("loss_on", "assistant"), "turn end": policy.get("turn_end", "end_of_turn")}
    facts |= {name.replace("_", " "): str(policy[name]) for name in POLICY[2:] if name in policy}
    source = as_samples(files, tokenizer, template, policy, ledger, options.limit, groups=True)
    return Opened([source], tokenizer, facts, notes)


def as_samples(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    policy: dict[str, Any],
    ledger: Ledger,
    limit: int | None = None,
    columns: dict[str, Any] | None = None,
    naming: Naming | None = None,
    groups: bool = False,
    share: float = 0.0,
) -> SourceRows:
    """The rows of files as the samples that training would see; `share` of them, which are counted, in validation."""
    from outlive.data.chunks import side_of
    from outlive.data.pipeline import RowReader, read_samples
    from outlive.data.samples import Policy, SampleMaker

    maker = SampleMaker(tokenizer, template, Policy(**policy), groups=groups)
    reader = RowReader(ledger.source, maker, columns, naming)

    def items() -> Iterator[Item]:
        for result in read_samples(files, reader, ledger, limit):
            row = result.row.index
            if result.refusal is not None:
                if result.refusal.reason == "no_template":
                    raise _no_template(tokenizer)
                yield Item(row, refusal=result.refusal, about=_place(result.row, ledger))
                continue
            ledger.validation_rows += side_of(result.content_hash, share) == "validation"
            turns = _turns_later(maker, result)
            for place, sample in enumerate(result.samples):
                about = {"role": sample.role, "prefix": sample.prefix} if sample.coupled else {}
                names = list(result.lints)
                of_sample = partial(turns, place)
                yield Item(row, sample.part, sample.tokens, sample.weights, None, [], names, None, about, of_sample)

    return SourceRows(ledger.source, items(), ledger)


def _place(row: Row, ledger: Ledger) -> dict[str, Any]:
    """Where a row that is left out stands."""
    return {"file": row.file or ledger.source, "line": row.line}


def _turns_later(maker: SampleMaker, result: RowResult) -> Callable[[int], list[Turn] | None]:
    """What gives the turns of a row's samples, by place, once somebody asks."""
    from outlive.data.sample_turns import turns_of

    @cache
    def found() -> list[list[Turn]] | None:
        return turns_of(maker, result.conversation, result.samples) if result.conversation is not None else None

    def of_sample(place: int) -> list[Turn] | None:
        known = found()
        return known[place] if known is not None else None

    return of_sample


def files_of(path: str, notes: list[str]) -> Sequence[Path]:
    """The files that a path, a pattern or a URL stands for. Raises InputError."""
    place = Path(path)
    if place.is_file() and compression(place) is None:  # as most are: what else there is need not be loaded
        check_rows_file(place)
        return [place]
    from outlive.data.sources import resolve_path

    return resolve_path(path, notes.append).files


def _as_texts(files: Sequence[Path], options: Options, ledger: Ledger, notes: list[str]) -> Opened:
    from outlive.data.texts import read_texts

    if unused := options.said("chat_template", *POLICY[1:]):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise InputError(f"{names} says nothing without a tokenizer", fix="name one: --tokenizer DIR")

    def items() -> Iterator[Item]:
        for result in read_texts(files, ledger, options.loss_on or "assistant", options.limit):
            row = result.row.index
            if result.refusal is not None or result.conversation is None:
                yield Item(row, refusal=result.refusal, about=_place(result.row, ledger))
            else:
                names = list(result.lints)
                yield Item(row, conversation=result.conversation, trained=result.trained, lints=names)

    notes.append("this is the text of the rows, since no tokenizer was named: --tokenizer DIR shows the tokens")
    return Opened([SourceRows(ledger.source, items(), ledger)], None, {}, notes)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder; the tokenizer.json itself may be named too."""
    from outlive.text.tokenizer import Tokenizer

    return Tokenizer.load(folder.parent if folder.name == "tokenizer.json" else folder)


def read_template(file: Path | None, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The template in `file`, else the tokenizer's own, else None. Raises InputError where it can't be read."""
    from outlive.text.template import ChatTemplate

    if file is None:
        return ChatTemplate.of(tokenizer) if tokenizer.chat_template is not None else None
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "name a Jinja file in UTF-8; its path is relative to the current directory"
        raise InputError(f"the chat template cannot be read: {error}", where=str(file), fix=fix) from None
    return ChatTemplate.of(tokenizer, source, name=str(file))


def _is_store(manifest: Path) -> bool:
    try:
        return "store_version" in dict(json.loads(manifest.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _template_name(file: Path | None, template: ChatTemplate | None) -> str:
    if file is not None:
        return str(file)
    return "the tokenizer's own" if template is not None else "none"


def _no_template(tokenizer: Tokenizer) -> InputError:
    named = f", only named ones: {', '.join(sorted(tokenizer.chat_templates))}" if tokenizer.chat_templates else ""
    return InputError(
        f"the rows are chats, and the tokenizer has no chat template{named}",
        where=str(tokenizer.folder),
        fix="name a template file: --chat-template FILE (in a run file: data.chat_template)",
    )
