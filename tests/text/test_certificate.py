"""Promise: a certificate says in which form a template wants its data, and what its user is to expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.text.certificate import Certificate, certify
from outlive.text.learned import learn
from outlive.text.shapes import SHAPES
from outlive.text.template import ChatTemplate
from outlive.text.written import written
from tests.fixtures import CHATML
from tests.text.conversations import assistant, user

HEADERS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<e>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} ARGUMENTS</call>{% endfor %}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path))
    return tmp_path


def of(source: str, ends: tuple[str, ...] = ("<e>",), **more: object) -> Certificate:
    return certify(ChatTemplate(source, end_of_turn=ends, **more))  # type: ignore[arg-type]


def calling(arguments: str) -> str:
    return HEADERS.replace("{{ m.content }}", "{{ m.content }}" + CALLS.replace("ARGUMENTS", arguments)) + PROMPT


def test_kinds() -> None:
    assert of(CHATML, ("<|im_end|>",)).kind == "append_only"
    last_thinks = "{{ '<think></think>' if loop.last and m.role == 'assistant' else '' }}{{ m.content }}"
    assert of(HEADERS.replace("{{ m.content }}", last_thinks) + PROMPT).kind == "rewrites_history"
    assert of(HEADERS.replace("<e>", "\n") + PROMPT).kind == "no_end_of_turn"
    assert of("{{ messages[0].content }}").kind == "refused"


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        ("{{ c.function.arguments | tojson }}", "object"),
        ("{{ '' + c.function.arguments }}", "text"),
        ("{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}", "either"),
    ],
)
def test_the_form_of_arguments(arguments: str, form: str) -> None:
    found = of(calling(arguments))
    assert (found.arguments, found.drops_tool_calls) == (form, False)


def test_what_a_template_drops_is_said() -> None:
    found = of(HEADERS + PROMPT)
    assert (found.drops_tool_calls, found.takes_tools, found.takes_system) == (True, False, True)
    assert found.shapes["reasoning"] == found.shapes["tools"] == "content_not_rendered"
    assert "tool_calls[0]" in found.details["tools"]


def test_an_end_of_turn_is_learned_from_given_tokens_only() -> None:
    source = HEADERS + PROMPT
    assert of(source, ()).kind == "no_end_of_turn"
    found = of(source, (), added_tokens=["<e>", "<|user|>"])
    assert (found.kind, found.ends, found.learned_ends) == ("append_only", ("<e>",), ("<e>",))
    assert of(source, ("<e>",), added_tokens=["<x>"]).learned_ends == ()
    assert of(source, (), known_tokens=["<e>", "<|user|>"]).kind == "no_end_of_turn"


def test_a_header_is_known_by_all_tokens_of_the_tokenizer() -> None:
    assert of(HEADERS).kind == "refused"
    found = of(HEADERS, known_tokens=["<|assistant|>"])
    assert (found.kind, found.header) == ("append_only", "<|assistant|>")


def test_the_next_prompt_is_not_taken_for_an_end() -> None:
    """A template that writes the next prompt after every answer: its last token is no end of turn."""
    source = "{% for m in messages %}<start_{{ m.role }}>{{ m.content }}<end_turn>{% endfor %}<start_assistant>"
    source = source.replace("{% endfor %}<start_assistant>", "{% endfor %}<start_assistant><start_text>")
    tokens = ["<start_user>", "<start_assistant>", "<end_turn>", "<start_text>"]
    assert learn(ChatTemplate(source, added_tokens=tokens)).ends == ("<end_turn>",)


def test_the_next_role_ends_a_turn_where_nothing_else_does() -> None:
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}" + PROMPT
    template = ChatTemplate(source, added_tokens=["<|user|>", "<|assistant|>", "<|tool|>"])
    (one,) = written(template, [user("a"), assistant("b"), user("c"), assistant("d")])
    assert one.how == "closed"
    assert [one.text[span.start : span.end] for span in one.spans] == ["b<|user|>", "d<|user|>"]
    assert certify(template).kind == "append_only"


def test_a_certificate_is_kept_and_a_damaged_one_is_made_again(home: Path) -> None:
    first = of(CHATML, ("<|im_end|>",))
    (file,) = (home / "certificates").glob("*.json")
    assert of(CHATML, ("<|im_end|>",)) == first
    for damage in ("", "[]", "{}", '{"kind": "good"}'):
        file.write_text(damage)
        assert of(CHATML, ("<|im_end|>",)) == first
    assert of(CHATML, ("<|endoftext|>",)) != first
    assert set(first.shapes) == set(SHAPES)
