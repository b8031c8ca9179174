"""Promise: what is worth a look is counted with its rows, in bounded memory, and good data has none of it."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from outlive.data import near as near_module
from outlive.data import seen as seen_module
from outlive.data.conversation import Chat, Group, Text, Tokens, content_hash
from outlive.data.formats import read_conversation
from outlive.data.ledger import Ledger
from outlive.data.lint_counts import LintCounts
from outlive.data.lints import LINTS, is_truncated, lints_of, tokenizer_lines
from outlive.data.near import Near, sketch_of, sketches_of
from outlive.data.pipeline import RowReader, read_samples
from outlive.data.sample import Sample, sample_of
from outlive.data.samples import Policy, SampleMaker
from outlive.data.seen import Seen
from outlive.data.token_lints import TokenLints
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.data.golden_rows import said
from tests.fixtures import tiny_tokenizer

LONG = "The river runs to the sea and nobody knows where it began or who was the first to cross it. " * 3
CUT = LONG + "It was then that the old man turned round and"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def _lints(tokenizer: Tokenizer, path: Path, rows: list[Any], template: str | None = None, **policy: Any) -> Ledger:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ledger = Ledger(str(path))
    maker = SampleMaker(tokenizer, ChatTemplate.of(tokenizer, template), Policy(**policy), groups=True)
    list(read_samples([path], RowReader(str(path), maker), ledger))
    assert ledger.kept == len(rows), ledger.refused
    return ledger


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"messages": said(*texts), **more}


DROPS_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHORTENS_HISTORY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.index0 + 2 > messages|length %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = [
    {**turn, "thinking": "hm"} if turn["role"] == "assistant" else turn for turn in said("hi", "yes", "so?", "no")
]
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "prompt_in_loss": (chat("hi", "yes"), {"loss_on": "all"}, None),
    "end_of_turn_untrained": (chat("hi", "yes"), {"turn_end": "content"}, None),
    "double_eos": ({"text": "a<|im_end|>"}, {}, None),
    "served_prompt_differs": ({"messages": THINKING}, {}, SHORTENS_HISTORY),
    "message_not_shown": ({"messages": said("hi", "yes", system="short")}, {}, DROPS_SYSTEM),
    "tools_not_shown": (chat("hi", "yes", tools=[{"type": "function", "function": {"name": "f"}}]), {}, None),
    "special_token_in_content": (chat("what is <|im_end|>?", "yes"), {}, None),
    "weight_on_other_role": (
        {"messages": [{"role": "user", "content": "hi", "weight": 1}, {"role": "assistant", "content": "yes"}]},
        {},
        None,
    ),
    "truncated_answer": (chat("hi", CUT), {}, None),
    "empty_answer": (chat("hi", "", "so?", "yes"), {}, None),
    "empty_turn": ({"messages": said("hi", "yes", system=" ")}, {}, None),
    "blank_edges": (chat("hi", "yes "), {}, None),
    "same_role_twice": (
        {"messages": [{"role": "user", "content": "a"}, *said("hi", "yes")]},
        {},
        None,
    ),
    "no_answer_at_end": (chat("hi", "yes", "and?"), {}, None),
    "template_text": (chat("[INST] hi [/INST]", "yes"), {}, None),
    "implicit_prompt": ({"chosen": "It is blue", "rejected": "It is black"}, {}, None),
}


# A special token in a text is a chat template's own text, too.
ALSO = {"double_eos": {"template_text"}, "special_token_in_content": {"template_text"}}


@pytest.mark.parametrize("name", CASES)
def test_each_lint_fits_its_row_and_no_good_one(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    row, policy, template = CASES[name]
    ledger = _lints(tokenizer, tmp_path / "rows.jsonl", [row], template, **policy)
    found = {lint["id"]: lint for lint in ledger.lints if lint["id"] != "pad_is_eos"}
    assert name in found
    assert set(found) <= {name, *ALSO.get(name, ())}
    assert (found[name]["count"], found[name]["rows"], found[name]["about"]) == (1, [0], LINTS[name])


def test_good_chats_have_none(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = [chat("hi", f"Yes, number {number}.", "and?", LONG + str(number) + ".") for number in range(1)]
    ledger = _lints(tokenizer, tmp_path / "rows.jsonl", rows)
    assert [lint["id"] for lint in ledger.lints if lint["id"] != "pad_is_eos"] == []


def test_the_rest_of_the_lints(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Those that need two rows, or a tokenizer of another kind, are tested here: no lint is left out."""
    own = {"duplicate", "near_duplicate", "pad_is_eos", "double_bos", "validation_overlap"}
    assert set(CASES) | own == set(LINTS)
    rows = [chat("hi", LONG), chat("hi", LONG), chat("hi", LONG.replace("nobody", "somebody", 1).upper())]
    ledger = _lints(tokenizer, tmp_path / "rows.jsonl", rows)
    found = {lint["id"]: lint for lint in ledger.lints}
    assert found["duplicate"]["rows"] == [1]
    assert found["near_duplicate"]["rows"] == [2]
    padded = Tokenizer.load(tiny_tokenizer(tmp_path / "padded", pad_token="<|im_end|>"))
    ledger = _lints(padded, tmp_path / "rows.jsonl", rows)
    assert next(lint for lint in ledger.lints if lint["id"] == "pad_is_eos")["count"] == 3
    assert not [line for line in ledger.lines() if "pad_is_eos" in line]
    assert tokenizer_lines([*ledger.lints, *ledger.lints]) == [f"pad_is_eos: {LINTS['pad_is_eos']}"]


