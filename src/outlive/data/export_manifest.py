"""What an export says of itself: where its samples are from, and the size and hash of each file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outlive.data.plan import Mixture
from outlive.run.files import hash_file, write_atomic


def sources_of(mixture: Mixture) -> list[dict[str, Any]]:
    """Each source with its store, how much of it there is, and the weight that it has in the mixture."""
    return [
        {
            "source": store.manifest.get("source"),
            "source_hash": store.manifest.get("source_hash"),
            "store": store.folder.name,
            "template_hash": store.manifest.get("template_hash"),
            "samples": len(store),
            "weight": weight,
        }
        for store, weight in mixture.weighted()
    ]


def files_of(folder: Path, paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Size and xxh3-128 of files, by their names within `folder`."""
    return {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "xxh3_128": hash_file(path)}
        for path in paths
    }


def write_json(path: Path, value: Any) -> None:
    """Write `value` as a JSON file for people and programs."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False))
