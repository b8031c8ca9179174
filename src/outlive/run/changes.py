"""What differs between a run and its continuation, and whether the user must say that it is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from outlive.run.config import Run, Section, plain
from outlive.run.errors import InputError, nearest
from outlive.run.resume_rules import KEYS, LEARNT, OTHER_DATA, OTHER_ROWS, ROUNDING, SHAPE, UNKNOWN, Kind
from outlive.run.sizes import counted

# Facts of the lock that are no keys of the run file: (the key to accept, why it matters).
_CONTENTS = {
    "model": ("model", "the weights, or the config, that the run began with are others"),
    "tokenizer": ("tokenizer", "the same numbers stand for other pieces of text"),
    "chat_template": ("data.chat_template", LEARNT),
    "date": ("data.date", KEYS["data.date"][1]),
}
SAME_BYTES = "the same bytes, but other samples"
_VERSIONS = ("python", "torch", "threads", "cpu", "gpu")


@dataclass(frozen=True)
class Change:
    """One difference. `key` is what `--accept` takes, or a word above it: accepting "optimizer" accepts optimizer.lr.

    free: may differ, and is told. ask: refused unless accepted. never: the saved state can't go on with it.
    """

    key: str
    before: Any
    after: Any
    kind: Kind
    why: str

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} → {_shown(self.after)} ({self.why})"


def changes(before: Run, after: Run) -> list[Change]:
    """Where two run files differ, by dotted key (data.train.0.weight). A date that `after` does not name is kept."""
    if after.data.date is None:
        # Settled at the first start, and carried on from there.
        after = after.model_copy(update={"data": after.data.model_copy(update={"date": before.data.date})})
    return [
        Change(key, _plain(had), _plain(has), *_rule(key, had, has, after))
        for key, had, has in _differences("", before, after)
    ]


def _differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """(key, before, after) for each difference, as deep as the two have the same form."""
    if isinstance(old, Section) and type(old) is type(new):
        for name in type(old).model_fields:
            yield from _differences(f"{key}.{name}" if key else name, getattr(old, name), getattr(new, name))
    elif _are_sections(old) and _are_sections(new) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{key}.{number}", *pair)
    elif old != new:
        yield key, old, new


def _rule(key: str, before: Any, after: Any, run: Run) -> tuple[Kind, str]:
    if key.startswith("batch.micro_") and run.method.router_aux_mode == "micro_batch":
        return "ask", "the load-balancing term is computed over each micro-batch"
    if key in ("model", "model.init.config") and not (isinstance(before, str) and isinstance(after, str)):
        return "never", SHAPE
    return KEYS.get(".".join(part for part in key.split(".") if not part.isdigit()), UNKNOWN)


def fact_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Where the contents differ that run files only name. Both are what `facts` gives, or a lock's "hashes" alone.

    A fact that one of the two lacks is not compared.
    """
    found = []
    for fact, (key, why) in _CONTENTS.items():
        if fact in before and fact in after and before[fact] != after[fact] and _both_dated(fact, before, after):
            found.append(Change(key, before[fact], after[fact], "ask", why))
    for side in ("train", "validation"):
        if side in before and side in after:
            found += _store_changes(side, before, after)
    if "train" not in before and before.get("stores") != after.get("stores"):
        found.append(Change("data.train", before.get("stores"), after.get("stores"), "ask", OTHER_DATA))
    for fact in _VERSIONS:
        had, has = before.get(fact), after.get(fact)
        if had is not None and has is not None and had != has:
            found.append(Change(fact, had, has, "free", ROUNDING))
    return found


