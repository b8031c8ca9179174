"""Promise: a chat that is replayed has the spans that its own proof would give, whatever a template looks at."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.run.errors import WorkError
from outlive.text import replay as replay_module
from outlive.text.refusal import Refusal
from outlive.text.render.symbolic import Looked, Slot, Unknown
from outlive.text.replay import replays_of
from outlive.text.template import ChatTemplate, TemplateError
from outlive.text.written import written
from tests.fixtures import CHATML
from tests.text.conversations import SHAPES, SYSTEM, Message, assistant, user
from tests.text.test_spans_cases import FOLDER, PATHS, template_of

END = "<|im_end|>"
# Texts of which templates take notice, and texts that look like what templates write.
SAID = (
    *("Hello", "See you.", "a", " padded ", "\n\nlines\n", "<think>\nhm\n</think>\n\nso", "</think>", "<think>"),
    *("/no_think", "x /think", END, "<|im_start|>assistant\n", "<end_of_turn>", "</s>", "[INST]", "{}", "[]", '"q"'),
    *(
        "<tool_response>\nx\n</tool_response>",
        "<tool_call>",
        "user",
        "assistant",
        "tool",
        "0",
        "True",
        "none",
        "é\u3000ß",
    ),
    *("{{ x }}", "\\n", "…" * 50, "\u2028", "<|channel|>final", "assistant: hi", "User: hi", "<turn|>", "  ", "\t"),
)


@pytest.fixture(autouse=True)
def _seldom_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "PROVED_AGAIN", 1 << 40)


def outcome(template: ChatTemplate, messages: list[Message], **options: Any) -> Any:
    try:
        return [(one.text, one.spans, one.how, one.shift) for one in written(template, messages, **options)]
    except Refusal as refusal:
        return refusal.reason, refusal.detail
    except TemplateError as error:
        return str(error)


def both(template: ChatTemplate, messages: list[Message], **options: Any) -> tuple[Any, Any]:
    """With replay, and without."""
    replays = replays_of(template)
    replays.is_on = True
    replayed = outcome(template, messages, **options)
    replays.is_on = False
    proved = outcome(template, messages, **options)
    replays.is_on = True
    return replayed, proved


def known(template: ChatTemplate) -> list[Any]:
    """The structures that are replayed."""
    return [replay for replay in replays_of(template)._known.values() if replay is not None]


def chat(*said: str, system: bool = False, thought: str | None = None) -> list[Message]:
    messages: list[Message] = [SYSTEM] if system else []
    for place, text in enumerate(said):
        more = {"reasoning_content": thought} if thought is not None and place % 2 else {}
        messages.append(assistant(text, **more) if place % 2 else user(text))
    return messages


@pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_replayed_is_proved_for_real_templates(path: Any) -> None:
    """Each shape with each of the texts in each place, after plain chats have taught the structure."""
    template = template_of(path)
    for turn_end in ("end_of_turn", "content", "suffix"):
        for texts in (("Hi there", "Hello!"), ("Hi there", "Hello!", "Bye", "See you."), ("Hi", "Hello!", "Bye")):
            for place in range(len(texts)):
                for number, said in enumerate(("And", *SAID[place :: 2 if turn_end == "end_of_turn" else 6])):
                    thought = None if number % 3 else said
                    messages = chat(*texts[:place], said, *texts[place + 1 :], system=place == 1, thought=thought)
                    replayed, proved = both(template, messages, turn_end=turn_end)
                    assert replayed == proved, (turn_end, messages)


@pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")
def test_most_real_templates_are_replayed() -> None:
    count = 0
    for path in PATHS:
        template = template_of(path)
        for name in ("plain", "system", "one turn"):
            outcome(template, SHAPES[name][0])
        count += bool(known(template))
    assert count >= 45, count


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(SAID) | st.text(max_size=12), min_size=2, max_size=5), st.booleans(), st.booleans())
def test_replayed_is_proved_for_any_text(said: list[str], system: bool, thinks: bool) -> None:
    messages = chat(*said, system=system, thought=said[0] if thinks else None)
    for template in LOOKING:
        replayed, proved = both(template, messages)
        assert replayed == proved


def looks(at: str) -> str:
    """ChatML whose prompt for an answer depends on what `at` says of the last message."""
    return CHATML.replace(
        "{% if add_generation_prompt %}",
        "{% if add_generation_prompt and (" + at + ") %}<|odd|>{% elif add_generation_prompt %}",
    )


LOOKS = (
    "'/no_think' in messages[-1].content",
    "messages[-1].content in '/no_think and more'",
    "messages[-1].content in ['/no_think', 'a']",
    "messages[-1].content == '/no_think'",
    "'/no_think' == messages[-1].content",
    "messages[-1].content != 'Hello'",
    "messages[-1].content < 'h'",
    "messages[-1].content.startswith('/no')",
    "messages[-1].content.endswith('think')",
    "messages[-1].content.startswith(('/no', 'x'))",
    "messages[-1].content.find('/no') >= 0",
    "'x/no_think'.endswith(messages[-1].content)",
    "messages[-1].content | length > 5",
    "messages[-1].content | count > 5",
    "messages[-1].content[:3] == '/no'",
    "messages[-1].content[0] == '/'",
    "messages[-1].content | first == '/'",
    "messages[-1].content.split('_') | length > 1",
    "messages[-1].content | upper == '/NO_THINK'",
    "messages[-1].content is lower",
    "messages[-1].content is eq '/no_think'",
    "messages[-1].content is in ['/no_think']",
    "messages[-1].content is sameas messages[0].content",
    "messages[-1].content | wordcount > 1",
    "messages[-1].content | int > 0",
    "messages[-1].content | tojson | length > 8",
    "messages[-1] | string | length > 60",
    "messages | map(attribute='content') | join | length > 30",
    "messages | selectattr('content', 'equalto', '/no_think') | list | length > 0",
    "messages | map(attribute='content') | unique | list | length < 3",
    "messages | sort(attribute='content') | first == messages[0]",
    "messages | groupby('content') | length > 3",
    "{'/no_think': 1}[messages[-1].content] is defined",
    "({'/no_think': 1}.get(messages[-1].content))",
    "'%s' % messages[-1].content == '/no_think'",
    "'%5.3s' % messages[-1].content == '  /no'",
    "'{}'.format(messages[-1].content) | length > 7",
    "(messages[-1].content ~ '') | length > 7",
    "('x' ~ messages[-1].content) == 'x/no_think'",
    "messages[-1].content.strip() == '/no_think'",
    "messages[-1].content | trim | length > 7",
    "messages[-1].content | replace('/', '') | length > 7",
    "messages[-1].content.encode() | length > 7",
    "messages[-1].content * 2 == 'aa'",
    "messages[-1].content + messages[0].content == 'aa'",
    "messages[-1].content == messages[0].content",
    "messages[-1] == messages[0]",
    "messages[-1].content in messages | map(attribute='content') | list",
    "not messages[-1].content",
    "messages[-1].content is none or messages[-1].content == ''",
    "messages[-1].content is string and messages[-1].content is not mapping and '</think>' in messages[-1].content",
    "messages[-1].content is number",
    "messages[-1].content | default('/no_think', true) == '/no_think'",
    "messages[-1].content.isdigit()",
    "messages[-1].content.rstrip('k') != messages[-1].content",
    "messages[-1].content | reverse == 'a'",
    "loop_found(messages[-1].content)",
)
MACRO = "{% macro loop_found(text) %}{% for c in text %}{% if c == '/' %}1{% endif %}{% endfor %}{% endmacro %}"
WRITES = (
    "{{ m.content | upper }}",
    "{{ m.content | trim }}",
    "{{ m.content.strip('\\n') }}",
    "{{ m.content.lstrip() }}",
    "{{ (' ' ~ m.content ~ ' ') | trim }}",
    "{{ ('[' + m.content + ']').strip() }}",
    "{{ m.content | tojson }}",
    "{{ m.content | indent(2) }}",
    "{{ m.content.split('</think>')[-1] }}",
    "{{ m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content else m.content }}",
    "{{ m.content | replace('a', 'b') }}",
    "{{ m.content | e }}",
    "{% filter trim %} {{ m.content }} {% endfilter %}",
    "{% set x %}{{ m.content }}!{% endset %}{{ x }}",
    "{% set ns = namespace(t='') %}{% for c in m.content %}{% set ns.t = ns.t + c %}{% endfor %}{{ ns.t }}",
    "{{ m.content if m.content | length < 6 else m.content[:6] }}",
    "{{ m.content }}{{ m.content }}",
    "{{ m.content | title }}",
    "{{ '%s' % m.content }}",
    "{{ [m.content, ''] | join }}",
)
LOOKING = [ChatTemplate(MACRO + looks(at), end_of_turn=[END]) for at in LOOKS] + [
    ChatTemplate(
        CHATML.replace("{{ message.content }}", text.replace("m.content", "message.content")), end_of_turn=[END]
    )
    for text in WRITES
]


def test_the_templates_look() -> None:
    """Each of them does what the test above needs: it renders, and gives other prompts or texts for some chats."""
    assert all(template.source != MACRO + CHATML for template in LOOKING)
    odd = 0
    for template in LOOKING[: len(LOOKS)]:
        prompts = set()
        for said in SAID:
            try:
                prompts.add("<|odd|>" in template.render([user(said)], add_generation_prompt=True))
            except TemplateError:
                prompts.add(None)
        odd += len(prompts) > 1
    assert odd >= 45, odd


def test_what_only_puts_texts_out_is_replayed() -> None:
    template = ChatTemplate(CHATML, end_of_turn=[END])
    written(template, chat("Hi", "Hello"))
    assert len(known(template)) == 1
    assert both(template, chat(END, "<|im_start|>"))[0] == both(template, chat(END, "<|im_start|>"))[1]


def test_a_long_chat_is_replayed_too() -> None:
    template = ChatTemplate(CHATML, end_of_turn=[END])
    messages = chat(*(f"turn {number}" for number in range(60)))
    replayed, proved = both(template, messages)
    assert replayed == proved
    assert len(replayed[0][1]) == 30


def test_a_replay_that_differs_from_the_proof_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(CHATML, end_of_turn=[END])
    written(template, chat("Hi", "Hello"))
    (replay,) = known(template)
    replay.spans[0] = (1, replay.spans[0][1], replay.spans[0][1], "prefix")  # a fault
    monkeypatch.setattr(replay_module, "PROVED_AGAIN", 1)
    with pytest.raises(WorkError, match="those of its structure") as caught:
        written(template, chat("Bye", "See you"))
    assert "OUTLIVE_PROVE_ALL" in str(caught.value.fix)


def test_structures_are_bounded_and_stay_in_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "MAX_STRUCTURES", 5)
    template = ChatTemplate(CHATML, end_of_turn=[END])
    for number in range(2, 30):
        written(template, chat(*(f"t{place}" for place in range(number))))
    assert len(replays_of(template)._known) == 5
    before = template.hash
    again = pickle.loads(pickle.dumps(template))
    assert (again.hash, again.replays) == (before, None)


@pytest.mark.parametrize(
    "look",
    [
        *(len, iter, hash, str, repr, bytes, int, float, format, sorted, list, lambda x: x[0], lambda x: x[1:]),
        *(lambda x: x < "a", lambda x: x <= "a", lambda x: x == x + "a", lambda x: {x: 1}, lambda x: x * 2),
        *(lambda x: f"{x}", lambda x: format(x, "s"), lambda x: x % 1, lambda x: x.startswith(("a", "b"))),
        *(lambda x: ("a" + x).startswith("a"), lambda x: "b" in (x + "a"), lambda x: x.strip("ab"), lambda x: x in {x}),
    ],
)
def test_an_unknown_text_can_not_be_looked_at(look: Any) -> None:
    with pytest.raises((Looked, TypeError)):
        look(Unknown((Slot(0),), set()))


def test_an_unknown_text_can_be_put_together_and_stripped() -> None:
    text: Any = Unknown((Slot(0),), set())
    made = "\n " + (" a " + text + "\n" + text + " ") + " "
    assert made.pieces == ("\n  a ", Slot(0), "\n", Slot(0), "  ")
    stripped = made.strip()
    assert stripped.pieces == ("a ", Slot(0), "\n", Slot(0, (("rstrip", None),)))
    assert stripped.pieces[-1].of("x y ") == "x y"
