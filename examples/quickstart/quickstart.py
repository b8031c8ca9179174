"""Fine-tune SmolLM2-135M-Instruct on a small job, and see whether it got better.

    python examples/quickstart/quickstart.py [--runs DIR] [KEY=VALUE ...]

Scores held-out rows before and after by exact match of the JSON record. Settings such as seed=1 override run.yaml.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from base_model import base_model  # noqa: E402

from outlive.api import train  # noqa: E402
from outlive.evals.intervals import Score, wilson  # noqa: E402
from outlive.modeling.decode import generate  # noqa: E402
from outlive.modeling.served import open_served  # noqa: E402
from outlive.run.config import load_run  # noqa: E402
from outlive.run.errors import OutliveError, Resumable  # noqa: E402
from outlive.run.folder import refuse_existing  # noqa: E402
from outlive.run.home import outlive_home  # noqa: E402
from outlive.scoring.exact import exact_json  # noqa: E402
from outlive.text.prompt import served_prompt  # noqa: E402

MAX_ANSWER_TOKENS = 48


def answers(name: str, rows: list[list[dict[str, str]]]) -> list[str]:
    """The model's greedy answer to each row's messages but the last, which is the expected answer."""
    served = open_served(name, outlive_home())
    tokenizer, template = served.tokenizer, served.template
    assert template is not None
    prompts = [tokenizer.encode(served_prompt(template, messages[:-1])) for messages in rows]
    found = generate(
        served.model, prompts, end_ids=tokenizer.end_of_turn_ids, max_new_tokens=MAX_ANSWER_TOKENS, batch_size=40
    )
    return [tokenizer.decode(ids) for ids in found]


def score(found: list[str], rows: list[list[dict[str, str]]]) -> Score:
    """Exact match with Wilson's 95 % interval."""
    right = sum(exact_json(answer, messages[-1]["content"]) for answer, messages in zip(found, rows, strict=True))
    return wilson(right, len(rows))


def main(overrides: list[str], runs: Path) -> None:
    rows = [json.loads(line)["messages"] for line in (HERE / "heldout.jsonl").read_text("utf-8").splitlines()]
    base = str(base_model(outlive_home() / "models"))
    run = load_run(HERE / "run.yaml", overrides, model=base).run
    refuse_existing(run.name, runs)
    print(f"scoring {len(rows)} held-out rows before training …", flush=True)
    started = time.perf_counter()
    before = answers(base, rows)
    print(f"before: {score(before, rows)} ({time.perf_counter() - started:.0f} s)\n", flush=True)

    if train(run, runs).status == "stopped":
        raise Resumable("stopped before its end", fix=f"go on with: outlive train {runs / run.name} --resume")

    print(f"\nscoring {len(rows)} held-out rows after training …", flush=True)
    folder = runs / run.name
    after = answers(str(folder), rows)
    show = next((place for place, answer in enumerate(after) if exact_json(answer, rows[place][-1]["content"])), 0)
    print(f"\ncustomer: {rows[show][-2]['content']}")
    print(f"before:   {before[show].strip()[:300]}")
    print(f"after:    {after[show]}")
    print(f"expected: {rows[show][-1]['content']}\n")
    served = sorted(folder.glob("checkpoints/step-*/adapter")) or sorted(folder.glob("checkpoints/step-*/model"))
    print(f"serve:  {served[-1]}")
    message = "Please cancel order K4821, the walnut side table."
    print(f'talk:   outlive generate {folder} --system "{rows[0][0]["content"]}" "{message}"')
    print(f"exact match: before {score(before, rows)} → after {score(after, rows)}")


if __name__ == "__main__":
    try:
        parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
        parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
        parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
        given = parser.parse_intermixed_args()
        main(given.overrides, given.runs)
    except OutliveError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
