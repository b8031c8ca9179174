"""Numbers of the GGUF format: the types of values in its header, and of the elements of tensors.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from typing import NamedTuple

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_AXES, MAX_NAME = 4, 63  # of tensors; llama.cpp opens no file with more axes or bytes

# Types of values, and what numpy calls those of a fixed width.
BOOL, STRING, ARRAY = 7, 8, 9
SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", BOOL: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip


class ElementType(NamedTuple):
    """`block` elements take `num_bytes` bytes. `dtype`: their name in `dtypes` where each stands for itself."""

    name: str
    block: int
    num_bytes: int
    dtype: str | None = None


ELEMENTS = {
    0: ElementType("F32", 1, 4, "float32"),
    1: ElementType("F16", 1, 2, "float16"),
    2: ElementType("Q4_0", 32, 18),
    3: ElementType("Q4_1", 32, 20),
    6: ElementType("Q5_0", 32, 22),
    7: ElementType("Q5_1", 32, 24),
    8: ElementType("Q8_0", 32, 34),
    9: ElementType("Q8_1", 32, 40),
    10: ElementType("Q2_K", 256, 84),
    11: ElementType("Q3_K", 256, 110),
    12: ElementType("Q4_K", 256, 144),
    13: ElementType("Q5_K", 256, 176),
    14: ElementType("Q6_K", 256, 210),
    15: ElementType("Q8_K", 256, 292),
    16: ElementType("IQ2_XXS", 256, 66),
    17: ElementType("IQ2_XS", 256, 74),
    18: ElementType("IQ3_XXS", 256, 98),
    19: ElementType("IQ1_S", 256, 50),
    20: ElementType("IQ4_NL", 32, 18),
    21: ElementType("IQ3_S", 256, 110),
    22: ElementType("IQ2_S", 256, 82),
    23: ElementType("IQ4_XS", 256, 136),
    24: ElementType("I8", 1, 1, "int8"),
    25: ElementType("I16", 1, 2, "int16"),
    26: ElementType("I32", 1, 4, "int32"),
    27: ElementType("I64", 1, 8, "int64"),
    28: ElementType("F64", 1, 8, "float64"),
    29: ElementType("IQ1_M", 256, 56),
    30: ElementType("BF16", 1, 2, "bfloat16"),
    34: ElementType("TQ1_0", 256, 54),
    35: ElementType("TQ2_0", 256, 66),
    39: ElementType("MXFP4", 32, 17),
    40: ElementType("NVFP4", 64, 36),
    41: ElementType("Q1_0", 128, 18),
}
CODES = {element.name: code for code, element in ELEMENTS.items()}
NAMES = {element.dtype: element.name for element in ELEMENTS.values() if element.dtype is not None}


def padded(place: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-place // alignment) * alignment
