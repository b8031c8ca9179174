"""Which values of a GGUF header say which keys of config.json, by model_type; what a header can't say is `fixed`.

Facts: llama.cpp's converter (conversion/*.py) and its readers (src/models/*.cpp); tests compare the names with those of
the package gguf and of transformers' own reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.checkpoint.formats import gguf_deepseek as deepseek
from outlive.checkpoint.formats import gguf_special as special
from outlive.checkpoint.formats.gguf_fields import Fields

# Keys behind "llama." and so on, and what config.json calls them.
COUNTS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
EPSILON = ("attention.layer_norm_rms_epsilon", "rms_norm_eps")
SCALED = ("default", "linear", "yarn")
_SILU: dict[str, tuple[Any, tuple[Any, ...]]] = {"hidden_act": ("silu", ("silu", "swish"))}
_UNBIASED: dict[str, tuple[Any, tuple[Any, ...]]] = {"attention_bias": (False, (False,))}
_NO_WINDOW: dict[str, tuple[Any, tuple[Any, ...]]] = {"use_sliding_window": (False, (False,))}
_GEMMA: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **_UNBIASED,
    "hidden_activation": ("gelu_pytorch_tanh", ("gelu_pytorch_tanh",)),
    "use_bidirectional_attention": (False, (False,)),
}
_DEEPSEEK: dict[str, tuple[Any, tuple[Any, ...]]] = {**_SILU, **_UNBIASED, "moe_layer_freq": (1, (1,))}


@dataclass(frozen=True)
class Layout:
    """name: the class in transformers. kinds: of rope that its readers compute. fixed: what they always do: by key of
    config.json what transformers takes where nothing is said, and the values that mean the same (the first of them is
    written on the way back). defaults: other values of transformers. partial: rotary angles for a part of a head.
    plain_heads: heads have to be as wide as hidden_size / num_attention_heads. write, read: what else there is.
    """

    model_type: str
    name: str
    architecture: str
    fixed: Mapping[str, tuple[Any, tuple[Any, ...]]] = field(default_factory=lambda: dict(_SILU))
    kinds: tuple[str, ...] = SCALED
    theta: float = 10000.0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    plain_heads: bool = False
    latent: bool = False
    local_rope: bool = False
    write: Callable[[Fields], dict[str, Any]] = special.nothing
    read: Callable[[Fields, dict[str, Any]], dict[str, Any]] = special.nothing_read


LAYOUTS = {
    one.model_type: one
    for one in (
        Layout("llama", "LlamaForCausalLM", "llama", kinds=(*SCALED, "llama3")),
        Layout(
            "mistral",
            "MistralForCausalLM",
            "llama",
            kinds=(*SCALED, "llama3"),
            defaults={"sliding_window": 4096},
            write=special.write_mistral,
        ),
        Layout(
            "mixtral",
            "MixtralForCausalLM",
            "llama",
            theta=1e6,
            kinds=(*SCALED, "llama3"),
            write=special.write_mixtral,
            read=special.read_mixtral,
        ),
        Layout(
            "qwen2", "Qwen2ForCausalLM", "qwen2", {**_SILU, **_NO_WINDOW}, plain_heads=True, write=special.write_full
        ),
        Layout("qwen3", "Qwen3ForCausalLM", "qwen3", {**_SILU, **_NO_WINDOW, **_UNBIASED}, write=special.write_full),
        Layout(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            "qwen3moe",
            {
                **_SILU,
                **_NO_WINDOW,
                **_UNBIASED,
                "norm_topk_prob": (False, (True,)),
                "decoder_sparse_step": (1, (1,)),
                "mlp_only_layers": ([], ([],)),
            },
            write=special.write_qwen3_moe,
            read=special.read_qwen3_moe,
        ),
        Layout(
            "qwen3_5_text",
            "Qwen3_5ForCausalLM",
            "qwen35",
            {**_SILU, **_UNBIASED},
            kinds=("default",),
            partial=True,
            defaults={"partial_rotary_factor": 0.25},
            write=special.write_qwen35,
            read=special.read_qwen35,
        ),
        Layout(
            "gemma2",
            "Gemma2ForCausalLM",
            "gemma2",
            {**_GEMMA, "tie_word_embeddings": (True, (True,))},
            kinds=("default", "linear"),
            defaults={"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
            write=special.write_gemma2,
            read=special.read_gemma2,
        ),
        Layout(
            "gemma3_text",
            "Gemma3ForCausalLM",
            "gemma3",
            {**_GEMMA, "final_logit_softcapping": (None, (None,)), "attn_logit_softcapping": (None, (None,))},
            kinds=("default", "linear"),
            theta=1e6,
            defaults={"sliding_window": 4096},
            local_rope=True,
            write=special.write_gemma3,
            read=special.read_gemma3,
        ),
        Layout(
            "phi3",
            "Phi3ForCausalLM",
            "phi3",
            kinds=("default", "longrope"),
            partial=True,
            plain_heads=True,
            write=special.write_phi3,
            read=special.read_phi3,
        ),
        Layout(
            "olmo2",
            "Olmo2ForCausalLM",
            "olmo2",
            {**_SILU, **_UNBIASED, "tie_word_embeddings": (False, (False,))},
            plain_heads=True,
        ),
        Layout(
            "deepseek_v2",
            "DeepseekV2ForCausalLM",
            "deepseek2",
            {**_DEEPSEEK, "mlp_bias": (False, (False,)), "topk_method": ("greedy", ("greedy",)),
             "scoring_func": ("softmax", ("softmax",)), "norm_topk_prob": (False, (False,))},
            kinds=("default", "yarn"),
            latent=True,
            defaults={"routed_scaling_factor": 1.0},
            write=deepseek.write_deepseek_v2,
            read=deepseek.read_deepseek_v2,
        ),
        Layout(
            "deepseek_v3",
            "DeepseekV3ForCausalLM",
            "deepseek2",
            {**_DEEPSEEK, "topk_method": ("noaux_tc", ("noaux_tc",)), "scoring_func": ("sigmoid", ("sigmoid",)),
             "rope_interleave": (True, (True,))},
            kinds=("default", "yarn"),
            latent=True,
            defaults={"routed_scaling_factor": 2.5, "norm_topk_prob": True, "n_group": 8, "topk_group": 4,
                      "num_experts_per_tok": 8},
            write=deepseek.write_deepseek_v3,
            read=deepseek.read_deepseek_v3,
        ),
    )
}  # fmt: skip
ARCHITECTURES = {one.model_type: one.name for one in LAYOUTS.values()}


def layout_of(architecture: str, own: Fields) -> Layout | None:
    """The layout of a header; None where the architecture is not known."""
    if architecture == "llama":
        return LAYOUTS["mixtral" if own.get("expert_count", 0) != 0 else "llama"]
    if architecture == "deepseek2":
        return LAYOUTS["deepseek_v3" if own.get("expert_gating_func", 1) == 2 else "deepseek_v2"]
    return next((one for one in LAYOUTS.values() if one.architecture == architecture), None)
