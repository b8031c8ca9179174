"""Promise: answers to one prompt lie in one group with roles; what is learned from each is what it would be alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlive.data.formats import read_conversation
from outlive.data.sample import Sample
from outlive.data.samples import Policy, SampleMaker
from outlive.data.store import Store
from outlive.data.store_writer import StoreWriter
from outlive.text.refusal import Refusal
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.cli.bad import outcome, refused
from tests.data.golden_rows import GOLDEN, said
from tests.fixtures import tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def _maker(tokenizer: Tokenizer, groups: bool = True, **policy: Any) -> SampleMaker:
    return SampleMaker(tokenizer, ChatTemplate.of(tokenizer), Policy(**policy), groups=groups)


def _whole(samples: list[Sample], place: int) -> tuple[list[int], list[float]]:
    """A branch with all that it continues, as one sample: a branch begins with its prefix's last token."""
    sample = samples[place]
    if sample.prefix < 0:
        return sample.tokens.tolist(), sample.weights.tolist()
    tokens, weights = _whole(samples, sample.prefix)
    return tokens + sample.tokens.tolist(), weights + sample.weights.tolist()


PAIR = {
    "prompt": said("Hello", "I am fine.", "And you?"),
    "chosen": said("", "See you tomorrow.")[1:],
    "rejected": said("", "Go.")[1:],
}
TEXTS = {"prompt": "The sky is", "chosen": " blue today", "rejected": " black"}


@pytest.mark.parametrize(("row", "tools"), [(PAIR, None), (TEXTS, None)])
def test_a_pair_has_one_prompt_and_two_branches(tokenizer: Tokenizer, row: dict[str, Any], tools: Any) -> None:
    samples = _maker(tokenizer).make(read_conversation(row, "preference"))
    assert [(sample.role, sample.prefix, sample.part) for sample in samples] == [
        ("prefix", -1, 0), ("chosen", 0, 1), ("rejected", 0, 2),
    ]  # fmt: skip
    assert not samples[0].weights.any()
    for place, name in ((1, "chosen"), (2, "rejected")):
        alone = read_conversation({"prompt": row["prompt"], "completion": row[name]}, "prompt_completion")
        (expected,) = _maker(tokenizer).make(alone)
        tokens, weights = _whole(samples, place)
        assert tokens == expected.tokens.tolist()
        assert weights == expected.weights.tolist()


def test_each_step_is_learned_after_all_before_it(tokenizer: Tokenizer) -> None:
    row = {"prompt": "1+1", "completions": ["is 2", "so 3", "end"], "labels": [1, "false", True]}
    samples = _maker(tokenizer).make(read_conversation(row, "stepwise"))
    assert [sample.role for sample in samples] == ["good_step", "bad_step", "good_step"]
    targets = [tokenizer.decode(sample.tokens[sample.weights > 0].tolist()) for sample in samples]
    assert targets == ["is 2", "\nso 3", "\nend<|im_end|>"]
    assert tokenizer.decode(samples[2].tokens.tolist()) == "1+1is 2\nso 3\nend<|im_end|>"


def test_a_prompt_with_an_answer_ends_where_the_model_begins(tokenizer: Tokenizer) -> None:
    row = {"prompt": said("Hello"), "reward_model": {"style": "rule", "ground_truth": "42"}}
    (sample,) = _maker(tokenizer).make(read_conversation(row, "prompt_answer"))
    assert tokenizer.decode(sample.tokens.tolist()).endswith("Hello<|im_end|>\n<|im_start|>assistant\n")
    assert (sample.role, sample.weights.any()) == ("prompt", False)


def test_labels_are_roles(tokenizer: Tokenizer) -> None:
    for label, role in ((True, "desirable"), (0, "undesirable"), ("true", "desirable"), ("0", "undesirable")):
        row = {"prompt": "The sky is", "completion": " blue", "label": label}
        samples = _maker(tokenizer).make(read_conversation(row, "kto"))
        assert [sample.role for sample in samples] == ["prefix", role]
    with pytest.raises(Refusal, match="bad_label"):
        read_conversation({"prompt": "a", "completion": "b", "label": "maybe"}, "kto")


def test_groups_are_kept_whole_in_a_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.folder.mkdir()
    for number, row in enumerate((PAIR, TEXTS)):
        writer.add_row(_maker(tokenizer).make(read_conversation(row, "preference")), f"r:{number}")
    writer.close({})
    store = Store(tmp_path / "store")
    assert store.whole_column("group").tolist() == [0, 0, 0, 1, 1, 1]
    assert [store.value(index, "role") for index in range(3)] == ["prefix", "chosen", "rejected"]
    assert store.whole_column("prefix").tolist() == [-1, 0, 0, -1, 0, 0]


def test_a_group_that_is_too_long_is_left_out_whole(tokenizer: Tokenizer) -> None:
    from collections import Counter

    from outlive.data.overlong import fit

    samples = _maker(tokenizer).make(read_conversation(PAIR, "preference"))
    total, counts = sum(len(sample.tokens) for sample in samples), Counter[str]()
    assert fit(samples, total, "split", counts) == samples
    with pytest.raises(Refusal, match="overlong"):
        fit(samples, total - 1, "split", counts)
    assert counts["targets_left_out"] == sum(int(np.count_nonzero(sample.weights)) for sample in samples)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_tokenizer(tmp_path / "model")
    return tmp_path


@pytest.mark.parametrize(
    ("format_name", "said", "way_out"),
    [
        ("preference", "pairs of a better and a worse answer", "data.train.0.format=chosen"),
        ("kto", "answers with a label", "data.train.0.format=prompt_completion"),
        ("ranking", "ranked answers", None),
        ("prompt_answer", "prompts with the right answer", None),
        ("stepwise", "steps that are judged", None),
    ],
)
def test_sft_refuses_groups_and_names_the_way_out(here: Path, format_name: str, said: str, way_out: str | None) -> None:
    row = next(golden.row for golden in GOLDEN if golden.format == format_name)
    (here / "rows.jsonl").write_text(json.dumps(row) + "\n")
    command = ["prepare", "--model", "model", "--data", "rows.jsonl", "data.validation=null"]
    message = refused([*command, "data.bad_rows=drop"], said, *([way_out] if way_out else []))
    assert message.count("error: ") == 1
    if way_out:
        assert "kept: 1" in outcome([*command, way_out]).stdout
    shown = outcome(["inspect", "rows.jsonl", "--tokenizer", "model", "--json"]).stdout
    assert all(json.loads(line)["role"] for line in shown.splitlines())
