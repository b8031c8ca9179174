"""The tensors of a folder against those that its config asks for, by the table of its family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.finding import Finding, some
from outlive.run.errors import OutliveError

_AGAIN = "copy it again from where it is whole; if the config is of another model, take the right one"


def look_at_names(config: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> Iterator[Finding]:
    """Tensors that are missing, too many, or of another shape. A note where the family has no table."""
    where = str(folder)
    try:
        family = family_of(config)
        expected = family.expected(config)
    except OutliveError as error:
        fix = error.fix or "the tensors are not compared with the config"
        yield Finding("note", "no_table", f"the tensors are not compared with the config: {error.what}", where, fix)
        return
    try:
        there = family.canonical(tensors, config)
    except OutliveError as error:
        yield Finding("error", "expected_missing", error.what, error.where or where, error.fix or _AGAIN)
        return
    if absent := expected.keys() - there.keys():
        what = f"{len(absent)} tensors that the config asks for are not there: {some(absent)}"
        yield Finding("error", "expected_missing", what, where, _AGAIN)
    extra = {name for name in there.keys() - expected.keys() if not family.ignored(name, config)}
    extra -= {"lm_head.weight"}  # looked at apart
    if extra:
        what = f"{len(extra)} tensors are there that this model does not have: {some(extra)}"
        yield Finding("warning", "expected_extra", what, where, _AGAIN)
    other = {name for name in expected.keys() & there.keys() if tuple(there[name].shape) != tuple(expected[name])}
    if other:
        name = min(other)
        what = f"{name} has the shape {list(there[name].shape)}, and the config makes it {list(expected[name])}"
        more = f" ({len(other)} tensors have other shapes)" if len(other) > 1 else ""
        yield Finding("error", "expected_shape", what + more, where, _AGAIN)
