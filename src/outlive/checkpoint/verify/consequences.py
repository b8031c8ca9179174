"""The kinds of findings, and what programs do with a checkpoint of which one was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outlive.checkpoint.verify.finding import Finding
from outlive.checkpoint.verify.programs import FACTS, SOURCES

KINDS = frozenset({
    "no_weights", "damaged_file", "damaged_index", "missing_file", "stale_index", "extra_file", "missing_tensor",
    "not_in_index", "total_size", "no_index", "odd_name", "held_twice", "no_manifest", "damaged_manifest",
    "other_size", "other_hash", "not_finite", "zeroed", "all_zero", "far_value", "same_bytes", "no_config",
    "no_model_type", "no_architectures", "rope_spelling", "rope_differs", "dtype_spelling", "other_dtype",
    "no_head", "tied_differ", "tied_twice", "no_tokenizer", "vocabulary", "special_id", "no_template",
    "no_generation_config", "eos_differs", "no_table", "expected_missing", "expected_extra", "expected_shape",
    "zero_rows", "whole_numbers", "other_checksum", "same_files", "damaged_state", "pickled_adapter",
    "adapter_config", "adapter_tensors", "adapter_rank", "adapter_targets", "adapter_shape", "untrained",
    "no_binding", "no_base", "other_base", "tied_adapter", "no_pre",
})  # fmt: skip


def consequences(findings: Iterable[Finding], form: str = "folder") -> dict[str, list[str]]:
    """What each program does, by program; each thing once. `form`: of `programs.FORMS`."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        for fact in FACTS:
            if fact.form == form and finding.id in fact.kinds:
                line = f"{fact.does} ({finding.id})"
                if line not in found.setdefault(fact.program, []):
                    found[fact.program].append(line)
    return found


def table() -> Iterator[str]:
    """All that is known, for the page."""
    yield "| of | found | program | does | known from |"
    yield "|---|---|---|---|---|"
    for fact in FACTS:
        kinds = ", ".join(f"`{kind}`" for kind in fact.kinds)
        yield f"| {fact.form} | {kinds} | {fact.program} | {fact.does} | {SOURCES[fact.source]} |"
