"""What keywords and patterns reach on the same job: the score that a model has to beat.

python examples/quickstart/baseline.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

KEYWORDS = {
    "invoice": ("invoice", "receipt", "bill", "proof of purchase", "tax"),
    "cancel": ("cancel", "call off", "stop", "don't ship", "changed my mind", "no longer need", "anymore"),
    "address": ("address", "street", "road", "redirect", "house", "moved", "office", "flat"),
    "refund": ("refund", "money", "repay", "pay me back", "reimburse", "credit", "payment"),
    "replace": ("replace", "exchange", "swap", "new one", "another", "broken", "damaged", "crack"),
    "track": ("where", "when", "track", "arrive", "status", "courier", "shipped", "deliver"),
}
ITEM = re.compile(
    r"\b(?:my|the|an?|one|this|our) ((?:[a-z]+ ){1,2}?[a-z]+)(?= in\b| from\b| is\b| has\b| came\b|[.,?!:])"
)


def answer(message: str) -> dict[str, str]:
    text = message.lower()
    intent = next((intent for intent, words in KEYWORDS.items() if any(word in text for word in words)), "track")
    order = re.search(r"\b[A-Z]\d{4}\b", message)
    item = ITEM.search(message)
    return {"intent": intent, "order": order[0] if order else "", "item": item[1] if item else ""}


def main() -> None:
    lines = (Path(__file__).parent / "heldout.jsonl").read_text("utf-8").splitlines()
    turns = [json.loads(line)["messages"] for line in lines]
    right = sum(answer(user["content"]) == json.loads(record["content"]) for _, user, record in turns)
    print(f"exact match of keywords and patterns: {right} of {len(turns)} = {right / len(turns):.3f}")


if __name__ == "__main__":
    main()
