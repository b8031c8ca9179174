"""PEFT adapters: read, and merged into their base, a block of rows at a time, without torch."""

from outlive.checkpoint.adapters.adapter import Adapter, adapter_of, check_finite, open_adapter
from outlive.checkpoint.adapters.binding import check_bound
from outlive.checkpoint.adapters.merge import Result, all_merged, merged
from outlive.checkpoint.adapters.rounding import rounding_note

__all__ = [
    "Adapter",
    "Result",
    "adapter_of",
    "all_merged",
    "check_bound",
    "check_finite",
    "merged",
    "open_adapter",
    "rounding_note",
]
