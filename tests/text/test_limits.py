"""Promise: whatever a template tries, it is stopped by a count of its work and of its text, and told apart from a row
that it refuses; and real templates never come near."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.text.refusal import Refusal
from outlive.text.render import environment, limits
from outlive.text.render.meter import Meter
from outlive.text.render.trace import trace
from outlive.text.spans import spans
from outlive.text.template import ChatTemplate, TemplateError, plain_messages
from tests.fixtures import cases
from tests.text.conversations import assistant, user
from tests.text.nasty import NASTY


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the real limits: the same counts, sooner."""
    monkeypatch.setattr(limits, "MAX_STEPS", 200_000)
    monkeypatch.setattr(limits, "MAX_CHARACTERS", 16_000_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("what", NASTY)
def test_it_is_stopped(what: str) -> None:
    with pytest.raises(TemplateError) as stopped:
        ChatTemplate(NASTY[what], name="theirs.jinja").render([user("Hi")])
    error = stopped.value
    assert (error.reason, error.exit_code) == ("limit", 2), error.detail
    assert "stopped: " in error.what
    assert "theirs.jinja" in str(error.where)
    assert error.fix


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("what", NASTY)
def test_it_is_stopped_too_where_texts_carry_their_origin(what: str) -> None:
    with pytest.raises(TemplateError) as stopped:
        trace(ChatTemplate(NASTY[what]), [user("Hi")], tools=None, add_generation_prompt=False)
    assert stopped.value.reason == "limit", stopped.value.detail


def test_the_line_is_named() -> None:
    source = "{{ 1 }}\n{% macro f() %}\n{{ 'x' * 10**10 }}\n{% endmacro %}\n\n{{ f() }}"
    with pytest.raises(TemplateError) as stopped:
        ChatTemplate(source, name="theirs.jinja").render([user("Hi")])
    assert stopped.value.where == "theirs.jinja, line 3"
    assert "64,000,000 characters" in stopped.value.what


def test_it_is_stopped_at_the_same_count_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step that is allowed decides, not a clock: one step less, and the same render is stopped."""
    template = ChatTemplate("{% for m in messages %}{{ m.content | trim }}{{ m | tojson }}{% endfor %}")
    monkeypatch.setattr(limits, "STEPS_PER_VALUE", 0)

    def enough(steps: int) -> bool:
        monkeypatch.setattr(limits, "MAX_STEPS", steps)
        try:
            return bool(template.render([user("Hi")] * 20))
        except TemplateError:
            return False

    least = next(steps for steps in range(1, 2000) if enough(steps))
    assert [enough(least), enough(least - 1), enough(least)] == [True, False, True]


@pytest.mark.usefixtures("small")
def test_no_row_is_refused_for_it() -> None:
    """A template that is stopped would be stopped at every row, each time after seconds: it ends the work at once."""
    template = ChatTemplate("{% for m in messages %}{{ 'x' * 10**10 }}{% endfor %}")
    with pytest.raises(TemplateError) as stopped:
        spans(template, [user("Hi"), assistant("Hello")])
    assert not isinstance(stopped.value, Refusal)


def _long_chat() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """2,000 messages of 10 MB together, many with reasoning and tool calls, and 128 tools."""
    text = "Long words and short ones, über alles, 我们.\n\n" * 111
    call = {
        "type": "function",
        "id": "abcdefghi",
        "function": {"name": "f", "arguments": {"a": "x" * 100, "b": [1] * 9}},
    }
    turns: list[dict[str, Any]] = []
    for _ in range(500):
        turns.append(user(text))
        turns.append({"role": "assistant", "content": "", "reasoning_content": text[:400], "tool_calls": [call]})
        turns.append({"role": "tool", "name": "f", "tool_call_id": "abcdefghi", "content": text})
        turns.append(assistant(text))
    properties = {f"p{n}": {"type": "string", "description": "what it is " * 5} for n in range(12)}
    parameters = {"type": "object", "properties": properties, "required": ["p0"]}
    tools = [
        {"type": "function", "function": {"name": f"f{n}", "description": "does it", "parameters": parameters}}
        for n in range(128)
    ]
    return turns, tools


@pytest.mark.skipif(not (cases() / "templates").is_dir(), reason="no case templates")
def test_real_templates_bear_real_chats_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, tools = _long_chat()
    assert sum(len(json.dumps(turn)) for turn in turns) > 10_000_000
    stopped, rendered = [], 0
    for path in sorted((cases() / "templates").glob("*.jinja"))[::STRIDE]:
        special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
        try:
            text = ChatTemplate(path.read_text(encoding="utf-8"), special, name=path.name).render(turns, tools=tools)
        except TemplateError as error:
            if error.reason == "limit":
                stopped.append(str(error))
        else:
            rendered += len(text) > 10_000_000 // 2
            template = ChatTemplate(path.read_text(encoding="utf-8"), special)
            given = plain_messages(turns[:100])
            assert trace(template, given, tools=tools, add_generation_prompt=False).text == template.render(
                turns[:100], tools=tools
            )
    assert stopped == []
    assert rendered >= 10


STRIDE = 6  # of 80 templates, which take a third of a second each

_ATOMS = st.sampled_from(
    [
        "ns.s",
        "ns.l",
        "ns.t",
        "messages",
        "'ab'",
        "'é\n'",
        "[ns.l]",
        "(ns.t,)",
        "9",
        "99999",
        "range(999)",
        "{'a': ns.l}",
    ]
)
_OPERATORS = st.sampled_from(["+", "*", "~", "%", "**", "in", "=="])
_FILTERS = st.sampled_from(
    ["trim", "upper", "list", "tojson", "join", "string", "e", "sort", "unique", "reverse", "length", "sum", "pprint"]
) | st.sampled_from(
    ["indent(9999)", "center(99999)", "batch(3)", "slice(99)", "replace('a', 'bbbb')", "map('string')", "urlencode"]
)
_METHODS = st.sampled_from(
    [".replace('', 'abc')", ".join(['a'] * 99)", ".ljust(99999)", ".split('a')", ".format(ns.s)", "[:]", ".upper()"]
)
_EXPRESSIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, _OPERATORS, inner).map(" ".join).map("({})".format),
        st.tuples(inner, _FILTERS).map(" | ".join).map("({})".format),
        st.tuples(inner, _METHODS).map("".join),
    ),
    max_leaves=6,
)
_STATEMENTS = st.recursive(
    _EXPRESSIONS.map("{{{{ {} }}}}".format),
    lambda inner: st.one_of(
        inner.map("{{% for i in range(99) %}}{}{{% endfor %}}".format),
        _EXPRESSIONS.map("{{% set ns.s = {} %}}".format),
        _EXPRESSIONS.map("{{% set ns.l = {} %}}".format),
        inner.map("{{% set ns.s %}}{}{{{{ ns.s }}}}{{% endset %}}".format),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=6,
)


def _rendered(template: Any) -> str:
    """The text; empty where the template was stopped or failed in another way. Memory and recursion never run out."""
    try:
        return environment.render(template, {"messages": [user("Hi")]})
    except (MemoryError, RecursionError):
        raise
    except Exception:  # a template may well add a text to a list
        return ""


@settings(max_examples=150, deadline=None)
@given(_STATEMENTS)
def test_no_template_makes_more_than_its_budget(body: str) -> None:
    """Whatever ends ends within its counts: at no time more than the budget is made and not replaced again."""
    source = "{% set ns = namespace(s='ab', l=[1], t=(1,)) %}{% for j in range(99) %}" + body + "{% endfor %}"
    made: list[int] = []

    class Recorded(Meter):
        def spend(self, number: int) -> None:
            super().spend(number)
            made.append(number)

        def _replaced(self, old: Any, alone: bool) -> None:
            before = self.characters
            super()._replaced(old, alone)
            made.append(before - self.characters)

    template = environment.instance(source, "plain", str)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_STEPS", 20_000)
        patch.setattr(limits, "MAX_CHARACTERS", 500_000)
        patch.setattr(limits, "STEPS_PER_VALUE", 0)
        patch.setattr(limits, "CHARACTERS_PER_CHARACTER", 0)
        patch.setattr("outlive.text.render.sandbox.Meter", Recorded)
        text = _rendered(template)
    assert len(text) <= 500_000
    assert max(accumulate(made), default=0) <= 500_000


def test_a_template_file_of_any_size_is_refused_by_the_tool(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="250,000") as refused:
        ChatTemplate("x" * 300_000, name=str(tmp_path / "big.jinja"))
    assert refused.value.where == str(tmp_path / "big.jinja")