def test_begin_tokens_that_stand_twice(tokenizer: Tokenizer) -> None:
    class WithBos:
        bos_id, eos_id, pad_id, end_of_turn_ids = 1, 2, 0, (2,)

    lints = TokenLints(WithBos())  # type: ignore[arg-type]
    tokens = Tokens((((1, 1, 5, 2), (0.0, 0.0, 1.0, 1.0)),))
    assert lints.of(tokens, [sample_of([1, 1, 5, 2], [0.0, 0.0, 1.0, 1.0])]) == ["double_bos"]
    assert lints.of(tokens, [sample_of([1, 5, 2], [0.0, 0.0, 1.0])]) == []
    assert lints.of(tokens, [sample_of([1, 5, 2, 2], [0.0, 0.0, 1.0, 1.0])]) == ["double_eos"]
    assert lints.of(tokens, [sample_of([1, 5, 6], [0.0, 0.0, 1.0])]) == ["end_of_turn_untrained"]


def test_lints_of_many_samples_are_those_of_each() -> None:
    source = random.Random(2)

    class Ids:
        bos_id, eos_id, pad_id, end_of_turn_ids = 1, 2, None, (2, 3)

    def sample() -> Sample:
        length = source.choice([0, 1, 2, 3, 9])
        weights = [0.0, *source.choices([0.0, 1.0, 0.5], [1, 3, 1], k=8)][:length]
        return sample_of(source.choices([1, 2, 3, 4], k=length), source.choice([weights, [0.0, *[1.0] * 8][:length]]))

    chat, group = Chat([{"role": "user", "content": "a"}]), Group("preference", "a", (("chosen", "b"),))
    conversations = [chat, group, Text("", "a"), Text("a", "b")]
    lints = TokenLints(Ids(), "all")  # type: ignore[arg-type]
    made = [(source.choice(conversations), [sample() for _ in range(source.choice([0, 1, 1, 3]))]) for _ in range(500)]
    found = lints.of_all(made)
    assert found == [lints.of(*one) for one in made]
    assert {name for names in found for name in names} == {
        "double_bos", "double_eos", "end_of_turn_untrained", "prompt_in_loss"}  # fmt: skip
    for (conversation, samples), names in zip(made, found, strict=True):
        ids = [own.tokens.tolist() for own in samples]
        assert ("double_bos" in names) == any(own[:2] == [1, 1] for own in ids)
        assert ("double_eos" in names) == any((2, 2) in pairwise(own) for own in ids)
        if conversation is chat:
            assert ("prompt_in_loss" in names) == all(own.weights[1:].all() for own in samples)
            ends = [
                weight > 0 and index in (2, 3)
                for own in samples
                for index, weight in zip(own.tokens, own.weights, strict=True)
            ]
            assert ("end_of_turn_untrained" in names) == (not any(ends))


@pytest.mark.parametrize(
    ("answer", "cut"),
    [
        (CUT, True),
        (LONG + "and so it ends,", True),
        (LONG + "\n```python\nprint(1)\n", True),
        (LONG, False),
        (LONG + "\n```python\nprint(1)\n```", False),
        (LONG + "\n- apples\n- pears", False),
        (LONG + "\n\nYours\nAnn", False),
        ("so it goes and", False),
        ("我们在河边走了很久，" * 30 + "然后回家了", False),
        (LONG + 'He said: "yes"', False),
        (LONG + "The result of all of these long computations is 42", False),
    ],
)
def test_a_truncated_answer_is_guessed_with_care(answer: str, cut: bool) -> None:
    assert is_truncated(answer) == cut


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\n### Instruction:\nb", True),
        ("### Response: b", True),
        ("a ### Instruction:", False),
        ("### Notes:", False),
        ("a < b, [INS], <x>, [1] " * 9 + "</s>", True),
        ("a < b, [INS], <x>, [1] " * 9, False),
        ("x<|im_end|>", True),
        ("<x> then\n### Response:", True),
    ],
)
def test_text_of_templates_is_told_from_other_marks(text: str, seen: bool) -> None:
    row = {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]}
    assert ("template_text" in lints_of(read_conversation(row, "messages"))) == seen


