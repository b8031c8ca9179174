"""kill -9 at moments drawn over a whole run, and at every file operation of a save; each resume is held against the
undisturbed run, bit for bit. Prints a table; exit code 1 where one differs.

    OMP_NUM_THREADS=1 python benchmarks/kills.py [--moments 100] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked: no threads may be lost on the way
WHENS = ("inside", "after")  # before a call is after the one before it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=100, help="per variant")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    from tests.engines.test_loop import tiny_folder
    from tests.kills import VARIANTS, Story

    print("| trained | moments drawn | of them on a living run | calls of one save | kills at them | resumes equal |")
    print("|---|---|---|---|---|---|")
    for variant in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            model = tiny_folder(root / "model", "llama", num_hidden_layers=1)
            story = Story(root, model, _rows(root / "rows.jsonl"), variant)
            story.undisturbed()
            drawn = random.Random(f"{given.seed} {variant}")
            living = 0
            for number in range(given.moments):
                _progress(f"{variant}: moment {number + 1} of {given.moments}")
                living += story.killed_after(drawn.uniform(0, story.seconds))
                story.resumed()
                story.clean()
            hit = 0
            for number in range(story.num_calls):
                _progress(f"{variant}: call {number + 1} of {story.num_calls}")
                for when in WHENS:
                    hit += story.killed_at(number, when)
                    story.resumed()
                    story.clean()
        total = given.moments + story.num_calls * len(WHENS)
        print(
            f"| {variant} | {given.moments} | {living} | {story.num_calls} | {hit} | {total} of {total} |", flush=True
        )


def _progress(text: str) -> None:
    print(f"\r{text}   ", end="", file=sys.stderr, flush=True)


def _rows(path: Path) -> Path:
    """80 chats of 2 to 30 words: packs of several, and a few passes in 40 steps."""
    drawn = random.Random(0)
    words = ["order", "date", "city", "Paris", "Hello", "there", "how", "are", "today", "thank", "tomorrow"]

    def text() -> str:
        return " ".join(drawn.choices(words, k=drawn.randint(2, 30)))

    rows = [
        {"messages": [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]} for _ in range(80)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
