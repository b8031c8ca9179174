"""Promise: what is trained is what a server would send and then what the model writes, turn by turn where need be."""

from __future__ import annotations

import pytest

from outlive.text.prompt import served_prompt
from outlive.text.refusal import Refusal
from outlive.text.spans import Place, Span, places, spans
from outlive.text.template import ChatTemplate
from outlive.text.written import Written, written
from tests.fixtures import CHATML
from tests.text.conversations import SYSTEM, WEATHER, Message, assistant, calling, result, user

END = "<|im_end|>"
CHAT = [user("Hi"), assistant("Hello!"), user("Bye"), assistant("See you.")]
HEADERS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<e>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
LAST = "if loop.last and m.role == 'assistant' else"


def simple(source: str, **more: object) -> ChatTemplate:
    return ChatTemplate(source, end_of_turn=("<e>",), **more)  # type: ignore[arg-type]


def marked(one: Written) -> str:
    pieces, place = [], 0
    for span in one.spans:
        pieces += [one.text[place : span.start], "⟦", one.text[span.start : span.end], "⟧"]
        place = span.end
    return "".join([*pieces, one.text[place:]])


def test_a_template_that_only_appends_gives_one_text() -> None:
    (one,) = written(ChatTemplate(CHATML, end_of_turn=[END]), CHAT)
    assert (one.how, one.text) == ("whole", ChatTemplate(CHATML).render(CHAT))
    assert one.spans == spans(ChatTemplate(CHATML, end_of_turn=[END]), CHAT)


def test_a_rewritten_history_gives_one_text_for_each_trained_turn() -> None:
    template = simple(HEADERS.replace("{{ m.content }}", "{{ '<t></t>' " + LAST + " '' }}{{ m.content }}") + PROMPT)
    assert [marked(one) for one in written(template, CHAT)] == [
        "<|user|>Hi<e><|assistant|>⟦<t></t>Hello!<e>⟧",
        "<|user|>Hi<e><|assistant|>Hello!<e><|user|>Bye<e><|assistant|>⟦<t></t>See you.<e>⟧",
    ]
    (last,) = written(template, CHAT, turns=[3])
    assert last.how == "whole"  # nothing follows it
    assert last.spans[0].turn == 3


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ("\n", "Hello!<e>"),
        ("<think>\n\n</think>\n", "Hello!<e>"),
        ("<|channel>thought\n<channel|>", "Hello!<e>"),
        ("<|START_THINKING|><|END_THINKING|>", "Hello!<e>"),
        ("<think>\n", None),
        ("</think>", None),
        ("Sure: ", "Hello!<e>"),
    ],
)
def test_a_prompt_that_has_more_than_the_history(more: str, answer: str | None) -> None:
    """The served prompt and then the answer, unless the prompt opens a part that the render never closes."""
    template = simple(HEADERS + PROMPT.replace("<|assistant|>", "<|assistant|>" + more))
    if answer is None:
        with pytest.raises(Refusal) as refusal:
            written(template, CHAT[:2])
        assert refusal.value.reason == "generation_prompt_not_prefix"
        return
    (one,) = written(template, CHAT[:2])
    assert one.how == "served"
    assert marked(one) == served_prompt(template, CHAT[:2]) + "⟦" + answer + "⟧"


def test_a_part_that_the_prompt_opens_may_be_closed_by_the_answer() -> None:
    template = simple(
        "{% for m in messages %}<|{{ m.role }}|>{{ '</think>' if m.role == 'assistant' else '' }}{{ m.content }}<e>"
        "{% endfor %}" + PROMPT.replace("<|assistant|>", "<|assistant|><think>")
    )
    (one,) = written(template, CHAT[:2])
    assert marked(one) == "<|user|>Hi<e><|assistant|><think>⟦</think>Hello!<e>⟧"


def test_a_system_text_that_moves_with_the_last_question() -> None:
    """Mistral: the system text stands in the last user turn, so the prompt of no turn is a part of the whole."""
    source = (
        "{% set s = messages[0].content if messages[0].role == 'system' else '' %}{% for m in messages %}"
        "{% if m.role == 'user' %}[INST]{{ s ~ '. ' if loop.last and s else '' }}{{ m.content }}[/INST]"
        "{% elif m.role == 'assistant' %}{{ m.content }}<e>{% endif %}{% endfor %}"
    )
    assert [marked(one) for one in written(simple(source), [SYSTEM, *CHAT])] == [
        "[INST]You are terse.. Hi[/INST]⟦Hello!<e>⟧",
        "[INST]Hi[/INST]Hello!<e>[INST]You are terse.. Bye[/INST]⟦See you.<e>⟧",
    ]


def test_results_of_tools_inside_an_answers_loop_are_cut_out() -> None:
    """Gemma and others print a tool's result while they are at the call: it is no part of what the model writes."""
    source = (
        "{% for m in messages %}{% if m.role != 'tool' %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}{% endfor %}<e>"
        "{% if m.tool_calls and not loop.last and loop.nextitem.role == 'tool' %}<result>{{ loop.nextitem.content }}"
        "</result>{% endif %}{% endif %}{% endfor %}" + PROMPT
    )
    messages = [user("Weather?"), calling({"city": "Paris"}), result("18 degrees"), assistant("It is 18 degrees.")]
    (one,) = written(simple(source), messages, tools=[WEATHER])
    texts = [one.text[span.start : span.end] for span in one.spans]
    assert texts == [
        '<call>{"name": "get_weather", "arguments": {"city": "Paris"}}<e>',
        "It is 18 degrees.<e>",
    ]


