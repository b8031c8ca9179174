"""One forward of a causal language model over a batch of segments: hidden states, never logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from outlive.data.batch import Batch
from outlive.modeling.attention import Segments
from outlive.modeling.target_loss import Head
from outlive.run.errors import InputError

# Names under which configs say that logits are capped: Gemma, RecurrentGemma, xLSTM.
_SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


@dataclass(frozen=True)
class Tensors:
    """The per-token arrays of a batch on the device. `targets` int64 [N]: positions that carry weight;
    `target_ids` int64 [N] and `target_weight` float32 [N] at these."""

    tokens: torch.Tensor
    positions: torch.Tensor
    bounds: list[tuple[int, int, int]]
    targets: torch.Tensor
    target_ids: torch.Tensor
    target_weight: torch.Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device | str = "cpu") -> Tensors:
        weight = torch.from_numpy(batch.target_weight)
        targets = weight.nonzero().squeeze(1)
        return cls(
            torch.from_numpy(batch.tokens).to(device),
            torch.from_numpy(batch.positions).to(device),
            [(segment.start, segment.end, segment.prefix) for segment in batch.segments],
            targets.to(device),
            torch.from_numpy(batch.target_ids)[targets].to(device),
            weight[targets].to(device),
        )


@dataclass(frozen=True)
class Hidden:
    """`states` [T, H], the decoder's output before the head; `router_logits` one [T, experts] per sparse layer."""

    states: torch.Tensor
    router_logits: tuple[torch.Tensor, ...] = ()


def causal_lm(model: Any) -> Any:
    """The transformers model itself, out of its PEFT wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def hidden_states(model: Any, batch: Tensors, *, per_document: bool, router: bool = False) -> Hidden:
    """Hidden states of all tokens, each computed from its own segment (and that one's prefix) alone.

    per_document: one forward over all tokens, in which attention sees the segments. Otherwise, for models with layers
    that would carry a state across documents, one forward per segment.
    """
    decoder = causal_lm(model).get_decoder()
    extra = {"output_router_logits": True} if router else {}
    if per_document:
        output = decoder(
            input_ids=batch.tokens[None],
            position_ids=batch.positions[None],
            segments=Segments.of(batch.bounds, batch.tokens.device),
            use_cache=False,
            **extra,
        )
        return Hidden(output.last_hidden_state[0], _router_logits(output))
    own = []
    for start, end, prefix in batch.bounds:
        context = _context(batch, prefix)
        tokens = torch.cat([*context, batch.tokens[start:end]])
        output = decoder(input_ids=tokens[None], use_cache=False, **extra)
        keep = slice(len(tokens) - (end - start), None)
        own.append(Hidden(output.last_hidden_state[0, keep], tuple(x[keep] for x in _router_logits(output))))
    layers = zip(*(hidden.router_logits for hidden in own), strict=True)
    return Hidden(torch.cat([hidden.states for hidden in own]), tuple(torch.cat(layer) for layer in layers))


def head_of(model: Any) -> Head:
    """The head as TargetLoss computes it. Raises InputError for a head that it can't express."""
    lm = causal_lm(model)
    linear = lm.get_output_embeddings()
    if not isinstance(linear, torch.nn.Linear):
        raise InputError(
            f"the head of this model is a {type(linear).__name__}, not a plain linear layer",
            fix="leave the head (lm_head) out of adapter.targets",
        )
    config = lm.config.get_text_config()
    scale = float(getattr(config, "logit_scale", None) or 1.0)
    if divisor := getattr(config, "logits_scaling", None):
        scale /= float(divisor)
    caps = [cap for name in _SOFT_CAPS if (cap := getattr(config, name, None))]
    return Head(linear.weight, linear.bias, scale, caps[0] if caps else None)


def _context(batch: Tensors, prefix: int) -> list[torch.Tensor]:
    if prefix < 0:
        return []
    start, end, before = batch.bounds[prefix]
    return [*_context(batch, before), batch.tokens[start:end]]


def _router_logits(output: Any) -> tuple[torch.Tensor, ...]:
    logits = getattr(output, "router_logits", None) or ()
    return tuple(layer.reshape(-1, layer.shape[-1]) for layer in logits if layer is not None)
