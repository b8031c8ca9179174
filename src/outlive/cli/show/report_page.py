"""The report of a run: how it went, what it was trained on, and with which settings and versions."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from outlive.cli.show import chart
from outlive.cli.show.chart import Rule, Series, joined, line_chart, smooth
from outlive.cli.show.progress import duration
from outlive.cli.show.style import page, table, text
from outlive.cli.show.summary import Summary, current, summarise
from outlive.run.folder import RunFolder
from outlive.run.sizes import counted

if TYPE_CHECKING:
    from outlive.run.metrics import Record

MAX_EPOCH_LINES = 12
STYLE = """
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(205px, 1fr)); gap: 10px; margin: 18px 0; }
.tile b { white-space: nowrap; display: block; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 14px; margin-top: 14px; }
@media (max-width: 520px) { .charts { grid-template-columns: 1fr; } }
"""
# The packages whose versions decide what a run computes; the others are one click away.
MAIN_PACKAGES = ("outlive", "torch", "transformers", "peft", "tokenizers", "numpy", "pyarrow", "safetensors", "jinja2")


def report_page(run_folder: Path) -> str:
    """The page of a run folder, whole or half done. InputError where it has no metrics; other files may be missing."""
    folder, records, data = _read(run_folder)
    summary, lock = _summary(records, data), _json(folder.lock)
    name = run_folder.resolve().name
    body = [f"<h1>{text(name)}</h1><p>{text(summary.verdict())}</p>"]
    body += [f'<p class="warn">{text(warning)}</p>' for warning in summary.warnings()]
    body += [_tiles(summary), _charts(records), _skipped(records), _validations(records)]
    body += [_data(data), _settings(folder.run_yaml)]
    body += [_versions(lock), _footer(records)]
    return page(f"{name} · report", "".join(body), STYLE + chart.STYLE, chart.SCRIPT)


def summary_of(run_folder: Path) -> Summary:
    """The figures of a run folder. InputError where it has no metrics."""
    _, records, data = _read(run_folder)
    return _summary(records, data)


def _read(run_folder: Path) -> tuple[RunFolder, list[Record], dict[str, Any]]:
    from outlive.run.metrics import read

    folder = RunFolder(run_folder)
    return folder, current(read(folder.metrics).records), _json(folder.data)


def _summary(records: Sequence[Record], data: dict[str, Any]) -> Summary:
    plan = data.get("plan")
    planned = plan.get("steps") if isinstance(plan, dict) else None
    return summarise(records, planned if isinstance(planned, int) else None)


def _tiles(summary: Summary) -> str:
    tiles = []
    if summary.loss is not None:
        tiles.append((f"{summary.loss.first:.3f} → {summary.loss.last:.3f}", "loss, first → last step"))
    if summary.validation is not None:
        held = summary.validation
        best = f"validation loss, best {held.best:.3f} at step {held.best_step}"
        tiles.append((f"{held.first:.3f} → {held.last:.3f}" if held.count > 1 else f"{held.last:.3f}", best))
    steps = f"{summary.steps:,}" + (f" of {summary.planned_steps:,}" if summary.planned_steps else "")
    over = [counted(summary.epochs, "epoch")] if summary.epochs else []
    over += [counted(summary.attempts, "attempt")] if summary.attempts > 1 else []
    tiles.append((steps, "steps" + (f" in {' and '.join(over)}" if over else "")))
    tiles.append((_count(summary.tokens), f"tokens, {_count(summary.target_tokens)} of them targets"))
    tiles.append((duration(summary.train_seconds), "of training steps"))
    if summary.tokens_per_second is not None:
        tiles.append((f"{summary.tokens_per_second:,.0f}", "tokens per second"))
    if summary.memory is not None:
        tiles.append((f"{summary.memory / 2**30:.2f} GiB", "peak memory of the process"))
    shown = "".join(
        f'<div class="panel tile"><b>{text(value)}</b><span>{text(name)}</span></div>' for value, name in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _count(number: int) -> str:
    return f"{number:,}" if number < 1_000_000 else chart.short(number)


def _charts(records: Sequence[Record]) -> str:
    steps = [record for record in records if record.kind == "train"]
    loss = line_chart("Loss", list(_loss_series(records)), rules=_rules(steps), note=_joined_note(len(steps), "mean"))
    small = (520, 220)
    others = [
        line_chart("Learning rate", [_series(steps, "lr")], from_zero=True, size=small),
        line_chart(
            "Gradient norm, before clipping",
            [_series(steps, "grad_norm", how=max)],
            from_zero=True,
            size=small,
            note=_joined_note(len(steps), "largest"),
        ),
        line_chart("Tokens per second", [_series(steps, "real_tokens_per_second")], from_zero=True, size=small),
        line_chart("Peak memory", [_series(steps, "memory", 2**30)], unit=" GiB", from_zero=True, size=small),
    ]
    return f'<h2>How it went</h2>{loss}<div class="charts">{"".join(others)}</div>'


def _loss_series(records: Sequence[Record]) -> Iterator[Series]:
    steps = [record for record in records if record.kind == "train"]
    raw = _series(steps, "loss")
    raw = raw._replace(bad=tuple(sorted({*raw.bad, *(record.step for record in steps if record.skipped)})))
    window = len(raw.y) // 40 if len(raw.y) == len(steps) else 0  # points that are means already need no more
    if window > 2:
        window += 1 - window % 2
        yield raw._replace(name="each step", form="faint")
        yield raw._replace(name=f"mean of {window}", bad=(), y=smooth(raw.y, window))
    else:
        yield raw._replace(name="training")
    names = list(dict.fromkeys(record.name for record in records if record.kind == "validation"))
    for name in names:
        points = [r for r in records if r.kind == "validation" and r.name == name and r.loss is not None]
        label = f"validation {name}" if name else "validation"
        yield Series(label, [r.step for r in points], [_number(r.loss) for r in points], "two", "points")


def _series(steps: Sequence[Record], name: str, unit: float = 1, how: Any = fmean) -> Series:
    known = [(record.step, getattr(record, name)) for record in steps if getattr(record, name) is not None]
    bad = tuple(step for step, value in known if not math.isfinite(value))
    x, y = joined([step for step, _ in known], [_number(value) / unit for _, value in known], how)
    return Series(name.replace("_", " ").replace("real tokens per second", "tokens/s"), x, y, bad=bad)


def _rules(steps: Sequence[Record]) -> list[Rule]:
    rules = []
    for before, after in pairwise(steps):
        if after.attempt != before.attempt:
            rules.append(Rule(after.step, f"attempt {after.attempt}"))
        elif before.epoch is not None and after.epoch is not None and after.epoch != before.epoch:
            rules.append(Rule(after.step, f"epoch {after.epoch + 1}"))
    return rules if len(rules) <= MAX_EPOCH_LINES else [rule for rule in rules if rule.name.startswith("attempt")]


def _joined_note(num_steps: int, how: str) -> str:
    size = -(-num_steps // chart.MAX_POINTS)
    return f"each point: the {how} of {size} steps" if size > 1 else ""


def _skipped(records: Sequence[Record]) -> str:
    skipped = [record for record in records if record.kind == "train" and record.skipped]
    if not skipped:
        return ""
    rows = "".join(
        f"<tr><td>{r.step:,}</td><td>{r.attempt}</td><td class='number'>{_shown(r.loss)}</td>"
        f"<td class='number'>{_shown(r.grad_norm)}</td><td>{text(r.skipped or '')}</td></tr>"
        for r in skipped
    )
    head = "<tr><th>step</th><th>attempt</th><th>loss</th><th>gradient norm</th><th>why</th></tr>"
    title = f"Steps that changed no weights ({len(skipped)})"
    return f"<details><summary>{title}</summary><table>{head}{rows}</table></details>"


def _validations(records: Sequence[Record]) -> str:
    points = [record for record in records if record.kind != "train"]
    if not points:
        return ""
    rows = "".join(
        f"<tr><td>{r.step:,}</td><td>{text(r.name or r.kind)}</td><td class='number'>{_shown(r.loss)}</td>"
        f"<td class='number'>{r.target_tokens or 0:,}</td><td class='number'>{duration(r.seconds or 0.0)}</td></tr>"
        for r in points
    )
    head = "<tr><th>after step</th><th>on</th><th>loss</th><th>target tokens</th><th>time</th></tr>"
    return f"<details><summary>Validation, in numbers ({len(points)})</summary><table>{head}{rows}</table></details>"


def _data(data: dict[str, Any]) -> str:
    if not data:
        return '<h2>Data</h2><p class="soft">data.json is not here</p>'
    try:
        return _data_found(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f'<h2>Data</h2><p class="warn">data.json is damaged: {text(error)}</p>'


def _data_found(data: dict[str, Any]) -> str:
    from outlive.data.ledger import Ledger

    parts = ["<h2>Data: what became of every row</h2>"]
    for value in data.get("ledger", []):
        lines = Ledger.from_json(value).lines()
        rows = dict(line.strip().rsplit(": ", 1) for line in lines[1:])
        parts.append(f'<div class="panel"><p><b>{text(lines[0])}</b></p>{_counts(rows)}</div>')
    head = "<tr><th>store</th><th>side</th><th>samples</th><th>tokens</th><th>targets</th><th>weight</th></tr>"
    rows_html = "".join(_store_row(side, store) for side in ("train", "validation") for store in data.get(side, []))
    plan = {name.replace("_", " "): value for name, value in data.get("plan", {}).items()}
    parts.append(f"<h2>Stores and plan</h2><table>{head}{rows_html}</table>" if rows_html else "")
    if any(store.get("unfinished") for store in data.get("train", [])):
        parts.append(
            '<p class="soft">The run did not wait for all rows: the numbers are of those that were prepared.</p>'
        )
    return "".join(parts) + (f"<p></p>{table(plan)}" if plan else "")


def _counts(rows: dict[str, str]) -> str:
    shown = "".join(
        f"<tr><th>{text(name)}</th><td class='number'>{text(value)}</td></tr>" for name, value in rows.items()
    )
    return f"<table>{shown}</table>"


def _store_row(side: str, store: dict[str, Any]) -> str:
    numbers = "".join(
        f"<td class='number'>{store.get(key) or 0:,}</td>" for key in ("num_samples", "num_tokens", "num_targets")
    )
    name = Path(str(store.get("source", ""))).name
    where = text(store.get("store", ""))
    numbers += f'<td class="number">{store.get("weight", 1):g}</td>'
    return f'<tr><td title="{where}">{text(name)}</td><td>{side}</td>{numbers}</tr>'


def _settings(run_yaml: Path) -> str:
    try:
        content = run_yaml.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return '<h2>Settings</h2><p class="soft">run.yaml is not here</p>'
    summary = "run.yaml, all keys resolved"
    return f"<h2>Settings</h2><details><summary>{summary}</summary><pre>{text(content)}</pre></details>"


def _versions(lock: dict[str, Any]) -> str:
    if not lock:
        return '<h2>Versions</h2><p class="soft">lock.json is not here</p>'
    packages = lock.get("packages") or {}
    main = {"python": lock.get("python")} | {name: packages[name] for name in MAIN_PACKAGES if name in packages}
    cpu, gpu, git = lock.get("cpu") or {}, lock.get("gpu") or {}, lock.get("git") or {}
    if cpu:
        main["cpu"] = f"{cpu.get('model') or 'unknown'}, {cpu.get('count')} processors"
        if lock.get("threads"):
            main["threads"] = str(lock["threads"])
    if gpu:
        main["gpu"] = ", ".join(f"{key} {value}" for key, value in gpu.items())
    if git:
        main["git"] = f"{git.get('commit')}{' with changes' if git.get('dirty') else ''}"
    whole = json.dumps(lock, indent=1, ensure_ascii=False)
    return (
        f"<h2>Versions</h2>{table(main)}<details><summary>lock.json, whole</summary><pre>{text(whole)}</pre></details>"
    )


def _footer(records: Sequence[Record]) -> str:
    if not records:
        return ""
    begin, end = (time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(r.time)) for r in (records[0], records[-1]))
    return f"<footer>First record {begin}, last {end}. Drawn from metrics.jsonl; the page loads nothing.</footer>"


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
