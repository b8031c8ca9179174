"""What other programs do with a checkpoint of which something was found, and how that is known: tried, or read in their
source, or reported. What is not known is not said."""

from __future__ import annotations

from typing import NamedTuple

TRIED, HERE = "tried", "transformers 5.24.0, torch 2.13.0, safetensors 0.8.0"
# Short name → how it is known: tried with these versions; or project, file and commit in which it was read.
SOURCES = {
    TRIED: HERE,
    "sglang-loader": "sgl-project/sglang, python/sglang/srt/model_loader/loader.py, 005cbe0ea796",
    "sglang-weights": "sgl-project/sglang, python/sglang/srt/model_loader/weight_utils.py, 00b08c497f07",
    "sglang-utils": "sgl-project/sglang, python/sglang/srt/model_loader/utils.py, 021ba3987469",
    "trtllm": "NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/models/checkpoints/hf/weight_loader.py, 02086d89ee95",
    "llama-loader": "ggml-org/llama.cpp, src/llama-model-loader.cpp, 3074b500a5ff",
    "llama-vocab": "ggml-org/llama.cpp, src/llama-vocab.cpp, 00ad355e009e",
    "llama-convert": "ggml-org/llama.cpp, convert_hf_to_gguf.py, 0024aa7417ef",
    "vllm#34859": "reported in vllm#34859",
    "sglang#32279": "reported in sglang#32279",
    "vllm#42624": "reported in vllm#42624",
    "marin#7156": "reported in marin#7156",
    "peft#2777": "reported in peft#2777",
    "pytorch#192485": "tried, and reported in pytorch#192485",
}
FORMS = ("folder", "gguf", "adapter", "dcp")  # files of torch.save with a config beside them are a folder


class Does(NamedTuple):
    """A program does this with a checkpoint of that form of which one of these kinds was found."""

    form: str
    kinds: tuple[str, ...]
    program: str
    does: str
    source: str


_LOADS = "loads it, and answers with what is there"
_RANDOM = "loads, draws what is missing at random and only reports it"
_STOPS = "stops with an error"
FACTS = (
    Does("folder", ("damaged_file", "damaged_index", "missing_file", "no_weights", "no_config", "no_model_type",
                    "expected_shape", "other_size"), "transformers", _STOPS, TRIED),
    Does("folder", ("no_index", "odd_name"), "transformers", "stops: it finds no model.safetensors", TRIED),
    Does("folder", ("stale_index",), "transformers", "loads model.safetensors, and never looks at the index", TRIED),
    Does("folder", ("missing_tensor", "expected_missing", "no_head", "same_files"), "transformers", _RANDOM, TRIED),
    Does("folder", ("not_in_index",), "transformers",
         "loads whole files, if the index names any tensor of theirs; of others it draws the tensors at random", TRIED),
    Does("folder", ("expected_extra",), "transformers", "loads, leaves it out and only reports it", TRIED),
    Does("folder", ("extra_file", "held_twice"), "transformers", "goes by the index, or loads model.safetensors",
         TRIED),
    Does("folder", ("other_hash", "other_checksum", "zeroed", "zero_rows", "all_zero", "far_value", "not_finite"),
         "transformers", _LOADS, TRIED),
    Does("folder", ("vocabulary",), "transformers", "stops where config and weights differ", TRIED),
    Does("folder", ("special_id",), "transformers", "stops, if it is the pad_token_id", TRIED),
    Does("folder", ("tied_differ",), "transformers 5", "loads both as they are", TRIED),
    Does("folder", ("tied_differ",), "transformers 4", "takes the embeddings for the head", "peft#2777"),
    Does("folder", ("rope_spelling",), "transformers 4", "takes rope_theta 10000: long texts go wrong in silence",
         "marin#7156"),
    Does("folder", ("no_template",), "transformers", "apply_chat_template stops with an error", TRIED),
    Does("folder", ("rope_spelling",), "vLLM", "versions on transformers 4 take rope_theta 10000", "vllm#42624"),
    Does("folder", ("missing_file",), "vLLM", "may load the rest, and leave those layers random", "vllm#34859"),
    Does("folder", ("missing_file",), "SGLang", "may load the rest, and leave those layers random", "sglang#32279"),
    Does("folder", ("no_index", "odd_name"), "SGLang", "loads every .safetensors file there is", "sglang-loader"),
    Does("folder", ("stale_index",), "SGLang",
         "stops: of the files it takes those that the index names, and none is left", "sglang-loader"),
    Does("folder", ("extra_file",), "SGLang", "leaves out what the index does not name", "sglang-weights"),
    Does("folder", ("not_in_index",), "SGLang", "loads whole files, if the index names any tensor of theirs",
         "sglang-weights"),
    Does("folder", ("no_weights",), "SGLang", "takes .bin and .pt files, or stops", "sglang-loader"),
    Does("folder", ("expected_shape",), "SGLang", "stops, where the default loader of weights is used",
         "sglang-weights"),
    Does("folder", ("other_hash",), "SGLang", "compares checksums only where --model-checksum asks for it",
         "sglang-loader"),
    Does("folder", ("no_architectures",), "SGLang", "chooses the model by it", "sglang-utils"),
    Does("folder", ("missing_file", "missing_tensor", "not_in_index", "stale_index", "damaged_index", "no_index",
                    "odd_name"), "TensorRT-LLM", "never reads the index: loads every .safetensors file there is",
         "trtllm"),
    Does("folder", ("extra_file", "held_twice"), "TensorRT-LLM",
         "loads every .safetensors file there is; of a tensor that is there twice the one read last", "trtllm"),
    Does("folder", ("no_weights",), "TensorRT-LLM", "takes .bin and .pth files, or stops", "trtllm"),
    Does("folder", ("missing_file", "missing_tensor", "not_in_index"), "llama.cpp",
         "convert_hf_to_gguf.py stops: the tensors are not those of the index", "llama-convert"),
    Does("folder", ("extra_file",), "llama.cpp", "convert_hf_to_gguf.py reads the files that the index names",
         "llama-convert"),
    Does("folder", ("stale_index",), "llama.cpp", "convert_hf_to_gguf.py opens the files that the index names",
         "llama-convert"),
    Does("gguf", ("damaged_file",), "llama.cpp",
         "stops where the header can't be read, or a tensor reaches past the end", "llama-loader"),
    Does("gguf", ("missing_file", "same_files"), "llama.cpp", _STOPS, "llama-loader"),
    Does("gguf", ("expected_missing",), "llama.cpp", "stops: the tensor is not found", "llama-loader"),
    Does("gguf", ("expected_extra",), "llama.cpp", "stops: the number of tensors is wrong", "llama-loader"),
    Does("gguf", ("expected_shape",), "llama.cpp", "stops: the shape is wrong", "llama-loader"),
    Does("gguf", ("not_finite",), "llama.cpp", "looks at the numbers only where --check-tensors asks for it",
         "llama-loader"),
    Does("gguf", ("no_pre",), "llama.cpp", "warns, and cuts texts by its default rule", "llama-vocab"),
    Does("dcp", ("whole_numbers",), "torch", "consolidate_safetensors_files stops with a TypeError", "pytorch#192485"),
    Does("adapter", ("tied_adapter",), "PEFT", "leaves the config tied: readers that follow it lose the head",
         "peft#2777"),
)  # fmt: skip