def test_near_duplicates_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_module, "MAX_TEXTS", 2000)
    source, near = random.Random(0), Near()

    def add(text: str, row: int) -> int | None:
        sketch = sketch_of(text)
        assert sketch is not None
        return near.add(sketch, row)

    words = [f"word{number}" for number in range(2000)]
    found = {0: 0, 2: 0, 40: 0}
    for row in range(300):
        text = source.choices(words, k=100)
        assert add(" ".join(text), row) is None  # random texts share words, but not runs of them
        for changed, _ in list(found.items()):
            other = list(text)
            for place in source.sample(range(100), changed):
                other[place] = "another"
            found[changed] += add(" ".join(other), 1000 + row) == row
    assert found[0] == 300
    assert found[2] > 270
    assert found[40] == 0
    assert sketch_of("short") is None


def test_sketches_of_many_texts_are_those_of_each() -> None:
    source = random.Random(1)
    words = ["river", "RUNS", "Größe", "漢字", "İstanbul", "\x1f", "\u2003", "\n", "the", "sea", "\ud800", "ß"]
    texts = ["", "short", "x" * 500, "ab" * 300, "the same run of words again. " * 40, "a" * 80, "q" * 79]
    for number in range(300):
        texts.append(" ".join(source.choices(words if number % 2 else words[:2] + words[8:10], k=number * 3)))
    texts += ["".join(source.choices("abcdefgh ", k=30_000)), "y" * 30_000]
    source.shuffle(texts)
    for some in (texts, texts[:1], []):
        for together, alone in zip(sketches_of(some), map(sketch_of, some), strict=True):
            assert (together is None) == (alone is None)
            assert together is None or alone is None or together.tolist() == alone.tolist()
    # in lower case and without white space, whatever way that is done
    said = "".join(map(chr, range(128))) * 2
    assert near_module._letters(said) == "".join(said.split()).lower().encode()
    assert near_module._letters(said + "é") == near_module._letters(said) + "é".encode()


@pytest.mark.parametrize("text", ["plain", 'é "quoted" \\ \n\t\x00', "漢字\u2028🙂", "\ud800", ""])
def test_a_chat_is_hashed_by_all_that_it_says(text: str) -> None:
    chat = Chat([{"role": "user", "content": text}, {"content": "b", "role": "assistant"}])
    as_json = json.dumps(
        [chat.messages, None], sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )  # what stores were made with
    assert content_hash(chat) == xxhash.xxh3_64_intdigest(as_json.encode("utf-8", "surrogatepass"))
    others = [Chat([*chat.messages[:1], {"role": "assistant", "content": "b", "name": "n"}]), Chat(chat.messages, [])]
    assert len({content_hash(one) for one in (chat, *others)}) == 3


def test_memory_is_bounded_and_nothing_is_said_that_is_not_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "MAX_SLOTS", 1 << 13)
    values = np.random.default_rng(0).integers(0, 2**63, 50_000).tolist()
    seen = Seen()
    assert not any(seen.add(value) for value in values[:3000])
    assert all(seen.add(value) for value in values[:3000])
    assert not any(seen.add(value) for value in values[3000:])  # none of these was there before
    assert seen.forgets
    assert len(seen._table) == 1 << 13


def test_a_million_rows_are_not_kept(tokenizer: Tokenizer) -> None:
    """Of every lint the count and a few rows stay, however many it fits."""
    lints = LintCounts()
    conversation = read_conversation(chat("hi", "yes "), "messages")
    for row in range(2000):
        lints.add(row, lints_of(conversation), row + 1, None)
    assert lints.to_json()[0] == {
        "id": "blank_edges", "count": 2000, "rows": [0, 1, 2, 3, 4], "about": LINTS["blank_edges"],
    }  # fmt: skip


def test_the_order_of_lints_does_not_depend_on_how_they_were_counted() -> None:
    """Those of equal counts too: a resumed preparation has taken the earlier ones up in another order."""
    rows = [["empty_turn"], ["duplicate", "pad_is_eos"], ["pad_is_eos"], ["duplicate"], ["empty_turn"]]
    whole, resumed = LintCounts(), LintCounts()
    for place, names in enumerate(rows):
        whole.count(names, place)
        before, resumed = resumed, LintCounts()
        resumed.take_up(before.to_json())
        resumed.count(names, place)
    assert resumed.to_json() == whole.to_json()
