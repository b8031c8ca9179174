"""Promise: a text that knows its origin behaves as any text, and what is made of it never names a wrong origin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.text.render.provenance import NOWHERE, Traced, segments_of, whole
from outlive.text.render.trace import trace
from outlive.text.template import ChatTemplate
from tests.text.conversations import Message, assistant, calling, user

TEXT = st.text(st.sampled_from("ab<>/ \n\t\"'\\éßİ\u2028😀x"), max_size=20)
PART = st.text(st.sampled_from("ab< \nß"), min_size=1, max_size=3)
METHODS: list[Any] = [
    lambda t, p: t.strip(),
    lambda t, p: t.lstrip(p),
    lambda t, p: t.rstrip(p),
    lambda t, p: t.split(p),
    lambda t, p: t.split(),
    lambda t, p: t.split(p, 1),
    lambda t, p: t.split(None, 2),
    lambda t, p: t.rsplit(p, 1),
    lambda t, p: t.rsplit(None, 1),
    lambda t, p: t.splitlines(),
    lambda t, p: t.splitlines(True),
    lambda t, p: t.partition(p),
    lambda t, p: t.rpartition(p),
    lambda t, p: t.replace(p, "--"),
    lambda t, p: t.replace(p, "", 1),
    lambda t, p: t.replace("", p),
    lambda t, p: t.upper(),
    lambda t, p: t.lower(),
    lambda t, p: t.title(),
    lambda t, p: t.capitalize(),
    lambda t, p: t.swapcase(),
    lambda t, p: t.casefold(),
    lambda t, p: t.removeprefix(p),
    lambda t, p: t.removesuffix(p),
    lambda t, p: t.center(30),
    lambda t, p: t.ljust(30, "*"),
    lambda t, p: t[1:],
    lambda t, p: t[-3:],
    lambda t, p: t[::-1],
    lambda t, p: t[2:9:2],
    lambda t, p: t + p,
    lambda t, p: p + t,
    lambda t, p: t * 2,
    lambda t, p: t.join([p, t]),
    lambda t, p: [*t],
    lambda t, p: t.find(p),
    lambda t, p: (t == str(p), hash(t), len(t), p in t, t.startswith(p), t.count(p)),
]


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for item in value for text in texts(item)] if isinstance(value, list | tuple) else []


def check_origin(result: str, original: str) -> None:
    """Literal segments say the same characters (but for their case); all segments together cover the text."""
    place = 0
    for length, source, start, stop in segments_of(result):
        if source != NOWHERE:
            assert 0 <= start <= stop <= len(original)
            if length == stop - start:
                assert result[place : place + length].casefold() == original[start:stop].casefold()
        place += length
    assert place == len(result)


@pytest.mark.parametrize("number", range(len(METHODS)))
@settings(max_examples=60, deadline=None)
@given(TEXT, PART)
def test_methods_give_what_they_give_on_plain_text(number: int, text: str, part: str) -> None:
    method, original = METHODS[number], text
    result = method(whole(text, 0), part)
    assert result == method(text, part)
    for piece in texts(result):
        check_origin(piece, original)


def test_what_is_kept_of_a_text_is_known_to_be_from_it() -> None:
    for result in (whole("  abc ", 3).strip(), whole("abc", 3).upper(), whole("ab", 3)[1:], "x" + whole("a", 3)):
        assert type(result) is Traced
        assert any(segment.source == 3 for segment in segments_of(result))
    assert type(whole("abc", 3)[:0]) is str


def traced(source: str, messages: list[Message]) -> list[tuple[str, str]]:
    """The pieces of a render that come from messages: (where from, which characters)."""
    template = ChatTemplate(source)
    plain = template.render(messages)
    found = trace(template, messages, tools=None, add_generation_prompt=False)
    assert found.text == plain
    return [(found.sources[run.source].name, plain[run.start : run.end]) for run in found.runs]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("m.content", [("content", ' a "b" ')]),
        ("m.content | trim", [("content", 'a "b"')]),
        ("m['content'] | upper", [("content", ' A "B" ')]),
        ("m.content.split(' ')[1]", [("content", "a")]),
        ("'%s!' % m.content", [("content", ' a "b" ')]),
        ("'%s!' | format(m.content)", [("content", ' a "b" ')]),
        ("'<{}>'.format(m.content)", [("content", ' a "b" ')]),
        ("'<X>'.replace('X', m.content)", [("content", ' a "b" ')]),
        ("'-'.join([m.content, 'c'])", [("content", ' a "b" ')]),
        ("[m.content, 'c'] | join('-')", [("content", ' a "b" ')]),
        ("m.content ~ 1", [("content", ' a "b" ')]),
        ("m.content | string | safe", [("content", ' a "b" ')]),
        ("(m.content ~ '\nx') | indent(2)", [("content", ' a "b" ')]),
        ("m.content | list | first", [("content", " ")]),
        ("m.content | replace('\"', '')", [("content", " a "), ("content", "b"), ("content", " ")]),
        (
            "m.content | tojson",
            [("content", " a "), ("content", '\\"'), ("content", "b"), ("content", '\\"'), ("content", " ")],
        ),
    ],
)  # fmt: skip
def test_an_origin_goes_through_what_templates_do(expression: str, expected: list[tuple[str, str]]) -> None:
    source = "{% for m in messages %}[{{ " + expression + " }}]{% endfor %}"
    assert traced(source, [user(' a "b" ')]) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% macro say(x) %}<{{ x }}>{% endmacro %}{% for m in messages %}{{ say(m.content) }}{% endfor %}",
        "{% set t %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}{{ t | trim }}",
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.content %}{% endfor %}{{ ns.t }}",
        "{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}{{ messages[0].content }}{% endcall %}",
        "{% for c in messages[0].content %}{{ c }}{% endfor %}",
        "{{ messages | map(attribute='content') | join }}",
        "{{ messages | map(attribute='content') | map('trim') | list | last }}",
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    ],
)
def test_an_origin_goes_through_blocks_and_macros(source: str) -> None:
    assert "".join(text for _, text in traced(source, [user("abc")])) == "abc"


def test_arguments_of_calls_are_known_by_their_path() -> None:
    message = calling({"city": "Zürich", "days": 3, "far": True, "rate": 0.5})
    found = dict(traced("{{ messages[0].tool_calls[0].function | tojson(indent=1) }}", [message]))
    arguments = "tool_calls[0].function.arguments"
    assert found["tool_calls[0].function.name"] == "get_weather"
    assert {name: text for name, text in found.items() if name.startswith(arguments)} == {
        f"{arguments}.city": "Zürich",
        f"{arguments}.days": "3",
        f"{arguments}.far": "far",
        f"{arguments}.rate": "0.5",
    }


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["", "indent=2", "ensure_ascii=true", "separators=(',', ':')", "sort_keys=true", "indent='\\t'"]),
)
def test_json_is_the_same_json(value: Any, options: str) -> None:
    template = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson(" + options + ") }}")
    messages = [calling(value)]
    plain = template.render(messages)
    assert trace(template, messages, tools=None, add_generation_prompt=False).text == plain
    assert json.loads(plain) == json.loads(json.dumps(value))


def test_the_template_cannot_tell_the_difference() -> None:
    source = (
        "{% set c = messages[0].content %}{{ c is string, c is mapping, c == 'abc', c in ['abc'], c | length, "
        "{c: 1}['abc'], c is sameas c, c._segments is defined, c.startswith('a'), 'b' in c, c < 'b', c ~ '' == c }}"
        "{{ messages[0].n + 1, messages[0].n is number, messages[0].n is integer, messages[0].n // 2 }}"
    )
    traced(source, [{**user("abc"), "n": 3}])


def test_an_operation_without_a_rule_says_nothing_of_origins() -> None:
    assert traced("{{ messages[0].content | urlencode }}", [user("a b")]) == []
    assert traced("{{ [messages[0].content] }}", [assistant("a b")]) == []