def facts(lock: Mapping[str, Any], data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The facts of a lock.json, with its "hashes", and of a data.json, for `fact_changes`. ValueError where one of them
    has another form than these files have."""
    named = {**lock, **{side: (data or {}).get(side) or [] for side in ("train", "validation")}}
    for key in ("cpu", "gpu", "packages", "hashes", "train", "validation"):
        kind = list if key in ("train", "validation") else dict
        if not isinstance(named.get(key) or kind(), kind):
            raise ValueError(f"{key} is {str(named[key])[:40]}")
    if not all(isinstance(store, dict) for side in ("train", "validation") for store in named[side]):
        raise ValueError("train and validation hold a store each")
    cpu, gpu = lock.get("cpu") or {}, lock.get("gpu") or {}
    known = {
        "python": lock.get("python"),
        "torch": (lock.get("packages") or {}).get("torch"),
        "threads": lock.get("threads"),
        "cpu": cpu.get("model"),
        "gpu": gpu.get("name"),
    }
    stores = {side: named[side] for side in ("train", "validation")} if data else {}
    return {
        **{name: value for name, value in known.items() if value is not None},
        **(lock.get("hashes") or {}),
        **stores,
    }


def judge(changes: Sequence[Change], accepted: Sequence[str]) -> list[Change]:
    """The changes that hold: those that are free or accepted. InputError for any other, with all of them listed, and
    for an accepted name that nothing is called by. One that names what no longer differs is fine: a job that is started
    again and again says the same each time."""
    for name in accepted:
        known = [*KEYS, *(change.key for change in changes), *(key for key, _ in _CONTENTS.values())]
        if not any(_covers(name, key) for key in known):
            raise _nothing_so_called(name, changes)
    refused = [
        change
        for change in changes
        if change.kind == "never" or (change.kind == "ask" and not any(_covers(name, change.key) for name in accepted))
    ]
    if refused:
        raise _refusal(refused)
    return list(changes)


def _refusal(refused: Sequence[Change]) -> InputError:
    lines = []
    for change in refused:
        can = "can't be accepted" if change.kind == "never" else f"--accept {change.key}"
        lines.append(f"  {change.key}: {_shown(change.before)} → {_shown(change.after)}")
        lines.append(f"      {change.why}: {can}")
    number = "one point" if len(refused) == 1 else f"{len(refused)} points"
    if any(change.kind == "never" for change in refused):
        fix = "give the old values back, or start a new run: name=…"
    else:
        names = " ".join(f"--accept {key}" for key in dict.fromkeys(change.key for change in refused))
        fix = f"give the old values back, or say that it is meant: {names}"
    return InputError(f"this is not the run that was saved: it differs in {number}\n" + "\n".join(lines), fix=fix)


def _nothing_so_called(name: str, changes: Sequence[Change]) -> InputError:
    differ = list(dict.fromkeys(change.key for change in changes if change.kind == "ask"))
    sections = [".".join(key.split(".")[:depth]) for key in [*differ, *KEYS] for depth in range(1, 5)]
    near = nearest(name, differ) or nearest(name, sections)
    what = f"nothing is called {name}"
    if near and near != name:
        what += f"; did you mean {near}?"
    fix = f"what can be accepted: {', '.join(differ)}" if differ else "leave it out: nothing has to be accepted"
    return InputError(what, where=f"--accept {name}", fix=fix)


def _covers(name: str, key: str) -> bool:
    return key == name or key.startswith(f"{name}.")


def _store_changes(side: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = before[side], after[side]
    if side == "validation":  # a share of a training source changes with it, and is told there
        shares = {store.get("source") for facts in (before, after) for store in facts.get("train", [])}
        old, new = ([store for store in stores if store.get("source") not in shares] for stores in (old, new))
    why = OTHER_DATA if side == "train" else OTHER_ROWS
    if len(old) != len(new):
        yield Change(f"data.{side}", _names(old), _names(new), "ask", why)
        return
    for had, has in zip(old, new, strict=True):
        same_bytes = had.get("source_hash") == has.get("source_hash")
        counts = ("num_samples", "num_tokens", "num_targets")
        if same_bytes and all(had.get(key) == has.get(key) for key in counts):
            continue
        if _is_unfinished(had, has) and had.get("store") and _store_name(had) == _store_name(has):
            continue  # named after all that decides its samples, of which one of the two had only some
        what = SAME_BYTES if same_bytes else "other bytes"
        before_name, name = (PurePath(str(store.get("source", ""))).name for store in (had, has))
        if name != before_name and not same_bytes:
            what = f"{name}, {what}"
        yield Change(f"data.{side}", f"{before_name}: {_counted(had)}", f"{what}: {_counted(has)}", "ask", why)


def _is_unfinished(*stores: Mapping[str, Any]) -> bool:
    return any(store.get("unfinished") for store in stores)


def _store_name(store: Mapping[str, Any]) -> str:
    return PurePath(str(store.get("store", ""))).name


def _counted(store: Mapping[str, Any]) -> str:
    return f"{counted(store.get('num_samples') or 0, 'sample')}, {counted(store.get('num_tokens') or 0, 'token')}"


def _names(stores: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(PurePath(str(store.get("source", ""))).name for store in stores) or "none"


def _both_dated(fact: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return fact != "date" or (before[fact] is not None and after[fact] is not None)


def _are_sections(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Section) for item in value)


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return plain(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        value = (
            value.get("path") or value.get("hub") or ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
        )
    if isinstance(value, list):
        value = ", ".join(map(_shown, value)) or "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