def test_a_header_that_no_prompt_has_is_left_out_where_it_is_made_of_tokens() -> None:
    tokens = ["<|user|>", "<|assistant|>", "<e>"]
    (one,) = written(ChatTemplate(HEADERS, added_tokens=tokens), CHAT)
    assert marked(one) == "<|user|>Hi<e><|assistant|>⟦Hello!<e>⟧<|user|>Bye<e><|assistant|>⟦See you.<e>⟧"
    assert {span.how for span in one.spans} == {"header"}
    with pytest.raises(Refusal, match="no_generation_prompt"):
        written(simple(HEADERS.replace("<|{{ m.role }}|>", "### {{ m.role }}: ")), CHAT)


def test_an_empty_answer_leaves_the_header_out_too() -> None:
    template = ChatTemplate(HEADERS, added_tokens=["<|user|>", "<|assistant|>", "<e>"])
    (one,) = written(template, [user("Hi"), assistant(""), user("Still?"), assistant(" ")])
    assert marked(one) == "<|user|>Hi<e><|assistant|>⟦<e>⟧<|user|>Still?<e><|assistant|>⟦ <e>⟧"


def test_the_generation_prompt_can_be_part_of_the_loss() -> None:
    template = ChatTemplate(CHATML, end_of_turn=[END])
    full = template.render(CHAT)
    found = spans(template, CHAT, generation_prompt=True)
    assert [full[span.start : span.end] for span in found] == [
        "<|im_start|>assistant\nHello!<|im_end|>",
        "<|im_start|>assistant\nSee you.<|im_end|>",
    ]
    (one,) = written(template, CHAT, generation_prompt=True)
    assert one.spans == found
    assert found[0] == Span(
        1, full.index("<|im_start|>assistant"), full.index(END + "\n", full.index("Hello!")) + 10, "history"
    )


def test_places_say_where_each_text_of_a_message_stands() -> None:
    call = "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}{% endfor %}"
    template = simple(
        HEADERS.replace("{{ m.content }}", "{{ m.reasoning_content }}|{{ m.content | trim }}" + call) + PROMPT
    )
    message: Message = calling({"city": 'Pa"ris'}, "  So. ") | {"thinking": "Hm"}
    messages = [user("Weather?"), message]
    full = template.render(messages)
    found = {
        place.path: place for place in places(template, messages, turn=1) if place.length == place.end - place.start
    }
    content = found["content",]
    assert (full[content.start : content.end], content.offset) == ("So.", 2)
    assert full[found["thinking",].start : found["thinking",].end] == "Hm"
    city = [place for place in places(template, messages, turn=1) if place.path[-1] == "city"]
    assert [(full[place.start : place.end], place.offset, place.length) for place in city] == [
        ("Pa", 0, 2),
        ('\\"', 2, 1),
        ("ris", 3, 3),
    ]


def test_places_in_a_served_text_are_shifted_with_it() -> None:
    template = simple(HEADERS + PROMPT.replace("<|assistant|>", "<|assistant|>\n"))
    first, second = written(template, CHAT)
    for one, turn, text in ((first, 1, "Hello!"), (second, 3, "See you.")):
        (place,) = one.places(turn)
        assert one.text[place.start : place.end] == text
        assert place == Place(place.start, place.start + len(text), ("content",), 0, len(text))


def test_places_of_content_parts() -> None:
    template = simple(HEADERS.replace("{{ m.content }}", "{% for p in m.content %}{{ p.text }}{% endfor %}") + PROMPT)
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    messages = [user([{"type": "text", "text": "Hi"}]), assistant(parts)]
    assert [place.path for place in places(template, messages, turn=1)] == [
        ("content", 0, "text"),
        ("content", 1, "text"),
    ]


@pytest.mark.parametrize(
    ("history", "prompt"),
    [
        ("<|im_start|>{{ m.role|capitalize }}\n", "<|im_start|>assistant\n"),
        ("<|im_start|>{{ 'bot' if m.role == 'assistant' else m.role }}\n", "<|im_start|>assistant\n"),
        ("<|im_start|>{{ m.role }}[{{ m.content|length }}]\n", "<|im_start|>assistant\n"),
        ("<|im_start|>{{ m.role }} {{ m.content|length }}\n", "<|im_start|>assistant\n"),
        ("<|im_start|>{{ m.role }}\n", "<|im_start|>user\n"),
        ("<|im_start|>{{ m.role }}\n", "<|im_start|>assistant<|sep|>"),
    ],
)
def test_another_header_than_the_prompts_is_no_part_of_an_answer(history: str, prompt: str) -> None:
    source = "{% for m in messages %}" + history + "{{ m.content }}<|im_end|>\n{% endfor %}"
    source += "{% if add_generation_prompt %}" + prompt + "{% endif %}"
    with pytest.raises(Refusal) as caught:
        written(ChatTemplate(source, end_of_turn=[END]), CHAT[:2])
    assert caught.value.reason == "generation_prompt_not_prefix"
