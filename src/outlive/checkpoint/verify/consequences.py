"""What programs do with a folder of which something was found: only what was tried, or is reported of them.

Tried: with transformers 5.24. Reported: the number of the report stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from outlive.checkpoint.verify.finding import Finding

# Kind of finding → program → what it does.
KINDS: dict[str, dict[str, str]] = {
    "no_weights": {},
    "damaged_file": {"transformers": "stops with an error"},
    "damaged_index": {"transformers": "stops with an error"},
    "missing_file": {
        "transformers": "stops with an error",
        "vLLM": "may load the rest, and leave those layers random (vllm#34859)",
        "SGLang": "may load the rest, and leave those layers random (sglang#32279)",
    },
    "stale_index": {"transformers": "loads model.safetensors; programs that begin with the index look for lost files"},
    "extra_file": {},
    "missing_tensor": {"transformers": "loads, draws what is missing at random and only reports it"},
    "not_in_index": {"transformers": "loads, draws what the index lacks at random and only reports it"},
    "total_size": {},
    "no_index": {"transformers": "stops: it finds no model.safetensors"},
    "odd_name": {"transformers": "stops: it finds no model.safetensors"},
    "held_twice": {},
    "no_manifest": {},
    "damaged_manifest": {},
    "other_size": {"transformers": "stops with an error where the file is cut"},
    "other_hash": {"every program": "loads it: safetensors files have no checksum"},
    "not_finite": {"every program": "loads it, and answers with noise or stops at the first token"},
    "zeroed": {"every program": "loads it: safetensors files have no checksum"},
    "all_zero": {"every program": "loads it"},
    "far_value": {"every program": "loads it"},
    "same_bytes": {"every program": "loads it"},
    "no_config": {
        "transformers": "stops with an error",
        "vLLM": "stops with an error",
        "SGLang": "stops with an error",
    },
    "no_model_type": {"transformers": "stops with an error"},
    "no_architectures": {"vLLM": "chooses the model by it", "SGLang": "chooses the model by it"},
    "rope_spelling": {
        "transformers 4": "takes rope_theta 10000: long texts go wrong in silence",
        "vLLM": "versions on transformers 4 take rope_theta 10000 (vllm#42624)",
    },
    "rope_differs": {"transformers 4 and 5": "load two different models"},
    "dtype_spelling": {"transformers 4": "knows torch_dtype only, and loads float32 where it is not written"},
    "other_dtype": {},
    "no_head": {"transformers": "loads, draws lm_head at random and only reports it"},
    "tied_differ": {
        "transformers 5": "loads both as they are",
        "transformers 4": "takes the embeddings for the head (peft#2777)",
    },
    "tied_twice": {},
    "no_tokenizer": {"llama.cpp": "can't convert the folder", "vLLM": "stops, unless --tokenizer names one"},
    "vocabulary": {"transformers": "stops where config and weights differ; ids past the end fail in a text"},
    "special_id": {"every program": "fails when the token is needed"},
    "no_template": {
        "vLLM": "refuses chats, unless --chat-template names one",
        "transformers": "apply_chat_template stops with an error",
    },
    "no_generation_config": {"every program": "stops a turn at the config's eos_token_id only"},
    "eos_differs": {"every program": "may write on after the end of a turn"},
    "no_table": {},
    "expected_missing": {"transformers": "loads, draws what is missing at random and only reports it"},
    "expected_extra": {"transformers": "loads, leaves it out and only reports it"},
    "expected_shape": {"transformers": "stops with an error"},
    "zero_rows": {"every program": "loads it: safetensors files have no checksum"},
    "whole_numbers": {"torch": "consolidate_safetensors_files stops with a TypeError (pytorch#192485)"},
    "other_checksum": {"torch": "loads it: it never looks at the checksums"},
    "same_files": {},
    "damaged_state": {},
    "pickled_adapter": {},
    "adapter_config": {},
    "adapter_tensors": {},
    "adapter_rank": {},
    "adapter_targets": {},
    "adapter_shape": {},
    "untrained": {},
    "no_binding": {},
    "no_base": {},
    "other_base": {},
    "tied_adapter": {"PEFT": "leaves the config tied: readers that follow it lose the head (peft#2777)"},
    "no_pre": {},
}


def consequences(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """What each program does, by program; each thing once."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        for program, does in KINDS[finding.id].items():
            line = f"{does} ({finding.id})"
            if line not in found.setdefault(program, []):
                found[program].append(line)
    return found
