"""Prepared samples, written for other tools: `prepare --export`. One entry of EXPORTS is one format.

A writer gets what goes out, the folder that is being built, the name of the side ("train", "validation") and the
tokenizer. It writes files of that side's name there and says what it counted; it holds one record batch in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.data.export_building import building_alone
from outlive.data.export_files import finish_hf, write_hf, write_jsonl, write_parquet
from outlive.data.export_manifest import files_of, sources_of, write_json
from outlive.data.export_megatron import write_megatron
from outlive.data.export_rows import Counts, Outgoing
from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer

MANIFEST = "manifest.json"
VERSION = 1


@dataclass(frozen=True)
class Export:
    """A format: what writes one side of it, what a row is in the order of a plan, and what ends the folder."""

    write: Callable[[Outgoing, Path, str, Tokenizer], Counts]
    row_of_plan: str
    finish: Callable[[Path, list[str]], None] = lambda folder, sides: None


EXPORTS = {
    "hf": Export(write_hf, "pack", finish_hf),
    "megatron": Export(write_megatron, "segment"),
    "parquet": Export(write_parquet, "pack"),
    "jsonl": Export(write_jsonl, "segment"),
}


def export(
    name: str, sides: Mapping[str, Outgoing], folder: Path, tokenizer: Tokenizer, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write `sides` ("train", "validation") in the format `name` as `folder`, whole or not at all; give its manifest.

    `about`: what the manifest says beside counts, sources and files. Raises InputError for an existing folder and for
    what the format has no place for, WorkError where the disk refuses.
    """
    form = EXPORTS[name]
    in_plan_order = any(outgoing.plan is not None for outgoing in sides.values())
    with building_alone(folder) as building:
        counts = {side: form.write(outgoing, building, side, tokenizer) for side, outgoing in sides.items()}
        form.finish(building, list(sides))
        manifest = {
            "export_version": VERSION,
            "format": name,
            "order": "plan" if in_plan_order else "store",
            "row": form.row_of_plan if in_plan_order else "sample",
            "tokenizer": str(tokenizer.folder),
            "tokenizer_hash": tokenizer.hash,
            **about,
            "sides": {
                side: {**counts[side].about(in_plan_order), "sources": sources_of(outgoing.mixture)}
                for side, outgoing in sides.items()
            },
            "files": files_of(building, sorted(path for path in building.rglob("*") if path.is_file())),
        }
        write_json(building / MANIFEST, manifest)
    return manifest


def refuse_existing(folder: Path) -> None:
    """Raise InputError where there is something of that name: before the work, which building_folder would lose."""
    if os.path.lexists(folder):
        raise InputError("this exists already", where=str(folder), fix="name a new folder with --to, or remove it")
