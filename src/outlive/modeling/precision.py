"""Number formats: the computation in bf16 where the hardware has it, what is trained always in fp32."""

from __future__ import annotations

import torch

from outlive.run.errors import InputError
from outlive.run.machine import cpu_flags

# Processors that multiply bf16 matrices in hardware ("bf16" is Arm's name).
_FAST = {"avx512_bf16", "amx_bf16", "bf16"}


def compute_dtype(precision: str, device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype of the computation and why. Raises InputError where a GPU can't compute the one asked for."""
    if precision == "fp32":
        return torch.float32, "the run file says fp32"
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16, "the GPU has bf16"
        if precision == "bf16":
            raise InputError("this GPU does not compute bf16", where="precision", fix="set precision to fp32 or auto")
        return torch.float32, "the GPU has no bf16"
    if precision == "bf16":
        return torch.bfloat16, "the run file says bf16"
    if found := sorted(_FAST & cpu_flags()):
        return torch.bfloat16, f"the processor has {found[0]}"
    return torch.float32, "the processor has no bf16"
