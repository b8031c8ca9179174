"""The proof of isolation: documents laid end to end give what transformers gives for each alone, or packing is refused.

One comparison holds three things at once: no document sees another, TargetLoss is this model's head and loss, and the
attention of this module is the model's own (window, soft cap, sinks, scale).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from outlive.data.batch import Batch, BatchSegment, PackPlace, shifted
from outlive.modeling.causal import CausalModel
from outlive.modeling.forward import causal_lm

DOCUMENTS = 3
TOKENS = 96
# Mean |Δ log p| over the targets. A leak or a wrong head is far above, rounding far below, as the tests measure.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
# A fresh model's attention says so little that a leak is small, too: in fp32 and up, a difference is held against what
# joining the documents makes of the same numbers. ROUNDING is what fp32 alone may make of them.
LEAK_SHARE, ROUNDING = 0.01, 1e-6


@dataclass(frozen=True)
class Proof:
    """`difference`: mean |Δ log p| between our forward and transformers'; `tolerance`: what rounding may make of it."""

    difference: float
    tolerance: float
    num_documents: int

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def distance(self) -> float:
        """How far it is from what is allowed: more than 1 does not hold."""
        return self.difference / self.tolerance if math.isfinite(self.difference) else math.inf


def prove_isolation(model: CausalModel, batch: Batch) -> Proof:
    """Compare our forward on the first documents of `batch`, cut short, with transformers' own on each alone.

    In the run's precision, and in fp32 too where all weights have it. The comparison that is nearest to failing counts.
    """
    documents = [batch.tokens[segment.start : segment.end][:TOKENS] for segment in batch.segments if segment.prefix < 0]
    documents = [tokens for tokens in documents if len(tokens) > 1][:DOCUMENTS] or [batch.tokens[:TOKENS]]
    if len(documents) == 1 and len(documents[0]) >= 4:  # one alone can't show whether two see each other
        documents = np.array_split(documents[0], 2)
    training = model.model.training
    model.model.eval()
    try:
        with torch.no_grad():
            return max((_compared(each, documents) for each in _precisions(model)), key=lambda proof: proof.distance)
    finally:
        model.model.train(training)


def _precisions(model: CausalModel) -> list[CausalModel]:
    kept = {parameter.dtype for parameter in model.model.parameters()}
    exact = model.dtype not in (torch.float32, torch.float64) and kept == {torch.float32}
    return [model, replace(model, dtype=torch.float32)] if exact else [model]


def _compared(model: CausalModel, documents: list[np.ndarray]) -> Proof:
    ours, theirs = _ours(model, documents), torch.cat([_plain(model, tokens) for tokens in documents])
    difference, tolerance = float((ours - theirs).abs().mean()) if len(theirs) else 0.0, TOLERANCE[model.dtype]
    if (found := _effect_of_others(model, documents)) is not None:
        before, behind = found
        tolerance = min(tolerance, max(ROUNDING, LEAK_SHARE * before))
        difference = max(difference, behind)
    return Proof(difference, tolerance, len(documents))


def _effect_of_others(model: CausalModel, documents: list[np.ndarray]) -> tuple[float, float] | None:
    """Mean |Δ log p| in a document that another is laid before, as one, and in one that another is laid behind.

    The second is 0 in a causal model. None where rounding hides it, or the documents are too few or too short.
    """
    half = max(map(len, documents)) // 2  # together no longer than what the model takes anyway
    pair = [tokens[:half] for tokens in documents[:2]]
    if len(pair) < 2 or min(map(len, pair)) < 2 or model.dtype not in (torch.float32, torch.float64):
        return None
    joined = _ours(model, pair, joined=True)
    first, second = (_plain(model, tokens) for tokens in pair)
    before, behind = joined[len(first) :] - second, joined[: len(first)] - first
    return float(before.abs().mean()), float(behind.abs().mean())


def _ours(model: CausalModel, documents: list[np.ndarray], joined: bool = False) -> torch.Tensor:
    """log p at the targets. joined: as one document, in which each part's positions begin anew, so that what differs is
    who sees whom."""
    tensors = model.tensors(_laid_out(documents))
    if joined:
        tensors = replace(tensors, bounds=[(0, len(tensors.tokens), -1)])
    return model.score(model.hidden(tensors), tensors, "logprobs")


def _plain(model: CausalModel, tokens: np.ndarray) -> torch.Tensor:
    """log p of each token but the first, from the model's own forward, attention and head."""
    lm = causal_lm(model.model)
    ids = torch.from_numpy(tokens).to(model.device)
    before = lm.config._attn_implementation
    if lm._supports_attention_backend:  # others keep their own
        lm.set_attn_implementation("eager")
    try:
        with model.computing():
            logits = lm(input_ids=ids[None], use_cache=False).logits[0, :-1]
    finally:
        if lm._supports_attention_backend:
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
