"""Write train.jsonl and heldout.jsonl: a customer's message becomes a JSON record.

    python examples/quickstart/generate_data.py

The same files come out each time, byte for byte. A held-out row shares no sentence, no order number and
no item with a training row: a model that scores on them has learned the job, not the rows.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from messages import HELDOUT, HELDOUT_ITEMS, TRAIN, TRAIN_ITEMS

SYSTEM = "Turn the customer's message into a JSON record."
SEED = 7
TRAIN_ROWS_PER_INTENT, HELDOUT_ROWS_PER_INTENT = 90, 20


def items(lines: list[str]) -> list[list[str]]:
    """The items of lines like "tall low | oak | desk": those of one word, of two and of three."""
    by_length: list[list[str]] = [[], [], []]
    for line in lines:
        firsts, seconds, things = (part.split() for part in line.split(" | "))
        pairs = [f"{second} {thing}" for second in seconds for thing in things]
        triples = [f"{first} {pair}" for first in firsts for pair in pairs]
        for known, new in zip(by_length, (things, pairs, triples), strict=True):
            known += new
    return by_length


def order_number(rng: random.Random, taken: set[str]) -> str:
    while True:
        number = f"{rng.choice('ABCDEFGHJKLMNPRSTUVWXZ')}{rng.randrange(1000, 10_000)}"
        if number not in taken:
            taken.add(number)
            return number


def fill(message: str, values: dict[str, str]) -> str:
    """Put the values into the gaps; "a {item}" becomes "an oak desk" where the value asks for it."""
    for name, value in values.items():
        if value[0] in "aeiou":
            message = re.sub(rf"\b([Aa]) (?=\{{{name}\}})", r"\1n ", message)
        message = message.replace(f"{{{name}}}", value)
    return message


class Shop:
    """Hands out items, equally often from each department and of each length, each once before any comes again."""

    def __init__(self, for_sale: dict[str, list[str]], rng: random.Random) -> None:
        self.for_sale, self.rng = for_sale, rng
        self.left: dict[tuple[str, int], list[str]] = {}

    def take(self, department: str) -> str:
        length = self.rng.randrange(3)
        if not self.left.get((department, length)):
            all_items = items(self.for_sale[department])[length]
            self.left[department, length] = self.rng.sample(all_items, len(all_items))
        return self.left[department, length].pop()


def row(intent: str, message: str, shop: Shop, order: str) -> dict[str, object]:
    departments = {"garment": ["clothing"], "device": ["electronics"], "item": list(shop.for_sale)}
    gap = next(gap for gap in departments if f"{{{gap}}}" in message)
    department = shop.rng.choice(departments[gap])
    item, other = shop.take(department), shop.take(shop.rng.choice(departments["item"]))
    record = json.dumps({"intent": intent, "order": order, "item": item, "department": department})
    text = fill(message, {gap: item, "other": other, "order": order})
    turns = (("system", SYSTEM), ("user", text), ("assistant", record))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def rows(
    messages: dict[str, list[str]],
    for_sale: dict[str, list[str]],
    rows_per_intent: int,
    rng: random.Random,
    taken: set[str],
) -> list[dict[str, object]]:
    """Rows of all intents in random order, each intent's messages used about equally often."""
    shop = Shop(for_sale, rng)
    made = []
    for intent, frames in messages.items():
        rounds = [frame for _ in range(rows_per_intent) for frame in rng.sample(frames, len(frames))]
        made += [row(intent, frame, shop, order_number(rng, taken)) for frame in rounds[:rows_per_intent]]
    rng.shuffle(made)
    return made


def generate(folder: Path) -> None:
    """Write both files into `folder`."""
    rng = random.Random(SEED)
    taken: set[str] = set()
    files = {
        "train.jsonl": rows(TRAIN, TRAIN_ITEMS, TRAIN_ROWS_PER_INTENT, rng, taken),
        "heldout.jsonl": rows(HELDOUT, HELDOUT_ITEMS, HELDOUT_ROWS_PER_INTENT, rng, taken),
    }
    for name, content in files.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        (folder / name).write_bytes(lines.encode())


if __name__ == "__main__":
    generate(Path(__file__).parent)
