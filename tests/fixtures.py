"""Small inputs that several tests share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

# The form of SmolLM2-Instruct's template: ChatML with a default system turn.
CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a small assistant.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_CORPUS = [
    "You are a small assistant. The user asks, and the assistant answers in a few words.",
    "Hello there! How are you today? I am fine, thank you. See you tomorrow.",
    "system user assistant tool name order date city Paris 12 345 6789 true false null",
    '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n\n<think>\nreason\n</think>',
]


def cases() -> Path:
    """The folder of cases: $OUTLIVE_CASES, or ../shared/cases beside the repository. May be missing."""
    return Path(os.environ.get("OUTLIVE_CASES") or Path(__file__).parents[2] / "shared" / "cases")


def tiny_tokenizer(folder: Path, template: str | None = CHATML, **config: Any) -> Path:
    """Write a byte-level BPE tokenizer of about 500 tokens with ChatML's special tokens into `folder`; return it.

    ids: <|endoftext|> 0 (unk), <|im_start|> 1 (bos), <|im_end|> 2 (eos and pad, as SmolLM2-Instruct has it).
    template: chat_template.jinja, none if None. config: further keys of tokenizer_config.json (None removes one).
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "model_max_length": 2048,
        "tokenizer_class": "PreTrainedTokenizerFast",
    } | config
    settings = {key: value for key, value in settings.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2})
    )
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
