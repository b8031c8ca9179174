"""Promise: each token counts as its turn, its part or its characters say, whatever the template writes around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.data.formats import read_conversation
from outlive.data.samples import Policy, Sample, SampleMaker
from outlive.text.refusal import Refusal
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def _sample(tokenizer: Tokenizer, *answers: dict[str, Any], **policy: Any) -> Sample:
    messages = [
        message
        for answer in answers
        for message in ({"role": "user", "content": "Hello"}, {"role": "assistant", **answer})
    ]
    maker = SampleMaker(tokenizer, ChatTemplate.of(tokenizer), Policy(**policy))
    (sample,) = maker.make(read_conversation({"messages": messages}, "messages"))
    return sample


def _runs(tokenizer: Tokenizer, sample: Sample) -> list[tuple[float, str]]:
    """Weight and text of each run of equal weights above 0."""
    bounds = np.flatnonzero(np.diff(sample.weights, prepend=-1))
    ends = [*bounds[1:], len(sample.weights)]
    runs = [
        (float(sample.weights[a]), tokenizer.decode(sample.tokens[a:b].tolist()))
        for a, b in zip(bounds, ends, strict=True)
    ]
    return [run for run in runs if run[0]]


def test_parts_have_weights_of_their_own(tokenizer: Tokenizer) -> None:
    parts = [
        {"type": "text", "text": "See you", "weight": 0.25},
        {"type": "text", "text": " tomorrow.", "weight": 2},
    ]
    sample = _sample(tokenizer, {"content": parts})
    # between the parts stands a line break, as servers join parts for a template that takes text only
    assert _runs(tokenizer, sample) == [(0.25, "See you\n"), (2.0, " tomorrow.<|im_end|>")]


def test_ranges_of_characters_end_where_they_say(tokenizer: Tokenizer) -> None:
    text = "I am fine. See you."
    ranges = [
        {"begin_offset": 0, "end_offset": 9, "train": True},
        {"begin_offset": 10, "end_offset": 18, "train": False},
    ]
    sample = _sample(tokenizer, {"content": text, "train_detail": ranges}, {"content": "true"})
    assert _runs(tokenizer, sample) == [(1.0, "I am fine."), (1.0, "true<|im_end|>")]


def test_what_no_range_holds_has_weight_0(tokenizer: Tokenizer) -> None:
    sample = _sample(
        tokenizer, {"content": "I am fine.", "train_detail": [{"begin_offset": 5, "end_offset": 9, "weight": 0.5}]}
    )
    assert _runs(tokenizer, sample) == [(0.5, " fine.<|im_end|>")]


def test_a_turn_of_weight_0_by_parts_carries_no_loss(tokenizer: Tokenizer) -> None:
    sample = _sample(
        tokenizer, {"content": [{"type": "text", "text": "I am fine.", "train": False}]}, {"content": "true"}
    )
    assert _runs(tokenizer, sample) == [(1.0, "true<|im_end|>")]


def test_weights_of_characters_mean_nothing_where_all_is_learned(tokenizer: Tokenizer) -> None:
    with pytest.raises(Refusal, match="bad_weight"):
        _sample(tokenizer, {"content": "I am fine.", "weight": 0.5}, loss_on="all")


@pytest.mark.parametrize(
    ("loss_on", "learned"), [("assistant", "bd"), ("last_assistant", "d"), ("all", "bcd"), ("completion", "bd")]
)
def test_labels_of_segments_and_tokens_under_each_policy(tokenizer: Tokenizer, loss_on: Any, learned: str) -> None:
    maker = SampleMaker(tokenizer, ChatTemplate.of(tokenizer), Policy(loss_on))
    segments = [{"text": text, "label": text in "bd"} for text in "abcd"]
    ids = [tokenizer.encode(text)[0] for text in "abcd"]
    labels = [token if text in "bd" else -100 for text, token in zip("abcd", ids, strict=True)]
    for row, name in (({"segments": segments}, "input_output"), ({"input_ids": ids, "labels": labels}, "tokens")):
        (sample,) = maker.make(read_conversation(row, name))
        assert sample.tokens.tolist() == ids
        assert tokenizer.decode(sample.tokens[sample.weights > 0].tolist()) == learned


@settings(deadline=None, max_examples=100)
@given(
    text=st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(
        lambda text: text.strip() == text
    ),
    data=st.data(),
)
def test_a_token_has_the_weight_of_its_last_character(tokenizer: Tokenizer, text: str, data: st.DataObject) -> None:
    """Whatever the text and the ranges: the tokens and their sum of targets are those of the characters."""
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin, len(text) - 1))
    ranges = [{"begin_offset": begin, "end_offset": end, "train": True}]
    try:
        plain = _sample(tokenizer, {"content": text})
        sample = _sample(tokenizer, {"content": text, "train_detail": ranges}, {"content": "true"})
    except Refusal:
        return
    targets = np.flatnonzero(plain.weights)
    ids, ends = tokenizer.encode_with_ends(text + "<|im_end|>")
    if plain.tokens[targets].tolist() != ids:
        return  # the text quotes a special token, or joins with the end of turn
    of_character = [float(begin <= place <= end) for place in range(len(text))]
    expected = [of_character[min(stop, len(text)) - 1] for stop in ends]
    assert sample.weights[targets].tolist() == expected
