"""`make bench-data`: our preparation of chats beside TRL's, in one run. Writes benchmarks/data.md.

    python benchmarks/data.py [--rows 8000] [--rounds 3] [--no-trl] [--no-fastokens] [--out FILE]

TRL lives in an environment of its own, made once under $OUTLIVE_HOME (default ~/.cache/outlive). Each arm is a process
of its own; the arms take turns, one process at a time, and a ratio is the median of the rounds' ratios. A busy machine
makes every time an upper bound: read ratios. What can't be measured is named with its error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.data_arms import Arm, Bench, Results, command, trl_environment  # noqa: E402

PAGE = ROOT / "benchmarks" / "data.md"
CAPACITY, NUM_LENGTHS = 4_096, 1_000_000

Row = dict[str, Any]


def varied(rows: Sequence[Row], count: int, seed: int = 0) -> list[Row]:
    """`count` chats: the rows again and again, from the second time on with one word in seven from another row."""
    drawn = random.Random(seed)
    pool = [word for row in rows for message in row["messages"] for word in re.findall(r"\w+", message["content"])]

    def changed(text: str) -> str:
        return re.sub(r"\w+", lambda word: drawn.choice(pool) if drawn.random() < 1 / 7 else word.group(), text)

    return [
        rows[place]
        if place < len(rows)
        else {"messages": [{**m, "content": changed(m["content"])} for m in rows[place % len(rows)]["messages"]]}
        for place in range(count)
    ]


def drawn_lengths(count: int, seed: int = 0) -> Any:
    """Log-normal lengths in tokens, cut to 1 to `CAPACITY`: median 410 and sigma 1, which is a mean of 653 to 656."""
    import numpy as np

    drawn = np.random.default_rng(seed).lognormal(np.log(410), 1.0, count)
    return np.clip(np.rint(drawn), 1, CAPACITY).astype(np.int64)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table: the first column to the left, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def ratio(results: Results, ours: str, theirs: str) -> str:
    """How many times as fast `ours` is: the median of the rounds' ratios; a dash where one was not measured."""
    pairs = zip(results.get(ours, []), results.get(theirs, []), strict=False)
    found = [b["seconds"] / a["seconds"] for a, b in pairs]
    return f"{statistics.median(found):.2f} ×" if found else "–"


def median(results: Results, name: str, key: str = "seconds") -> float:
    return statistics.median(result[key] for result in results[name])


def marked(template: str) -> str:
    """SmolLM2's template with the assistant's turns between generation marks, which TRL's mask needs; equal renders."""
    said = re.search(r"\{\{\s*'<\|im_start\|>' \+ message\['role'\].*?\}\}", template, re.DOTALL)
    if said is None:
        raise SystemExit("the model's template is not the one that this benchmark has a marked twin of")
    turn = (
        "{% if message['role'] == 'assistant' %}{{ '<|im_start|>assistant\\n' }}{% generation %}"
        "{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}"
    )
    return template.replace(said.group(), turn + said.group() + "{% endif %}")


def whole_lines(bench: Bench) -> list[str]:
    results, rows = bench.results, []
    for name, arm in {**WHOLE, **FAST_WHOLE}.items():
        if name in results:
            tokens, seconds = median(results, name, "tokens"), median(results, name)
            cpu = f"{median(results, name, 'cpu'):.2f}"
            own, peak = f"{tokens / seconds / 1e6:.3f}", f"{median(results, name, 'peak_gib'):.2f}"
            counts = [f"{median(results, name, key):,.0f}" for key in ("rows", "tokens", "targets")]
            against = [ratio(results, name, f"TRL, {n} process{'es' * (n > 1)}") for n in (1, 2)]
            rows.append(
                [
                    name,
                    arm.processes,
                    *counts,
                    f"{seconds:.2f}",
                    cpu,
                    own,
                    peak,
                    *(against if arm.side == "ours" else "––"),
                ]
            )
    header = [
        "whole preparation",
        "processes",
        "samples",
        "tokens",
        "targets",
        "seconds",
        "CPU s",
        "M tok/s",
        "peak GiB",
    ]
    lines = table([*header, "against TRL, 1", "against TRL, 2"], rows)
    lines += [
        "",
        "Outlive's time includes reading the file, near duplicates and other lints, hashes and the check of what",
    ]
    lines += [
        "was written, the start of its processes, and with fastokens the test that it is as exact. Peak memory is"
    ]
    lines += ["that of the process that was started, without its workers."]
    if "TRL, 1 process" in results:
        lines += [
            f"TRL's reading into a data set ({median(results, 'TRL, 1 process', 'reading'):.2f} s) is not counted."
        ]
    return lines


