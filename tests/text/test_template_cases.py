"""Promise: every template of the cases renders as transformers renders it, byte for byte, and fails where it fails."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outlive.text.template import ChatTemplate, TemplateError
from tests.fixtures import cases, tiny_tokenizer
from tests.text.conversations import SHAPES

FOLDER = cases() / "templates"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no case templates in {FOLDER}")
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<|endoftext|>", "pad_token": "</s>"}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A transformers tokenizer with <s> and </s>; only its apply_chat_template is used."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")
    folder = tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"), template=None, **SPECIAL)
    return transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))


def ours(template: ChatTemplate | None, shape: str, prompt: bool, **kwargs: Any) -> str | None:
    messages, tools = SHAPES[shape]
    try:
        return (
            None if template is None else template.render(messages, tools=tools, add_generation_prompt=prompt, **kwargs)
        )
    except TemplateError:
        return None


def theirs(reference: Any, source: str, shape: str, prompt: bool, **kwargs: Any) -> str | None:
    messages, tools = copy.deepcopy(SHAPES[shape])
    try:
        return str(
            reference.apply_chat_template(
                messages, tools=tools, chat_template=source, tokenize=False, add_generation_prompt=prompt, **kwargs
            )
        )
    except Exception:
        return None


def test_renders_are_equal_on_every_shape(reference: Any) -> None:
    counts: Counter[str] = Counter()
    differ = []
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        try:
            template = ChatTemplate(source, SPECIAL)
        except TemplateError:
            template = None
        for shape in SHAPES:
            for prompt in (False, True):
                for kwargs in ({}, {"enable_thinking": False}):
                    expected = theirs(reference, source, shape, prompt, **kwargs)
                    counts["raise" if expected is None else "render"] += 1
                    if ours(template, shape, prompt, **kwargs) != expected:
                        differ.append((path.name, shape, prompt, kwargs))
    print(f"{sum(counts.values())} renders of {len(list(FOLDER.glob('*.jinja')))} templates: {dict(counts)}")
    assert differ == []
    assert counts["render"] > 3000


def test_rendering_leaves_the_messages_as_they_were() -> None:
    before = json.dumps(SHAPES)
    for path in sorted(FOLDER.glob("*.jinja")):
        for shape in SHAPES:
            ours(ChatTemplate(path.read_text(encoding="utf-8"), SPECIAL), shape, True)
    assert json.dumps(SHAPES) == before


def test_a_date_is_told_by_each_template_that_asks_for_one() -> None:
    asking = [path for path in FOLDER.glob("*.jinja") if "strftime_now" in path.read_text(encoding="utf-8")]
    dated = []
    for path in asking:
        first, second = (ChatTemplate(path.read_text(), SPECIAL, date=day) for day in ("2031-05-17", "2032-06-18"))
        assert first.uses_date
        assert first.hash != second.hash
        texts = [ours(template, "system", True) for template in (first, second)]
        tools = [ours(template, "tools", True) for template in (first, second)]
        if texts[0] != texts[1] or tools[0] != tools[1]:
            dated.append(Path(path).name)
    assert len(dated) >= 5, dated
