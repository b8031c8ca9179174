"""Promise: templates run in a sandbox on a copy of the data, and the hash changes with all that changes a render."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest

from outlive.run.errors import InputError
from outlive.text.prompt import served_prompt
from outlive.text.template import ChatTemplate, TemplateError
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import CHATML, tiny_tokenizer
from tests.text.conversations import assistant, user

CHAT = [user("Hi"), assistant("Hello!"), user("Bye"), assistant("See you.")]


def render(source: str, messages: Any = None, **kwargs: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(messages or [user("Hi")], **kwargs)


def test_chatml_is_rendered_as_written() -> None:
    text = ChatTemplate(CHATML).render(CHAT[:2], add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a small assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ bos_token is defined }}{{ eos_token is defined }}", "<s>TrueFalse"),
        ("{{ {'a': '<é>&'} | tojson }}", '{"a": "<é>&"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% set n = namespace(i=0) %}{% for m in messages %}{% set n.i = 5 %}{% endfor %}{{ n.i }}", "5"),
        ("{{ dict(a=1) }}", "{'a': 1}"),
        ("{% generation %}x{% endgeneration %}y", "xy"),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
        ("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "TrueTrueFalse"),
    ],
)
def test_the_environment_is_the_one_that_templates_are_written_for(source: str, expected: str) -> None:
    assert render(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.format.environment.filters }}",
        "{{ ''.format._environment.filters }}",
        "{{ ''['format'].__class__.mro() }}",
        "{{ '{0.__class__.mro}'.format(1) | length + 1 / 0 }}",
        "{{ dict.__class__ }}{{ dict.mro() }}",
        "{% set n = namespace(_x=1) %}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ missing.attribute }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_a_template_may_not_do_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


def test_errors_say_what_kind_they_are() -> None:
    with pytest.raises(TemplateError) as raised:
        render("{{ raise_exception('roles must alternate') }}")
    assert (raised.value.reason, "roles must alternate" in raised.value.detail) == ("raised", True)
    with pytest.raises(TemplateError, match="line 2") as syntax:
        ChatTemplate("{{ 1 }}\n{% for %}")
    assert syntax.value.reason == "syntax"
    assert syntax.value.exit_code == 2
    assert pickle.loads(pickle.dumps(syntax.value)).detail == syntax.value.detail
    for messages in ([], [1], [{"content": object()}]):
        with pytest.raises(TemplateError):
            ChatTemplate("x").render(messages)  # type: ignore[arg-type]


def test_none_is_left_out_and_reasoning_has_all_its_names() -> None:
    source = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
    assert render(source, [{"role": "assistant", "content": None}]) == '{"role": "assistant"}'
    text = render(source, [{"role": "assistant", "reasoning": "r"}])
    assert text == '{"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"}'


def test_variables_come_from_the_template_and_from_the_call() -> None:
    template = ChatTemplate("{{ bos_token }}{{ style }}", {"bos_token": "<s>"}, kwargs={"style": "a"})
    assert template.render([user("x")]) == "<s>a"
    assert template.render([user("x")], style="b", bos_token="") == "b"


def test_the_date_is_fixed_or_todays() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    assert ChatTemplate(source, date="2024-02-09").render([user("x")]) == "09 Feb 2024"
    day = datetime.date.today()
    assert ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render([user("x")]) >= day.isoformat()
    assert ChatTemplate(source).uses_date
    assert not ChatTemplate(CHATML).uses_date
    with pytest.raises(InputError, match=r"09\.02\.2024"):
        ChatTemplate(source, date="09.02.2024")


def test_the_hash_changes_with_what_changes_a_render_and_with_nothing_else() -> None:
    dated = "{{ strftime_now('%Y') }}"
    same = [ChatTemplate(CHATML), ChatTemplate(CHATML), ChatTemplate(CHATML, date="2024-01-01")]
    assert len({template.hash for template in same}) == 1
    other = [
        ChatTemplate(CHATML),
        ChatTemplate(CHATML + " "),
        ChatTemplate(CHATML, {"bos_token": "<s>"}),
        ChatTemplate(CHATML, end_of_turn=["<|im_end|>"]),
        ChatTemplate(CHATML, kwargs={"a": 1}),
        ChatTemplate(CHATML, tool_source="x"),
        ChatTemplate(dated, date="2024-01-01"),
        ChatTemplate(dated, date="2024-01-02"),
        ChatTemplate(dated),
    ]
    assert len({template.hash for template in other}) == len(other)


def test_generation_marks_are_places_in_the_plain_render() -> None:
    source = "{% for m in messages %}[{% generation %}{{ m.content | trim }}\n{% endgeneration %}]{% endfor %}"
    template = ChatTemplate(source)
    text, marks = template.render_marked([user("a"), user(" bc ")])
    assert text == template.render([user("a"), user(" bc ")]) == "[a\n][bc\n]"
    assert [text[start:end] for start, end in marks] == ["a\n", "bc\n"]
    assert template.has_generation_marks
    assert ChatTemplate(CHATML).render_marked(CHAT) == (ChatTemplate(CHATML).render(CHAT), [])


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("{% set x %}{% generation %}{{ messages[0].content }}{% endgeneration %}{% endset %}{{ x | trim }}", " a "),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "\ufdd0"),
        ("{% generation %}a{% generation %}b{% endgeneration %}{% endgeneration %}", ""),
    ],
)
def test_no_marks_are_given_where_they_would_be_wrong(source: str, content: str) -> None:
    template = ChatTemplate(source)
    assert template.render_marked([user(content)]) == (template.render([user(content)]), [])


def test_a_template_of_its_own_for_tools_is_used_when_tools_are_given() -> None:
    template = ChatTemplate("plain", tool_source="with tools")
    assert template.render([user("x")]) == "plain"
    assert template.render([user("x")], tools=[]) == "with tools"
    with pytest.raises(TemplateError):
        template.render([user("x")], tools=["get_weather"])  # type: ignore[list-item]


def test_a_tokenizer_brings_its_template_and_special_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path))
    template = ChatTemplate.of(tokenizer)
    assert template.source == CHATML
    assert set(template.end_of_turn) == {"<|im_end|>", "<|endoftext|>"}
    assert ChatTemplate.of(tokenizer, "{{ eos_token }}").render([user("x")]) == "<|im_end|>"
    with pytest.raises(InputError, match="no chat template"):
        ChatTemplate.of(Tokenizer.load(tiny_tokenizer(tmp_path / "bare", template=None)))


def test_a_template_crosses_a_process() -> None:
    template = ChatTemplate(CHATML, end_of_turn=["<|im_end|>"], date="2024-01-01")
    text = template.render(CHAT)
    again = pickle.loads(pickle.dumps(template))
    assert (again.render(CHAT), again.hash) == (text, template.hash)


def test_the_served_prompt_is_the_text_before_an_answer() -> None:
    template = ChatTemplate(CHATML)
    full = template.render(CHAT)
    assert served_prompt(template, CHAT) == full[: full.index("See you.")]
    assert served_prompt(template, CHAT[:3]) == served_prompt(template, CHAT)
    assert served_prompt(template, CHAT, turn=1) == full[: full.index("Hello!")]