def part_lines(bench: Bench) -> list[str]:
    results, rows = bench.results, []
    for name, against in PARTS_AGAINST.items():
        if name in results:
            per_row = median(results, name) / bench.common["num_rows"] * 1e6
            rows.append([name, f"{median(results, name):.3f}", f"{per_row:.0f}", against or "–"])
            rows[-1].append(ratio(results, name, against) if against else "–")
    return table(["part", "seconds", "µs a row", "against", "times as fast"], rows)


def packing_lines(bench: Bench) -> list[str]:
    rows = []
    for name in PACKING:
        if name in bench.results:
            packs, tokens = median(bench.results, name, "packs"), median(bench.results, name, "tokens")
            bound = -(-tokens // CAPACITY)
            rows.append(
                [name, f"{median(bench.results, name):.2f}", f"{packs:,.0f}", f"{bound:,.0f}", f"{bound / packs:.5f}"]
            )
    return table(["packing of 1,000,000 lengths", "seconds", "packs", "lower bound", "bound / packs"], rows)


FAST = {"fastokens": True}
WHOLE = {
    "Outlive": Arm("ours", "whole"),
    "Outlive, 2 processes": Arm("ours", "whole", 2),
    "TRL, 1 process": Arm("trl", "whole"),
    "TRL, 2 processes": Arm("trl", "whole", 2),
}
FAST_WHOLE = {
    "Outlive, fastokens": Arm("ours", "whole", 1, FAST),
    "Outlive, fastokens, 2 processes": Arm("ours", "whole", 2, FAST),
}
PARTS = {
    "render, plain": Arm("ours", "render_plain"),
    "render, with proved spans": Arm("ours", "render_proved"),
    "TRL's render (apply_chat_template)": Arm("trl", "render"),
    "raw encode_batch of the chats": Arm("ours", "raw_chats"),
    "raw encode_batch of the chats, 2 threads": Arm("ours", "raw_chats", 2),
    "plain text: raw encode_batch": Arm("ours", "raw_texts"),
    "plain text: Outlive, whole": Arm("ours", "whole_texts"),
}
FAST_PARTS = {
    "fastokens: raw encode_batch of the chats": Arm("ours", "raw_chats", 1, FAST),
    "fastokens: raw encode_batch of plain text": Arm("ours", "raw_texts", 1, FAST),
    "plain text: Outlive, whole, fastokens": Arm("ours", "whole_texts", 1, FAST),
}
PARTS_AGAINST = {
    "render, plain": "TRL's render (apply_chat_template)",
    "render, with proved spans": "TRL's render (apply_chat_template)",
    "TRL's render (apply_chat_template)": "",
    "raw encode_batch of the chats": "",
    "raw encode_batch of the chats, 2 threads": "raw encode_batch of the chats",
    "Outlive": "raw encode_batch of the chats",
    "plain text: raw encode_batch": "",
    "plain text: Outlive, whole": "plain text: raw encode_batch",
    "fastokens: raw encode_batch of the chats": "raw encode_batch of the chats",
    "fastokens: raw encode_batch of plain text": "plain text: raw encode_batch",
    "plain text: Outlive, whole, fastokens": "fastokens: raw encode_batch of plain text",
}
PACKING = {
    "Outlive, all at once": Arm("ours", "packing"),
    "Outlive, 10 sources mixed by tokens, in windows": Arm("ours", "mixing"),
    "TRL as it ships: 1,000 rows at a time, tokens moved": Arm("trl", "packing"),
}


def measure(given: argparse.Namespace, folder: Path) -> Bench:
    """All arms, on rows written to `folder`."""
    import numpy as np
    from tests.fixtures import cases

    from outlive.run.home import outlive_home

    model = Path(command([sys.executable, "examples/quickstart/base_model.py"]))
    chats = cases() / "chat400.jsonl"
    if not chats.is_file():
        raise SystemExit(f"{chats} is missing: name the folder of cases with OUTLIVE_CASES")
    rows = varied([json.loads(line) for line in chats.read_text(encoding="utf-8").splitlines()], given.rows)
    write(folder / "rows.jsonl", rows)
    write(folder / "texts.jsonl", [{"text": "\n\n".join(m["content"] for m in row["messages"])} for row in rows])
    np.save(folder / "lengths.npy", drawn_lengths(NUM_LENGTHS))
    template = (model / "chat_template.jinja").read_text(encoding="utf-8")
    files = {"rows": "rows.jsonl", "texts": "texts.jsonl", "lengths": "lengths.npy"}
    common: dict[str, Any] = {key: str(folder / name) for key, name in files.items()}
    words = {word for row in rows for message in row["messages"] for word in message["content"].split()}
    common |= {"different_words": len(words)}
    common |= {"tokenizer": str(model), "template": marked(template), "capacity": CAPACITY, "num_rows": len(rows)}
    bench = Bench(None, common)
    arms, whole_arms = dict(PARTS), dict(WHOLE)
    try:
        bench.trl_python = None if given.no_trl else trl_environment(outlive_home())
    except RuntimeError as error:
        bench.missing.append(f"TRL: {error}")
    try:
        if not given.no_fastokens:
            command([sys.executable, "-c", "import fastokens"])
            arms, whole_arms = {**arms, **FAST_PARTS}, {**whole_arms, **FAST_WHOLE}
    except RuntimeError as error:
        bench.missing.append(f"fastokens: {error}")
    bench.rounds({**whole_arms, **arms, **PACKING}, given.rounds)
    return bench


def write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def commit() -> str:
    """The commit, and whether the code that is measured has changes beside it."""
    measured = [f"src/outlive/{package}" for package in ("data", "text", "run")]
    changed = command(["git", "status", "--porcelain", "--", *measured])
    return f"`{command(['git', 'rev-parse', '--short=12', 'HEAD'])}`" + (" with changes" if changed else "")


def page(bench: Bench, given: argparse.Namespace, code: str) -> str:
    from benchmarks.prove import machine

    found = {name: version(name) for name in ("tokenizers", "jinja2", "pyarrow", "numpy")}
    named = ", ".join(f"{name} {number}" for name, number in found.items())
    theirs = bench.run(Arm("trl", "versions")) if bench.trl_python else {}
    beside = ", ".join(f"{name} {number}" for name, number in theirs.items() if name != "peak_gib")
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    lines = [
        "# Preparing data",
        "",
        f"Written by `make bench-data`: {given.rows:,} chats, SmolLM2's tokenizer and template; medians of",
        f"{given.rounds} rounds in which the arms take turns. Times are of one machine and one day: read ratios.",
        "",
        f"Commit {code}; {machine()}; load average at the end {load}.",
        f"Ours: {named}. TRL's: {beside or 'none'}.",
        "",
        "Without fastokens, Outlive tokenises each different word of plain text once (docs/sources.md); the rows have",
        f"{bench.common['different_words']:,} different words, which favours it: real text repeats fewer.",
        "The raw arms are the library alone.",
        "",
    ]
    for block in (whole_lines(bench), part_lines(bench), packing_lines(bench)):
        lines += [*block, ""]
    lines += [f"* not measured: {text}" for text in bench.missing]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast data is prepared, and write benchmarks/data.md.")
    parser.add_argument("--rows", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-trl", action="store_true")
    parser.add_argument("--no-fastokens", action="store_true")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    code = commit()  # before anything runs: another may be made meanwhile
    with tempfile.TemporaryDirectory() as folder:
        text = page(measure(given, Path(folder)), given, code)
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
