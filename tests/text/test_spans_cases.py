"""Promise: for every template of the cases and every shape, masks are right in all that can be checked, or refused.

The table in docs/templates.md is made here: OUTLIVE_WRITE_DOCS=1 writes it anew, else it is compared.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.text.chat import Chat
from outlive.text.refusal import REASONS, Refusal
from outlive.text.shapes import SHAPES as CERTIFIED
from outlive.text.spans import spans
from outlive.text.template import ChatTemplate
from outlive.text.written import Written, written
from tests.fixtures import cases
from tests.text import oracle
from tests.text.conversations import ENDS, ENDS_OF, SHAPES, Message, assistant, user

FOLDER = cases() / "templates"
PATHS = sorted(FOLDER.glob("*.jinja"))
PAGE = Path(__file__).parents[2] / "docs" / "templates.md"
pytestmark = pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")

_TWO = [user("Hi"), assistant("Hello!"), assistant("More?"), user("No"), assistant("Ok.")]
CHATS = {name: SHAPES[name] for name in ("plain", "system", "reasoning", "think in content", "tools")}
CHATS |= {"two in a row": (_TWO, None), "ends with user": SHAPES["ends with user"]}
# The shapes of a certificate, so that the table says what `inspect --certify` says of each.
TABLE = {name: (list(shape.messages), shape.tools) for name, shape in CERTIFIED.items()}
# Tokens of the next role that end a turn: models of these templates stop on them.
NEXT_ROLE = ("<|user|>", "<|observation|>", "<|tools_suffix|>")


class Pair(NamedTuple):
    """What became of one template and one shape: texts to train on, a refusal, or None where it does not render."""

    name: str
    shape: str
    made: list[Written] | Refusal | None
    is_fit: bool
    holds: bool

    @property
    def accepted(self) -> bool:
        return isinstance(self.made, list)


@cache
def tokens_of(path: Path) -> tuple[str, ...]:
    """The special tokens that stand in a template, as ORIGIN.tsv lists them."""
    found = {"<s>", "</s>"}
    with (FOLDER / "ORIGIN.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["file"] == path.name:
                found.update((row["special_tokens"] or "").split())
    return tuple(sorted(found))


@cache
def template_of(path: Path) -> ChatTemplate:
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(path.read_text("utf-8"), names, ("</s>",), "2025-01-31", added_tokens=tokens_of(path))


def tried(
    template: ChatTemplate, messages: list[Message], tools: list[Message] | None = None
) -> list[Written] | Refusal:
    try:
        return written(template, messages, tools=tools)
    except Refusal as refusal:
        return refusal


@cache
def pairs(certified: bool = False) -> list[Pair]:
    """Every template with every one of CHATS; `certified`: of TABLE."""
    found = []
    for path in PATHS:
        template, tokens = template_of(path), list(tokens_of(path))
        for shape, (messages, tools) in (TABLE if certified else CHATS).items():
            if oracle.render(template, messages, tools) is None:
                found.append(Pair(path.name, shape, None, False, False))
                continue
            holds = oracle.holds(template, messages, tools)
            fit = holds and oracle.closes(template, messages, tools, tokens)
            found.append(Pair(path.name, shape, tried(template, messages, tools), fit, holds))
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_wrong_span_is_accepted(path: Path) -> None:
    template, tokens = template_of(path), list(tokens_of(path))
    known = {*ENDS_OF.get(path.name, ENDS), *NEXT_ROLE}
    for shape, (messages, tools) in {**SHAPES, **CHATS, **TABLE}.items():
        made = tried(template, messages, tools)
        if isinstance(made, Refusal):
            assert made.reason in REASONS, shape
            assert made.detail, shape
            continue
        oracle.check(template, messages, tools, made, tokens)
        for one in made:
            for span in one.spans:
                assert one.text[: span.end].endswith(tuple(known)), one.text[: span.end][-40:]


def test_nearly_all_that_can_be_trained_on_is_accepted() -> None:
    fit = [pair for pair in pairs() if pair.is_fit]
    assert sum(pair.accepted for pair in fit) / len(fit) >= 0.95
    calls = [pair for pair in pairs() if pair.shape == "tools" and pair.holds]
    assert sum(pair.accepted for pair in calls) / len(calls) >= 0.85


def test_the_table_in_the_documentation_is_this_one() -> None:
    table = "\n".join(table_lines())
    page = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- table: made by tests/text/test_spans_cases.py -->\n", "\n<!-- end of table -->"
    head, _, rest = page.partition(start)
    old, _, tail = rest.partition(end)
    if os.environ.get("OUTLIVE_WRITE_DOCS"):
        PAGE.write_text(head + start + table + end + tail, encoding="utf-8")
    else:
        assert old == table


def table_lines() -> list[str]:
    found = pairs(certified=True)
    # arguments as text only find out which form a template wants: a row's are given to it in that one
    fit = [pair for pair in found if pair.is_fit and pair.shape != "tools, arguments as text"]
    calls = [pair for pair in found if pair.shape == "tools" and pair.holds]
    hows = Counter(pair.made[-1].how for pair in found if isinstance(pair.made, list))
    reasons = Counter(pair.made.reason for pair in found if isinstance(pair.made, Refusal))
    lines = [
        f"{len(PATHS)} templates × {len(TABLE)} shapes: {sum(pair.made is not None for pair in found)} pairs render, "
        f"{sum(hows.values())} are accepted ({', '.join(f'{how} {number}' for how, number in sorted(hows.items()))}), "
        f"{sum(reasons.values())} refused ({', '.join(f'{why} {n}' for why, n in reasons.most_common())}).",
        "",
        f"Of the {len(fit)} pairs whose render holds all of the answers and closes them with a token or with the next "
        f"role's token, {sum(pair.accepted for pair in fit)} are accepted; of the {len(calls)} pairs with tools whose "
        f"render holds the call's name and arguments, {sum(pair.accepted for pair in calls)}. (Arguments as text "
        "are not among them: they find out which form a template wants, and a row's are given to it in that one.)",
        "",
        f"| template | {' | '.join(TABLE)} |",
        f"|---{'|---' * len(TABLE)}|",
    ]
    for path in PATHS:
        cells = [_cell(pair.made) for pair in found if pair.name == path.name]
        lines.append(f"| {path.stem} | {' | '.join(cells)} |")
    return lines


def _cell(made: list[Written] | Refusal | None) -> str:
    if made is None:
        return "does not render"
    return f"*{made.reason}*" if isinstance(made, Refusal) else made[-1].how


def test_no_word_of_another_message_is_inside() -> None:
    messages = [user("aardvark"), assistant("bassoon"), user("cutlass"), assistant("dirigible"), user("ellipse")]
    words = [message["content"] for message in messages]
    checked = 0
    for path in PATHS:
        made = tried(template_of(path), messages)
        if isinstance(made, Refusal):
            continue
        for one in made:
            for span in one.spans:
                text = one.text[span.start : span.end]
                assert [word for word in words if word in text] == [words[span.turn]], (path.name, text)
                checked += 1
    assert checked > 130


def test_the_traced_text_is_the_plain_one_and_each_character_is_where_it_says() -> None:
    for path in PATHS:
        template = template_of(path)
        for messages, tools in SHAPES.values():
            if oracle.render(template, messages, tools) is None:
                continue
            chat = Chat(template, messages, tools)
            assert chat.trace.text == chat.full
            for run in chat.trace.runs:
                if run.is_literal:
                    said = chat.trace.sources[run.source].text[run.first : run.last]
                    assert chat.full[run.start : run.end].lower() == said.lower(), (path.name, run)


def test_marks_of_templates_agree_up_to_the_prompt_and_the_line_break_after() -> None:
    """{% generation %} marks were set by hand. They may hold a piece of the generation prompt, or the line break after
    the end of turn (which no model writes), and an end that is missing; apart from that they are these spans."""
    compared = 0
    messages, _ = SHAPES["one turn"]
    for path in PATHS:
        template = template_of(path)
        made = tried(template, messages)
        if not template.has_generation_marks or isinstance(made, Refusal) or made[0].how == "served":
            continue
        full, marks = template.render_marked(messages)
        if len(marks) != 1:
            continue
        (span,), (start, end) = made[0].spans, marks[0]
        prompt = template.render(messages[:1], add_generation_prompt=True)
        assert span.start == max(start, len(prompt)), path.name
        assert not full[span.end : end].strip(), path.name
        assert not full[end : span.end].strip() or full[end : span.end] in tokens_of(path), path.name
        compared += 1
    assert compared >= 8


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="<>|[]{}"), min_size=1)
SAID = WORDS.map(lambda text: text.strip() or "so").filter(lambda text: "think" not in text.lower())


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PATHS), st.lists(st.tuples(SAID, SAID), min_size=1, max_size=3))
def test_decoded_targets_are_the_answers_and_their_end_of_turn(path: Path, turns: list[tuple[str, str]]) -> None:
    """Whatever is said: what is trained of a plain chat is each answer and an end of turn, after the served prompt."""
    template = template_of(path)
    messages = [message for asked, said in turns for message in (user(asked), assistant(said))]
    made = tried(template, messages)
    if isinstance(made, Refusal):
        plain = tried(template, SHAPES["plain"][0])
        assert isinstance(plain, Refusal) or made.reason == "template_error", (made, path.name)
        return
    oracle.check(template, messages, None, made, list(tokens_of(path)))
    around = scaffolds(path)
    found = [one.text[span.start : span.end] for one in made for span in one.spans]
    for text, (_, said) in zip(found, turns, strict=True):
        assert any(text == head + said + tail for head, tail in around), (path.name, text, said)


@cache
def scaffolds(path: Path) -> set[tuple[str, str]]:
    """What a template writes around an answer within its span."""
    found = set()
    for shape in ("plain", "one turn"):
        messages, _ = SHAPES[shape]
        made = tried(template_of(path), messages)
        for one in made if isinstance(made, list) else []:
            for span in one.spans:
                head, _, tail = one.text[span.start : span.end].partition(messages[span.turn]["content"])
                found.add((head, tail))
    return found


def test_a_span_of_the_whole_render_is_the_same_with_and_without_other_turns() -> None:
    messages, _ = SHAPES["plain"]
    for path in PATHS:
        try:
            found = spans(template_of(path), messages)
        except Refusal:
            continue
        assert spans(template_of(path), messages, turns=[3]) == found[1:]
