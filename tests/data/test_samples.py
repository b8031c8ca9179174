"""Which tokens carry loss. Invariant 5: each trained turn's served prompt is a token prefix, its end a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.data.conversation import Chat, Text
from outlive.data.formats import read_conversation
from outlive.data.samples import Policy, Sample, SampleMaker
from outlive.text.certificate import certify
from outlive.text.prompt import served_prompt
from outlive.text.spans import Refusal
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import cases, tiny_tokenizer

CHAT = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "I am fine."},
    {"role": "user", "content": "And you?"},
    {"role": "assistant", "content": "See you tomorrow."},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def _maker(tokenizer: Tokenizer, **policy: Any) -> SampleMaker:
    return SampleMaker(tokenizer, ChatTemplate.of(tokenizer), Policy(**policy))


def _targets(tokenizer: Tokenizer, sample: Sample) -> list[str]:
    """The text of each run of targets."""
    runs: list[list[int]] = []
    for place, (token, weight) in enumerate(zip(sample.tokens.tolist(), sample.weights.tolist(), strict=True)):
        if weight and (place == 0 or not sample.weights[place - 1]):
            runs.append([])
        if weight:
            runs[-1].append(token)
    return [tokenizer.decode(run) for run in runs]


@pytest.mark.parametrize(
    ("policy", "targets"),
    [
        ({}, ["I am fine.<|im_end|>", "See you tomorrow.<|im_end|>"]),
        ({"turn_end": "content"}, ["I am fine.", "See you tomorrow."]),
        ({"turn_end": "suffix"}, ["I am fine.<|im_end|>\n", "See you tomorrow.<|im_end|>\n"]),
        ({"loss_on": "last_assistant"}, ["See you tomorrow.<|im_end|>"]),
    ],
)
def test_policies(tokenizer: Tokenizer, policy: dict[str, str], targets: list[str]) -> None:
    (sample,) = _maker(tokenizer, **policy).make(Chat(CHAT, None, 0))
    assert _targets(tokenizer, sample) == targets
    assert sample.weights[0] == 0


def test_loss_on_all_spares_the_first_token_only(tokenizer: Tokenizer) -> None:
    (sample,) = _maker(tokenizer, loss_on="all").make(Chat(CHAT, None, 0))
    assert sample.weights.tolist() == [0.0, *[1.0] * (len(sample.tokens) - 1)]


def test_a_completions_assistant_turns_carry_loss_and_no_others(tokenizer: Tokenizer) -> None:
    """A user turn inside the completion is no target, and neither is the prompt's assistant turn."""
    more = [*CHAT[2:], {"role": "user", "content": "Paris?"}, {"role": "assistant", "content": "true"}]
    row = {"prompt": CHAT[:2], "completion": more}
    (sample,) = _maker(tokenizer).make(read_conversation(row, "prompt_completion"))
    assert _targets(tokenizer, sample) == ["See you tomorrow.<|im_end|>", "true<|im_end|>"]


def test_message_weights(tokenizer: Tokenizer) -> None:
    chat = [CHAT[0], {**CHAT[1], "weight": 0}, CHAT[2], {**CHAT[3], "weight": 0.25}]
    (sample,) = _maker(tokenizer).make(read_conversation({"messages": chat}, "messages"))
    assert _targets(tokenizer, sample) == ["See you tomorrow.<|im_end|>"]
    assert set(sample.weights.tolist()) == {0.0, 0.25}


def test_a_system_text_is_given_to_those_without(tokenizer: Tokenizer) -> None:
    maker = _maker(tokenizer, system="Answer in a few words.")
    (sample,) = maker.make(Chat(CHAT, None, 0))
    assert tokenizer.decode(sample.tokens.tolist()).startswith("<|im_start|>system\nAnswer in a few words.<|im_end|>")
    (other,) = maker.make(Chat([{"role": "system", "content": "Own."}, *CHAT], None, 0))
    assert "Answer in" not in tokenizer.decode(other.tokens.tolist())


def test_text_and_completion(tokenizer: Tokenizer) -> None:
    (text,) = _maker(tokenizer).make(Text("", "Hello there"))
    assert tokenizer.decode(text.tokens.tolist()) == "Hello there<|im_end|>"
    assert text.weights.tolist() == [0.0, *[1.0] * (len(text.tokens) - 1)]
    (pair,) = _maker(tokenizer).make(Text("The sky is bl", "ue today"))
    assert _targets(tokenizer, pair) == ["ue today<|im_end|>"]
    (content,) = _maker(tokenizer, turn_end="content").make(Text("The sky is bl", "ue today"))
    assert _targets(tokenizer, content) == ["ue today"]


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)


