"""How a source's rows name things: columns and roles of its own, given by the run file, and how ours are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.run.errors import InputError, nearest
from outlive.text.refusal import Refusal

MESSAGE = "message."  # begins the names of a message's keys, as in message.role


@dataclass(frozen=True)
class Naming:
    """`fields`: our name of a column, or of a message's key as "message.role" → the source's name, a dotted path.

    `roles`: the source's name of a role → ours.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)

    def check(self, known: frozenset[str], roles: tuple[str, ...]) -> None:
        """Raise InputError where a field or a role on our side is none that any format has."""
        for name in self.fields:
            if name not in known:
                near = nearest(name, sorted(known))
                fix = f"did you mean {near}?" if near else f"one of: {', '.join(sorted(known))}"
                raise InputError(f"{name!r} is no field that rows are read from", where="data.train[].fields", fix=fix)
        for theirs, ours in self.roles.items():
            if ours not in roles:
                near = nearest(ours, roles)
                fix = f"did you mean {near}?" if near else f"one of: {', '.join(roles)}"
                raise InputError(
                    f"{ours!r}, which {theirs!r} is to mean, is no role", where="data.train[].roles", fix=fix
                )

    @property
    def message_keys(self) -> dict[str, str]:
        """The source's name of a message's key → ours."""
        return {theirs: ours[len(MESSAGE) :] for ours, theirs in self.fields.items() if ours.startswith(MESSAGE)}

    def row(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row under our names; columns that are not renamed keep theirs."""
        columns = {ours: theirs for ours, theirs in self.fields.items() if not ours.startswith(MESSAGE)}
        if not columns:
            return row
        taken = {path.split(".")[0] for path in columns.values()}
        renamed = {name: value for name, value in row.items() if name not in taken and name not in columns}
        return renamed | {ours: value_at(row, path) for ours, path in columns.items()}


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; a column whose name has dots in it goes first. Raises Refusal where it is missing."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise Refusal("missing_field", f"the row has no {path!r}, which data.train[].fields names: {sorted(row)}")
    return value
