"""The promise: a token is shown as part of the message that it really comes from, or of none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlive.data.conversation import Chat, Text
from outlive.data.overlong import fit
from outlive.data.sample import Sample
from outlive.data.sample_turns import Turn, turns_of
from outlive.data.samples import Policy, SampleMaker
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer

MESSAGES = [
    {"role": "system", "content": "zero said"},
    {"role": "user", "content": "one said"},
    {"role": "assistant", "content": "two said"},
    {"role": "user", "content": "one said"},
    {"role": "assistant", "content": "four said"},
]
# a last answer keeps its thought, an earlier one loses it
REWRITES = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and loop.last %}{{ m.content }}{% else %}{{ m.content.split('|')[-1] }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def maker_of(tmp_path: Path, template: str | None = None, **policy: Any) -> SampleMaker:
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "model"))
    return SampleMaker(tokenizer, ChatTemplate.of(tokenizer, template), Policy(**policy))


def said(maker: SampleMaker, sample: Sample, turns: list[Turn]) -> list[tuple[int, str, str]]:
    ids = sample.tokens.tolist()
    return [
        (turn.message, turn.role, maker.tokenizer.decode(ids[turn.start : turn.start + turn.length])) for turn in turns
    ]


@pytest.mark.parametrize("prove_all", ["", "1"])
@pytest.mark.parametrize("loss_on", ["assistant", "last_assistant", "all"])
def test_each_message_owns_its_text_and_no_other(
    loss_on: str, prove_all: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLIVE_PROVE_ALL", prove_all)
    maker = maker_of(tmp_path, loss_on=loss_on)
    for _ in range(3):  # the second of one structure is replayed
        (sample,) = maker.make(Chat(MESSAGES))
        before = dict(maker.counts)
        found = turns_of(maker, Chat(MESSAGES), [sample])
        assert maker.counts == before
        assert found is not None
        texts = said(maker, sample, found[0])
        assert [(place, role) for place, role, _ in texts] == [(i, m["role"]) for i, m in enumerate(MESSAGES)]
        for place, _, text in texts:
            assert text.removesuffix("\n").removesuffix("<|im_end|>") == MESSAGES[place]["content"]
        owned = {at for turn in found[0] for at in range(turn.start, turn.start + turn.length)}
        if loss_on != "all":
            assert {at for at, weight in enumerate(sample.weights) if weight} <= owned


def test_unrolled_samples_keep_the_numbers_of_the_row(tmp_path: Path) -> None:
    messages = [{**m, "content": f"think|{m['content']}"} for m in MESSAGES]
    maker = maker_of(tmp_path, REWRITES)
    samples = maker.make(Chat(messages))
    assert len(samples) == 2
    found = turns_of(maker, Chat(messages), samples)
    assert found is not None
    last = said(maker, samples[1], found[1])
    assert [place for place, _, _ in last] == [0, 1, 2, 3, 4]
    assert last[2][2] == "two said"
    assert last[4][2].startswith("think|four said")
    assert [place for place, _, _ in said(maker, samples[0], found[0])] == [0, 1, 2]


@pytest.mark.parametrize("how", ["truncate", "split"])
def test_cut_samples_keep_their_tokens_messages(how: Any, tmp_path: Path) -> None:
    whole = maker_of(tmp_path)
    (sample,) = whole.make(Chat(MESSAGES))
    of_whole = turns_of(whole, Chat(MESSAGES), [sample])
    assert of_whole is not None
    at = {place: turn.message for turn in of_whole[0] for place in range(turn.start, turn.start + turn.length)}
    length = 2 * len(sample.tokens) // 3
    maker = maker_of(tmp_path, sequence_length=length, overlong=how)
    cut = fit([sample], length, how, maker.counts)
    found = turns_of(maker, Chat(MESSAGES), cut)
    assert found is not None
    assert len(found) == len(cut)
    starts = [0, length - 1]
    for start, turns in zip(starts, found, strict=False):
        for turn in turns:
            assert {at.get(start + turn.start + k) for k in range(turn.length)} == {turn.message}


def test_a_system_text_of_the_run_is_no_message_of_the_row(tmp_path: Path) -> None:
    maker = maker_of(tmp_path, system="be brief")
    (sample,) = maker.make(Chat(MESSAGES[1:]))
    found = turns_of(maker, Chat(MESSAGES[1:]), [sample])
    assert found is not None
    assert [(turn.message, turn.role) for turn in found[0]][:2] == [(0, "user"), (1, "assistant")]


def test_what_is_no_chat_has_no_turns(tmp_path: Path) -> None:
    maker = maker_of(tmp_path)
    text = Text("", "plain words")
    assert turns_of(maker, text, maker.make(text)) is None
