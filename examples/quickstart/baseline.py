"""What keywords and patterns reach on the same job: the score that a model has to beat.

    python examples/quickstart/baseline.py

The words are those of the training messages; the rule "longest phrase" was the best of three there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

KEYWORDS = {
    "cancel": r"\bcancel|call off|stop|don't ship|anymore|no longer|changed my mind|won't need|don't need",
    "invoice": r"invoice|receipt|\bbill\b|proof of",
    "refund": r"refund|money|repay|pay back|pay me|paid|reimburse|credit|payment|charge",
    "address": r"address|street|road|redirect|moved|my office|my work|\bflat\b|deliver\w* to|my home|instead",
    "replace": r"replac|exchang|swap|new one|another|broken|damaged|crack|wrong|scratch|send",
    "kitchen": r"steel|copper|glass|kettle|pan\b|mug|bowl|knife|fork|spoon|toaster|mixer",
    "electronics": r"wireless|digital|speaker|keyboard|radio|printer|monitor|camera|tablet",
    "furniture": r"oak|wooden|desk|sofa|couch|cabinet|stool|shelf|bench",
    "toys": r"plush|magnetic|puzzle|train|rabbit|bear|doll|truck|duck",
}
ENDS = r"(?:in|from|is|has|came|to|for|that|and|with|will|at|on|by|was|you|as|it|one|order|back|money|new|i|we|the|a)"
PHRASE = re.compile(rf"\b(?:my|the|an?|one|this|our) ((?:(?!{ENDS}\b)[a-z-]+\b ?){{1,3}})")


def answer(message: str) -> dict[str, str]:
    found = [name for name, words in KEYWORDS.items() if re.search(words, message.lower())]
    intent = next((name for name in found if name in list(KEYWORDS)[:5]), "track")
    department = next((name for name in found if name in list(KEYWORDS)[5:]), "clothing")
    item = max(PHRASE.findall(message.lower()), key=lambda phrase: len(phrase.split()), default="").strip()
    return {"intent": intent, "order": re.findall(r"[A-Z]\d{4}", message)[0], "item": item, "department": department}


def main() -> None:
    lines = (Path(__file__).parent / "heldout.jsonl").read_text("utf-8").splitlines()
    turns = [json.loads(line)["messages"] for line in lines]
    right = sum(answer(user["content"]) == json.loads(record["content"]) for _, user, record in turns)
    print(f"exact match of keywords and patterns: {right} of {len(turns)} = {right / len(turns):.3f}")


if __name__ == "__main__":
    main()
