"""What keywords and patterns reach on the same job: the score that a model has to beat.

    python examples/quickstart/baseline.py

The words were chosen by hand on the training messages; the rule "longest phrase" was the best of three there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

INTENTS = {
    "cancel": r"\bcancel|call off|stop|don't ship|anymore|no longer|changed my mind|won't need|don't need",
    "invoice": r"invoice|receipt|\bbill\b|proof of",
    "refund": r"refund|money|repay|pay back|pay me|paid|reimburse|credit|payment|charge",
    "address": r"address|street|road|redirect|moved|my office|my work|\bflat\b|deliver\w* to|my home|instead",
    "replace": r"replac|exchang|swap|new one|another|broken|damaged|crack|wrong|scratch|send",
}
ENDS = r"in|from|is|has|had|came|to|for|that|and|with|will|at|on|by|was|you|as|of|but|than|should|can|could|it|after"
ENDS += r"|if|again|not|be|broke|cost|one|order|back|money|address|new|i|we|before|still|come|arrived|where|bill|box"
ENDS += r"|receipt|invoice|refund|parcel|courier|driver|delivery|price|the|a|my|your|our|isn|doesn|didn|hasn|won"
PHRASE = re.compile(rf"\b(?:my|the|an?|one|this|our) ((?:(?!(?:{ENDS})\b)[a-z-]+\b ?){{1,3}})")


def answer(message: str) -> dict[str, str]:
    text = message.lower()
    intent = next((intent for intent, words in INTENTS.items() if re.search(words, text)), "track")
    order = re.search(r"\b[A-Z]\d{4}\b", message)
    item = max((phrase.strip() for phrase in PHRASE.findall(text)), key=lambda phrase: len(phrase.split()), default="")
    return {"intent": intent, "order": order[0] if order else "", "item": item}


def main() -> None:
    lines = (Path(__file__).parent / "heldout.jsonl").read_text("utf-8").splitlines()
    turns = [json.loads(line)["messages"] for line in lines]
    right = sum(answer(user["content"]) == json.loads(record["content"]) for _, user, record in turns)
    print(f"exact match of keywords and patterns: {right} of {len(turns)} = {right / len(turns):.3f}")


if __name__ == "__main__":
    main()
