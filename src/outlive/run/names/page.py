"""The page of the field's key names: `python -m outlive.run.names.page > docs/keys.md`. A test holds the two alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from outlive.run.names.known import KNOWN, Known
from outlive.run.names.known.base import EVERY
from outlive.run.names.table import ACCUMULATION, BETAS, PER_DEVICE, TABLE, WHOLE_STEP
from outlive.run.settings.whole import Run
from outlive.run.yaml_file import shown

_START = """# Keys of other tools

A run file accepts the names that other tools have for the same settings, at its top level, in overrides, and inside the
section that the key belongs to. Each use is noted with the canonical name. Two names for one key end the run with both
places, and so does a key that asks for what does not exist here: nothing is ignored. This page is made from the tables
in `outlive/run/names/table.py` and `outlive/run/names/known/` by `python -m outlive.run.names.page`.
"""
_NOT_NEEDED = """## Not needed here

Accepted at every value, with a note that gives the reason.

| why | keys |
|---|---|
"""
_REFUSED = """## Refused, unless the value asks for what happens anyway

null, and mostly false, 0 and empty values too, ask for nothing and are accepted with a note.

| why | what to do | also accepted | keys |
|---|---|---|---|
"""


def keys_page() -> str:
    """The whole page, as Markdown."""
    parts = [
        _START,
        "## Names for our keys\n\n| our key | names | what is converted |\n|---|---|---|\n"
        + "".join(_mapped())
        + _pairs(),
        _NOT_NEEDED + "".join(f"| {one.why} | {_names(one.names)} |\n" for one in KNOWN if one.same is EVERY),
        _REFUSED + "".join(_row(one) for one in KNOWN if one.same is not EVERY),
    ]
    return "\n".join(parts)


def _pairs() -> str:
    return (
        f"| `batch.micro_sequences` | {_names(PER_DEVICE)} | |\n"
        f"| `batch.sequences` | {_names(WHOLE_STEP)}, `{ACCUMULATION}` | accumulation times the size of one pass |\n"
        f"| `optimizer.betas` | {_names(BETAS)} | the first and the second number |\n"
    )


def _mapped() -> Iterable[str]:
    order = list(Run.model_fields)
    for key in sorted({synonym.key for synonym in TABLE}, key=lambda key: (order.index(key[0]), key)):
        for row in (synonym for synonym in TABLE if synonym.key == key):
            names = [name for name in row.names if name not in order]
            short = [f"{key[0]}.{name}" for name in row.short if name not in key]
            if names or short:
                yield f"| `{'.'.join(key)}` | {_names([*names, *short])} | {_converted(row.convert, row.remark)} |\n"


def _converted(convert: object, remark: str) -> str:
    said = (getattr(convert, "__doc__", None) or "").strip().split("\n")[0] if convert else ""
    return "; ".join(part for part in (said.rstrip("."), remark) if part).replace("<", "&lt;")


def _row(known: Known) -> str:
    same = ", ".join(f"`{shown(value)}`" for value in known.same)
    return f"| {known.why} | {known.fix} | {same} | {_names(known.names)} |\n"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(keys_page())