@settings(deadline=None, max_examples=150)
@given(contents=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3))
def test_the_served_prompt_is_a_token_prefix(tokenizer: Tokenizer, contents: list[tuple[str, str]]) -> None:
    """For every trained turn, whatever the text: white space at its edges, quoted special tokens, any script."""
    chat = [
        {"role": role, "content": text}
        for turn in contents
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    maker = _maker(tokenizer)
    try:
        samples = maker.make(Chat(chat, None, 0))
    except Refusal:
        return
    for turn in range(1, len(chat), 2):
        prompt = tokenizer.encode(served_prompt(ChatTemplate.of(tokenizer), chat[:turn]))
        holding = [s for s in samples if s.tokens[: len(prompt)].tolist() == prompt and s.weights[len(prompt)] == 1]
        assert holding, f"turn {turn}: no sample begins with its served prompt and goes on with a target"
        (sample, *_) = holding
        after = sample.tokens[len(prompt) :].tolist()
        end = after.index(tokenizer.eos_id)
        assert sample.weights[len(prompt) : len(prompt) + end + 1].all()


def test_rows_whose_history_a_server_tokenises_otherwise_are_unrolled(tokenizer: Tokenizer) -> None:
    """An answer that begins with line breaks is joined to the header's when it has become history."""
    (first, *_) = _maker(tokenizer).make(Chat(CHAT, None, 0))
    maker = SampleMaker(_Joining(tokenizer), ChatTemplate.of(tokenizer), Policy())  # type: ignore[arg-type]
    samples = maker.make(Chat([CHAT[0], {"role": "assistant", "content": "\nfine"}, *CHAT[2:]], None, 0))
    assert [sample.part for sample in samples] == [0, 1]
    assert maker.counts == {"joint_differs": 1, "unrolled": 1}
    assert first.part == 0


class _Joining:
    """A tokenizer that makes one token of two line breaks, wherever they meet."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._inner = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, text: str) -> list[int]:
        first, *rest = text.split("\n\n")
        return [*self._inner.encode(first), *(token for part in rest for token in [7, *self._inner.encode(part)])]

    def encode_all(self, texts: list[str]) -> list[Any]:
        return [np.array(self.encode(text), np.int32) for text in texts]


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), max_size=6), joining=st.booleans())
def test_samples_made_together_are_those_of_each(
    tokenizer: Tokenizer, rows: list[list[tuple[str, str]]], joining: bool
) -> None:
    """Rendered, tokenised, weighted and compared at their bounds all at once, or one by one."""
    own: Any = _Joining(tokenizer) if joining else tokenizer
    together, alone = (SampleMaker(own, ChatTemplate.of(tokenizer), Policy()) for _ in range(2))
    drafts = []
    for turns in rows:
        pairs = [(("user", asked), ("assistant", said)) for asked, said in turns]
        messages = [{"role": role, "content": text} for pair in pairs for role, text in pair]
        try:
            drafts.append(together.draft(Chat(messages, None, 0)))
        except Refusal:
            continue
    together.encode_ahead(drafts)
    for draft in drafts:
        found, expected = together.finish(draft), alone.make(draft.conversation)
        assert [(s.tokens.tolist(), s.weights.tolist(), s.part) for s in found] == [
            (s.tokens.tolist(), s.weights.tolist(), s.part) for s in expected
        ]
    assert together.counts == alone.counts


def test_real_chats_keep_their_prompts(tokenizer: Tokenizer) -> None:
    """Invariant 5 on 400 chats: each trained turn's prompt, as a server renders it, begins a sample."""
    path = cases() / "chat400.jsonl"
    if not path.exists():
        pytest.skip("the cases are not here")
    maker, template, turns = _maker(tokenizer), ChatTemplate.of(tokenizer), 0
    for line in path.read_text().splitlines():
        messages = json.loads(line)["messages"]
        samples = maker.make(Chat(messages, None, 0))
        for turn, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = np.array(tokenizer.encode(served_prompt(template, messages[:turn])))
                assert any(np.array_equal(s.tokens[: len(prompt)], prompt) and s.weights[len(prompt)] for s in samples)
                turns += 1
    assert turns > 600


def test_tool_arguments_as_text_reach_the_template_as_an_object() -> None:
    call = {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    chat = Chat([{"role": "assistant", "content": "", "tool_calls": [call]}], None, 0)
    (shown,) = chat.rendered_messages()
    assert shown["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}


def test_a_developer_is_the_system_where_the_template_knows_no_other_name(tokenizer: Tokenizer) -> None:
    row = {"messages": [{"role": "developer", "content": "Answer in a few words."}, *CHAT]}
    knows = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + (
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# developer #}"
    )
    for template, role, count in ((None, "system", 1), (knows, "developer", 0)):
        maker = SampleMaker(tokenizer, ChatTemplate.of(tokenizer, template), Policy())
        (sample,) = maker.make(read_conversation(row, "messages"))
        assert tokenizer.decode(sample.tokens.tolist()).startswith(
            f"<|im_start|>{role}\nAnswer in a few words.<|im_end|>"
        )
        assert maker.counts["developer_as_system"] == count


def test_arguments_are_given_in_the_form_that_the_template_is_written_for(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One template writes the text as it is, the other makes JSON of an object: the model learns JSON, once."""
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path))
    turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}CALL "
    end = "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    written = {
        "text": "{{ c.function.name }} {{ c.function.arguments }}",
        "object": "{{ c.function.name }} {{ c.function.arguments | tojson }}",
    }
    for form, body in written.items():
        template = ChatTemplate.of(tokenizer, turns + body + end)
        assert certify(template).arguments == form
        for arguments in ({"city": "Paris"}, '{"city": "Paris"}'):
            call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
            row = {"messages": [CHAT[0], {"role": "assistant", "content": "", "tool_calls": [call]}]}
            (sample,) = SampleMaker(tokenizer, template, Policy()).make(read_conversation(row, "messages"))
            assert _targets(tokenizer, sample) == ['CALL weather {"city": "Paris"}<|im_end|>']
