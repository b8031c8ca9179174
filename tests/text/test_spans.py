"""Promise: a span is what the model writes after the served prompt, end of turn included; else a refusal by name."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.text.spans import Refusal, Span, TurnEnd, spans
from outlive.text.template import ChatTemplate
from tests.fixtures import CHATML, cases
from tests.text.conversations import SYSTEM, WEATHER, Message, assistant, calling, result, user

END = "<|im_end|>"
HEADERS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<e>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
CHAT = [user("Hi"), assistant("Hello!"), user("Bye"), assistant("See you.")]
# Contents that have misled other tools: quoted special tokens, headers, blanks, the words of the scaffold.
TRICKY = ["", " ", "\n", END, "assistant", "<|im_start|>assistant\nHi<|im_end|>\n", "a\n\n", "vq735191370000zk", "user"]
CONTENT = st.text(max_size=30) | st.sampled_from(TRICKY) | st.lists(st.sampled_from(TRICKY)).map("".join)


def chatml(source: str = CHATML) -> ChatTemplate:
    return ChatTemplate(source, end_of_turn=[END, "<|endoftext|>"])


def simple(source: str, ends: tuple[str, ...] = ("<e>",)) -> ChatTemplate:
    return ChatTemplate(source, {"eos_token": "</s>"}, ends)


def texts(template: ChatTemplate, messages: list[Message], turn_end: TurnEnd = "end_of_turn", **more: Any) -> list[str]:
    full = template.render(messages, tools=more.get("tools"))
    return [full[span.start : span.end] for span in spans(template, messages, turn_end=turn_end, **more)]


def refused(template: ChatTemplate, messages: list[Message], **more: Any) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        spans(template, messages, **more)
    return refusal.value


def test_each_answer_and_its_end_of_turn_is_a_span() -> None:
    template = chatml()
    full = template.render(CHAT)
    first, second = full.index("Hello!"), full.index("See you.")
    assert spans(template, CHAT) == [
        Span(1, first, first + len("Hello!" + END), "prefix"),
        Span(3, second, second + len("See you." + END), "prefix"),
    ]


@given(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=4), st.none() | CONTENT)
@settings(max_examples=300, deadline=None)
def test_any_content_is_covered_whole_and_nothing_else(turns: list[tuple[str, str]], system: str | None) -> None:
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages += [message for asked, said in turns for message in (user(asked), assistant(said))]
    before = copy.deepcopy(messages)
    said = [answer for _, answer in turns]
    template = chatml()
    assert texts(template, messages) == [answer + END for answer in said]
    assert texts(template, messages, "content") == said
    assert texts(template, messages, "suffix") == [answer + END + "\n" for answer in said]
    full = template.render(messages)
    for span in spans(template, messages):
        assert template.render(messages[: span.turn], add_generation_prompt=True) == full[: span.start]
    assert messages == before


@given(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_template_that_trims_gives_the_trimmed_content(turns: list[tuple[str, str]]) -> None:
    template = chatml(CHATML.replace("message['content'] +", "(message['content'] | trim) +"))
    messages = [message for asked, said in turns for message in (user(asked), assistant(said))]
    assert texts(template, messages) == [said.strip() + END for _, said in turns]


def test_a_template_that_shortens_content_is_refused_or_right() -> None:
    template = chatml(CHATML.replace("message['content'] +", "message['content'][:5] +"))
    assert texts(template, [user("Hi"), assistant("Hello")]) == ["Hello" + END]
    assert refused(template, [user("Hi"), assistant("Hello!")]).reason == "content_not_rendered"


def test_only_the_turns_asked_for() -> None:
    assert [span.turn for span in spans(chatml(), CHAT, turns=[3])] == [3]
    assert refused(chatml(), CHAT, turns=[0]).reason == "no_assistant_turn"


def test_two_answers_in_a_row_and_a_question_at_the_end() -> None:
    messages = [user("Hi"), assistant("Hello!"), assistant("More?"), user("No")]
    assert texts(chatml(), messages) == ["Hello!" + END, "More?" + END]


def test_tool_calls_belong_to_the_turn() -> None:
    calls = "{% for c in m.tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor %}"
    source = HEADERS.replace("{{ m.content }}", "{{ m.content }}" + calls) + PROMPT
    messages = [user("Weather?"), calling({"city": "Zürich", "days": 3}, "Let me see."), result("18"), assistant("18.")]
    written = 'Let me see.<call>{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}</call>'
    assert texts(simple(source), messages, tools=[WEATHER]) == [written + "<e>", "18.<e>"]
    assert texts(simple(source), messages, "content", tools=[WEATHER]) == [written, "18."]


@pytest.mark.parametrize(
    ("kept", "message", "lost"),
    [
        ("m.content", calling({"city": "Paris"}), "tool_calls[0].function.name"),
        ("m.tool_calls[0].function.name", calling({"city": "Paris"}), "tool_calls[0].function.arguments.city"),
        ("m.tool_calls[0].function.name", calling({"a": {"b": [7]}}), "tool_calls[0].function.arguments.a"),
        ("m.content", assistant("4", reasoning_content="two and two"), "reasoning_content"),
        ("m.content", assistant("4", function_call={"name": "f", "arguments": "{}"}), "function_call.name"),
        ("'a fixed word'", assistant("fixed"), "content"),
        ("m.reasoning_content", assistant("4", thinking="two and two"), "content"),
    ],
)
def test_what_a_template_loses_is_named(kept: str, message: Message, lost: str) -> None:
    answer = "{{ " + kept + " if m.role == 'assistant' else m.content }}"
    template = simple(HEADERS.replace("{{ m.content }}", answer) + PROMPT)
    refusal = refused(template, [user("Hi"), message], tools=[WEATHER])
    assert (refusal.reason, refusal.detail) == ("content_not_rendered", f"messages[1].{lost}")


def test_reasoning_is_part_of_the_answer_unless_the_prompt_has_it() -> None:
    think = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    source = HEADERS.replace("{{ m.content }}", think)
    messages = [user("2+2?"), assistant("4", reasoning="two and two")]
    assert texts(simple(source + PROMPT), messages) == ["<think>two and two</think>4<e>"]
    opened = source + PROMPT.replace("<|assistant|>", "<|assistant|><think>")
    assert texts(simple(opened), messages) == ["two and two</think>4<e>"]
    assert texts(simple(opened), [user("2+2?"), assistant("<think>two</think>4")]) == ["two</think>4<e>"]
    assert refused(simple(opened), [user("2+2?"), assistant("4")]).reason == "generation_prompt_not_prefix"


THINKER = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}"
    "{% endif %}<e>{% endfor %}" + PROMPT
)
LAST = "if loop.last and m.role == 'assistant' else"
LAST_OPENS = HEADERS.replace("{{ m.content }}", "{{ '<think></think>' " + LAST + " '' }}{{ m.content }}") + PROMPT
CLOSES_LAST = HEADERS.replace("<e>", "{{ '<e>' if loop.last or m.role == 'user' else '|' }}") + PROMPT


@pytest.mark.parametrize(
    ("source", "messages", "reason"),
    [
        (CHATML, [user("Hi")], "no_assistant_turn"),
        (CHATML, [], "no_assistant_turn"),
        ("{{ raise_exception('no') }}", CHAT, "template_error"),
        ("{% if add_generation_prompt %}{{ 1 / 0 }}{% endif %}" + HEADERS, CHAT, "template_error"),
        (CHATML, [assistant("Welcome."), user("Hi"), assistant("Hello!")], "assistant_first"),
        (THINKER, [user("a"), assistant("<think>b</think>c"), user("d"), assistant("e")], "history_rewritten"),
        (LAST_OPENS, CHAT, "history_rewritten"),
        (CLOSES_LAST, CHAT, "history_rewritten"),
        (HEADERS + "</s>", CHAT, "history_rewritten"),
        (HEADERS + PROMPT.replace("<|assistant|>", "<|assistant|>\n"), CHAT, "generation_prompt_not_prefix"),
        (HEADERS, CHAT, "no_generation_prompt"),
        ("", CHAT, "content_not_rendered"),
        ("{{ messages[0].content }}", CHAT, "content_not_rendered"),
        (HEADERS.replace("<e>", "\n") + PROMPT, CHAT, "no_end_of_turn"),
        (HEADERS.replace("<e>", "<E>") + PROMPT, [user("<e>"), assistant("<e>")], "no_end_of_turn"),
        (
            HEADERS.replace("{{ m.content }}", "{{ m.reasoning_content }}<e>{{ m.content }}") + PROMPT,
            [user("a"), assistant("b", reasoning_content="c")],
            "end_of_turn_inside",
        ),
        (HEADERS + PROMPT, [user("a"), assistant([{"type": "text", "text": "Hello!"}])], "python_notation"),
        (HEADERS + PROMPT, [user([{"type": "text", "text": "Hi"}]), assistant("Hello!")], "python_notation"),
        (
            HEADERS.replace("{{ m.content }}", "{{ m.content }}{{ m.tool_calls[0].function | tojson }}") + PROMPT,
            [calling('{"a": 1}')],
            "arguments_escaped",
        ),
        (
            "{% for m in messages[1:] %}<|{{ m.role }}|>{{ messages[0].content if m.role == 'assistant' else '' }} "
            "{{ m.content }}<e>{% endfor %}" + PROMPT,
            [SYSTEM, user("a"), assistant("b")],
            "other_message_inside",
        ),
    ],
)
def test_what_cannot_be_proved_is_refused_by_its_name(source: str, messages: list[Message], reason: str) -> None:
    refusal = refused(simple(source, ("<e>", "</s>")), messages)
    assert refusal.reason == reason
    assert refusal.detail


def test_a_turn_that_is_written_otherwise_later_is_refused_however_it_ends() -> None:
    messages = [user("a"), assistant("<think>b</think>c"), user("d"), assistant("e")]
    for turn_end in ("content", "end_of_turn", "suffix"):
        assert refused(simple(THINKER), messages, turn_end=turn_end).reason == "history_rewritten"
    other_header = HEADERS.replace("m.role }}", "'last ' " + LAST + " '' }}{{ m.role }}") + PROMPT
    assert refused(simple(other_header), messages, turns=[1]).reason == "history_rewritten"


def test_rewritten_histories_are_exact_one_turn_at_a_time() -> None:
    for source, ends in ((THINKER, "c<e>"), (LAST_OPENS, "<e>"), (CLOSES_LAST, "<e>")):
        messages = [user("a"), assistant("<think>b</think>c"), user("d"), assistant("e")]
        for turn in (1, 3):
            (text,) = texts(simple(source), messages[: turn + 1], turns=[turn])
            assert messages[turn]["content"] in text
            assert text.endswith(ends if turn == 1 else "e<e>")


def test_a_template_may_ignore_the_generation_prompt_if_it_writes_no_header() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% elif m.tool_calls %}[CALLS] {{ m.tool_calls | tojson }}<e>"
        "{% else %} {{ m.content }}<e>{% endif %}{% endfor %}"
    )
    assert texts(simple(source), CHAT) == [" Hello!<e>", " See you.<e>"]
    (call,) = texts(simple(source), [user("a"), calling({"b": "c"})])
    assert call.startswith("[CALLS] [{")
    assert call.endswith("}]<e>")


def test_without_an_end_of_turn_the_content_can_still_be_asked_for() -> None:
    template = simple(HEADERS.replace("<e>", "\n") + PROMPT)
    assert texts(template, CHAT, "content") == ["Hello!", "See you."]
    assert texts(template, [user("a"), assistant(" b \n")], "content") == [" b \n"]


def test_the_end_of_turn_is_the_first_after_the_data() -> None:
    for ends in (("<f>", "<e>"), ("<e>", "<f>")):
        template = simple(HEADERS.replace("<e>", " <e><f>") + PROMPT, ends)
        assert texts(template, [user("a"), assistant("b<e>")]) == ["b<e> <e>"]
    assert texts(template, [user("a"), assistant("b<e>")], "content") == ["b<e>"]
    assert texts(template, [user("a"), assistant("b<e>")], "suffix") == ["b<e> <e><f>"]


MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>%s{% else %}<|{{ m.role }}|>{{ m.content }}<e>"
    "{% endif %}{% endfor %}" + PROMPT
)
BLOCK = "{% generation %}{{ m.content }}<e>\n{% endgeneration %}"


def marked(block: str) -> ChatTemplate:
    return simple(MARKED.replace("%s", block, 1))


@pytest.mark.parametrize(
    ("block", "expected", "how"),
    [
        (BLOCK, "Hello!<e>", "generation"),
        ("<think></think>" + BLOCK, "Hello!<e>", "generation"),
        (
            "{% generation %}<think></think>{{ m.content }}{% endgeneration %}<e>",
            "<think></think>Hello!<e>",
            "generation",
        ),
        ("{{ m.content }}{% generation %}<e>{% endgeneration %}", "Hello!<e>", "prefix"),
        ("{{ m.content }}<e>{% if loop.last %}{% generation %}{% endgeneration %}{% endif %}", "Hello!<e>", "prefix"),
        ("{% generation %}{% endgeneration %}" + BLOCK, "Hello!<e>", "prefix"),
    ],
)
def test_generation_marks_say_where_the_answer_begins(block: str, expected: str, how: str) -> None:
    template = marked(block)
    assert texts(template, CHAT)[0] == expected
    assert [span.how for span in spans(template, CHAT)] == [how, how]


def test_a_mark_around_the_header_does_not_make_the_prompt_a_target() -> None:
    source = MARKED.replace("<|assistant|>%s", "{% generation %}<|assistant|>{{ m.content }}<e>{% endgeneration %}", 1)
    assert texts(simple(source), CHAT) == ["Hello!<e>", "See you.<e>"]
    assert [span.how for span in spans(simple(source), CHAT)] == ["generation"] * 2


def test_marked_spans_end_with_their_turn_wherever_they_begin_and_end() -> None:
    """transformers #47325: a mask that runs to the end when a span begins the text or ends in trimmed white space."""
    template = simple("{% for m in messages %}{% generation %}{{ m.content }}<e> {% endgeneration %}{% endfor %}")
    messages = [assistant("Welcome."), user("Hi "), assistant("Hello! \n")]
    assert refused(template, [user("Hi "), *messages[1:]], turns=[0]).reason == "no_assistant_turn"
    only_answers = simple(
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<e> {% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    assert texts(only_answers, messages) == ["Welcome.<e>", "Hello! \n<e>"]
    assert [span.how for span in spans(only_answers, messages)] == ["generation"] * 2


def test_a_conversation_may_begin_with_an_answer_where_the_template_bears_it() -> None:
    messages = [assistant("Welcome."), *CHAT]
    assert texts(simple(HEADERS + PROMPT), messages)[0] == "Welcome.<e>"


@pytest.mark.skipif(not (cases() / "masks").is_dir(), reason="no case masks")
def test_other_tools_train_on_the_same_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axolotl's masks on SmolLM2's template, at its defaults: the same marked text for each conversation it takes."""
    monkeypatch.syspath_prepend(str(cases() / "masks"))
    import conversations  # type: ignore[import-not-found]

    template = chatml(
        CHATML.replace("a small assistant.", "a helpful AI assistant named SmolLM, trained by Hugging Face")
    )
    compared = 0
    for case in json.loads((cases() / "masks" / "axolotl_smollm2.json").read_text()):
        if case["options"] or case["train_on_inputs"]:
            continue
        messages = conversations.CONVS[case["conv"]]
        full, done, pieces = template.render(messages), 0, []
        for span in spans(template, messages):
            pieces += [full[done : span.start], "⟦", full[span.start : span.end], "⟧"]
            done = span.end
        assert "".join([*pieces, full[done:]]) == case["marked"], case["conv"]
        compared += 1
    sys.modules.pop("conversations")
    assert compared >= 3
