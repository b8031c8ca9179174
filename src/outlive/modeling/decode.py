"""Decoding: answers of a model to prompts, as token ids in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

DEFAULT_BATCH = 16


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    end_ids: Sequence[int],
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int = DEFAULT_BATCH,
) -> list[list[int]]:
    """The new ids after each prompt, without the end token. temperature 0 is greedy.

    Prompts of similar length go together; shorter ones are padded on the left, and the padding is masked.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    by_length = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {"do_sample": False}
    training = model.training
    model.eval()
    try:
        for begin in range(0, len(by_length), batch_size):
            members = by_length[begin : begin + batch_size]
            ids, mask = _left_padded([prompts[index] for index in members], pad=end_ids[0] if end_ids else 0)
            with torch.random.fork_rng(), torch.inference_mode():
                torch.manual_seed(seed + begin)
                output = model.generate(
                    input_ids=ids.to(model.device),
                    attention_mask=mask.to(model.device),
                    max_new_tokens=max_new_tokens,
                    eos_token_id=list(end_ids) or None,
                    pad_token_id=end_ids[0] if end_ids else 0,
                    **sampling,
                )
            for index, row in zip(members, output[:, ids.shape[1] :].tolist(), strict=True):
                answers[index] = _until(row, set(end_ids))
    finally:
        model.train(training)
    return answers


def _left_padded(prompts: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def _until(ids: list[int], ends: set[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in ends:
            return ids[:place]
    return ids
