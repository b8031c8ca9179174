"""The vision towers of Gemma 3 (SigLIP: https://arxiv.org/abs/2303.15343) and Qwen3.5. GGUF has none of them."""

from __future__ import annotations

from outlive.checkpoint.families.family import Condition, Row, Sizes, always
from outlive.checkpoint.families.settings import Settings

_SIGLIP_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
    "vision_use_head": True,
}
_QWEN_DEFAULTS = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}


def _has_head(settings: Settings, layer: int) -> bool:
    return settings.part("vision_config", _SIGLIP_DEFAULTS).flag("vision_use_head")


def _linear(name: str, rows: str, columns: str, when: Condition = always) -> tuple[Row, Row]:
    return Row(name + ".weight", f"{rows} {columns}", when=when), Row(name + ".bias", rows, when=when)


def _norm(name: str, size: str, when: Condition = always) -> tuple[Row, Row]:
    return Row(name + ".weight", size, when=when), Row(name + ".bias", size, when=when)


def siglip_sizes(settings: Settings) -> Sizes:
    """The sizes of `SIGLIP`."""
    vision = settings.part("vision_config", _SIGLIP_DEFAULTS)
    hidden, patch = vision.number("hidden_size"), vision.number("patch_size")
    return {
        "vision_hidden": hidden,
        "vision_inner": vision.number("intermediate_size"),
        "blocks": vision.layers(),
        "channels": vision.number("num_channels"),
        "patch": patch,
        "positions": (vision.number("image_size") // patch) ** 2,
        "vision_three": 3 * hidden,
        "one": 1,
    }


_TOWER, _SIGLIP_BLOCK, _POOL = "vision_tower.", "vision_tower.encoder.layers.{block}.", "vision_tower.head."
SIGLIP = (
    Row(_TOWER + "embeddings.patch_embedding.weight", "vision_hidden channels patch patch"),
    Row(_TOWER + "embeddings.patch_embedding.bias", "vision_hidden"),
    Row(_TOWER + "embeddings.position_embedding.weight", "positions vision_hidden"),
    *_norm(_SIGLIP_BLOCK + "layer_norm1", "vision_hidden"),
    *_norm(_SIGLIP_BLOCK + "layer_norm2", "vision_hidden"),
    *(
        row
        for part in ("q_proj", "k_proj", "v_proj", "out_proj")
        for row in _linear(f"{_SIGLIP_BLOCK}self_attn.{part}", "vision_hidden", "vision_hidden")
    ),
    *_linear(_SIGLIP_BLOCK + "mlp.fc1", "vision_inner", "vision_hidden"),
    *_linear(_SIGLIP_BLOCK + "mlp.fc2", "vision_hidden", "vision_inner"),
    *_norm(_TOWER + "post_layernorm", "vision_hidden"),
    Row(_POOL + "probe", "one one vision_hidden", when=_has_head),
    Row(_POOL + "attention.in_proj_weight", "vision_three vision_hidden", when=_has_head),
    Row(_POOL + "attention.in_proj_bias", "vision_three", when=_has_head),
    *_linear(_POOL + "attention.out_proj", "vision_hidden", "vision_hidden", _has_head),
    *_norm(_POOL + "layernorm", "vision_hidden", _has_head),
    *_linear(_POOL + "mlp.fc1", "vision_inner", "vision_hidden", _has_head),
    *_linear(_POOL + "mlp.fc2", "vision_hidden", "vision_inner", _has_head),
)


def qwen_sizes(settings: Settings) -> Sizes:
    """The sizes of `QWEN_VISION`."""
    vision = settings.part("vision_config", _QWEN_DEFAULTS)
    hidden = vision.number("hidden_size")
    return {
        "vision_hidden": hidden,
        "vision_inner": vision.number("intermediate_size"),
        "blocks": vision.layers("depth"),
        "channels": vision.number("in_channels"),
        "patch": vision.number("patch_size"),
        "frames": vision.number("temporal_patch_size"),
        "positions": vision.number("num_position_embeddings"),
        "vision_three": 3 * hidden,
        "vision_merged": hidden * vision.number("spatial_merge_size") ** 2,
        "vision_out": vision.number("out_hidden_size"),
    }


_VISUAL, _QWEN_BLOCK = "model.visual.", "model.visual.blocks.{block}."
QWEN_VISION = (
    Row(_VISUAL + "patch_embed.proj.weight", "vision_hidden channels frames patch patch"),
    Row(_VISUAL + "patch_embed.proj.bias", "vision_hidden"),
    Row(_VISUAL + "pos_embed.weight", "positions vision_hidden"),
    *_norm(_QWEN_BLOCK + "norm1", "vision_hidden"),
    *_norm(_QWEN_BLOCK + "norm2", "vision_hidden"),
    *_linear(_QWEN_BLOCK + "attn.qkv", "vision_three", "vision_hidden"),
    *_linear(_QWEN_BLOCK + "attn.proj", "vision_hidden", "vision_hidden"),
    *_linear(_QWEN_BLOCK + "mlp.linear_fc1", "vision_inner", "vision_hidden"),
    *_linear(_QWEN_BLOCK + "mlp.linear_fc2", "vision_hidden", "vision_inner"),
    *_norm(_VISUAL + "merger.norm", "vision_hidden"),
    *_linear(_VISUAL + "merger.linear_fc1", "vision_merged", "vision_merged"),
    *_linear(_VISUAL + "merger.linear_fc2", "vision_out", "vision_merged"),
)
