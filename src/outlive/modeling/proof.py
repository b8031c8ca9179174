"""The proof of isolation: documents laid end to end give what transformers gives for each alone, or packing is refused.

One comparison holds three things at once: no document sees another, TargetLoss is this model's head and loss, and the
attention of this module is the model's own (window, soft cap, sinks, scale).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from outlive.data.batch import Batch, BatchSegment, PackPlace, shifted
from outlive.modeling.causal import CausalModel
from outlive.modeling.forward import causal_lm

DOCUMENTS = 3
TOKENS = 96
# Mean |Δ log p| over the targets. A leak or a wrong head is far above, rounding far below, as the tests measure.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}


@dataclass(frozen=True)
class Proof:
    """`difference`: mean |Δ log p| between our forward and transformers'; `tolerance`: what rounding may make of it."""

    difference: float
    tolerance: float
    num_documents: int

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


def prove_isolation(model: CausalModel, batch: Batch) -> Proof:
    """Compare our forward on the first documents of `batch`, cut short, with transformers' own on each alone."""
    documents = [batch.tokens[segment.start : segment.end][:TOKENS] for segment in batch.segments if segment.prefix < 0]
    documents = [tokens for tokens in documents if len(tokens) > 1][:DOCUMENTS] or [batch.tokens[:TOKENS]]
    training = model.model.training
    model.model.eval()
    try:
        with torch.no_grad():
            tensors = model.tensors(_laid_out(documents))
            ours = model.score(model.hidden(tensors), tensors, "logprobs")
            theirs = torch.cat([_plain(model, tokens) for tokens in documents])
    finally:
        model.model.train(training)
    difference = float((ours - theirs).abs().mean()) if len(theirs) else 0.0
    return Proof(difference, TOLERANCE[model.dtype], len(documents))


def _plain(model: CausalModel, tokens: np.ndarray) -> torch.Tensor:
    """log p of each token but the first, from the model's own forward, attention and head."""
    lm = causal_lm(model.model)
    ids = torch.from_numpy(tokens).to(model.device)
    before = lm.config._attn_implementation
    lm.set_attn_implementation("eager")
    try:
        with model.computing():
            logits = lm(input_ids=ids[None], use_cache=False).logits[0, :-1]
    finally:
        lm.set_attn_implementation(before)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(logits, dim=-1).gather(1, ids[1:, None]).squeeze(1)


def _laid_out(documents: list[np.ndarray]) -> Batch:
    lengths = [len(tokens) for tokens in documents]
    starts = np.cumsum([0, *lengths])
    segments = [
        BatchSegment(int(start), int(start) + length, -1, number, "", "", 0)
        for number, (start, length) in enumerate(zip(starts, lengths, strict=False))
    ]
    weights = [np.append(np.ones(length - 1, np.float32), np.float32(0)) for length in lengths]
    return Batch(
        tokens=np.concatenate(documents),
        positions=np.concatenate([np.arange(length, dtype=np.int64) for length in lengths]),
        segment_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        target_ids=np.concatenate([shifted(tokens) for tokens in documents]),
        target_weight=np.concatenate(weights),
        segments=segments,
        packs=[PackPlace(0, 0, int(starts[-1]))],
    )
