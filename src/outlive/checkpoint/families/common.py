"""Rows and sizes that many families share."""

from __future__ import annotations

from outlive.checkpoint.families.family import Condition, Row, Sizes, always
from outlive.checkpoint.families.operations import Operation, Permute
from outlive.checkpoint.families.parts import Split, Unstack
from outlive.checkpoint.families.settings import Settings
from outlive.checkpoint.families.values import Rotary
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.run.errors import InputError

LAYER, BLOCK = "model.layers.{layer}.", "blk.{layer}."


def untied(settings: Settings, layer: int) -> bool:
    """Whether the output matrix is not the embedding."""
    return not settings.flag("tie_word_embeddings")


def biased(settings: Settings, layer: int) -> bool:
    """Whether the attention's matrices have biases."""
    return settings.flag("attention_bias")


EMBEDDING = Row("model.embed_tokens.weight", "vocabulary hidden", "token_embd.weight")
FINAL_NORM = Row("model.norm.weight", "hidden", "output_norm.weight")
HEAD = Row("lm_head.weight", "vocabulary hidden", "output.weight", when=untied)
ENDS = (EMBEDDING, FINAL_NORM, HEAD)
NORMS = (
    Row(LAYER + "input_layernorm.weight", "hidden", BLOCK + "attn_norm.weight"),
    Row(LAYER + "post_attention_layernorm.weight", "hidden", BLOCK + "ffn_norm.weight"),
)
QUERIES = (
    Row(LAYER + "self_attn.q_proj.weight", "query hidden", BLOCK + "attn_q.weight"),
    Row(LAYER + "self_attn.k_proj.weight", "key hidden", BLOCK + "attn_k.weight"),
    Row(LAYER + "self_attn.v_proj.weight", "key hidden", BLOCK + "attn_v.weight"),
)
OUTPUT = Row(LAYER + "self_attn.o_proj.weight", "hidden query", BLOCK + "attn_output.weight")
ATTENTION = (*QUERIES, OUTPUT)
HEAD_NORMS = (
    Row(LAYER + "self_attn.q_norm.weight", "head", BLOCK + "attn_q_norm.weight"),
    Row(LAYER + "self_attn.k_norm.weight", "head", BLOCK + "attn_k_norm.weight"),
)
MLP = (
    Row(LAYER + "mlp.gate_proj.weight", "inner hidden", BLOCK + "ffn_gate.weight"),
    Row(LAYER + "mlp.up_proj.weight", "inner hidden", BLOCK + "ffn_up.weight"),
    Row(LAYER + "mlp.down_proj.weight", "hidden inner", BLOCK + "ffn_down.weight"),
)


def biases(rows: tuple[Row, ...], when: Condition, gguf: bool) -> tuple[Row, ...]:
    """A bias for each matrix; `gguf`: whether that format has a place for it."""
    return tuple(
        Row(
            row.name.removesuffix("weight") + "bias",
            row.shape.split()[0],
            row.gguf.removesuffix("weight") + "bias" if gguf else "",
            when=when,
        )
        for row in rows
    )


def rotated(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows, with queries and keys turned as GGUF's architecture llama wants them."""
    heads = {".q_proj.": "heads", ".k_proj.": "key heads"}
    result = []
    for row in rows:
        which = next((size for part, size in heads.items() if part in row.name), None)
        result.append(row if which is None else _rotated(row, which))
    return tuple(result)


def _rotated(row: Row, heads: str) -> Row:
    def turn(sizes: Sizes, pattern: str) -> Operation:
        return Permute(pattern, Rotary(sizes[heads], sizes["head"]))

    return Row(row.name, row.shape, row.gguf, turn, row.when)


def experts(parent: str, parts: tuple[str, str, str], when: Condition = always) -> tuple[Row, ...]:
    """Rows of the experts: `parts` are what the family calls gate, up and down."""
    gate, up, down = (f"{LAYER}{parent}.experts.{{expert}}.{part}.weight" for part in parts)
    return (
        Row(gate, "expert_inner hidden", BLOCK + "ffn_gate_exps.weight", when=when),
        Row(up, "expert_inner hidden", BLOCK + "ffn_up_exps.weight", when=when),
        Row(down, "hidden expert_inner", BLOCK + "ffn_down_exps.weight", when=when),
    )


def experts_of_modules(parent: str, parts: tuple[str, str, str], sizes: Sizes) -> list[Operation]:
    """From the experts as modules hold them (gate and up as one, all stacked) to the canonical rows."""
    fused, own = f"{LAYER}mlp.experts.", f"{LAYER}{parent}.experts.{{expert}}."
    gate, up, down = (f"{own}{part}.weight" for part in parts)
    inner, number = sizes["expert_inner"], sizes["experts"]
    return [
        Unstack(fused + "gate_up_proj", own + "gate_up_proj", number),
        Split(own + "gate_up_proj", (gate, up), (inner, inner)),
        Unstack(fused + "down_proj", down, number),
    ]


def sizes_of(settings: Settings) -> Sizes:
    """The sizes of a transformer with grouped queries."""
    hidden, heads = settings.number("hidden_size"), settings.count("num_attention_heads")
    keys = settings.count("num_key_value_heads", heads)
    if heads % keys:
        raise InputError(
            f"config.json has {heads} attention heads, which {keys} key-value heads do not divide", fix=OWN_CONFIG
        )
    head = settings.number("head_dim", max(hidden // heads, 1))
    return {
        "vocabulary": settings.number("vocab_size"),
        "hidden": hidden,
        "inner": settings.number("intermediate_size"),
        "layers": settings.layers(),
        "heads": heads,
        "key heads": keys,
        "head": head,
        "query": heads * head,
        "key": keys * head,
    }
