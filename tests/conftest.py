"""What all tests share: no hub, no telemetry, and in CI no fixture that is silently missing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from tests.fixtures import cases

STRICT = os.environ.get("OUTLIVE_STRICT") == "1"


def pytest_sessionstart(session: pytest.Session) -> None:
    """With OUTLIVE_STRICT=1 a missing fixture stops the run; without it the tests that need it are skipped."""
    if STRICT and not cases().is_dir():
        pytest.exit(f"the cases are missing: {cases()} (set OUTLIVE_CASES)", returncode=1)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """60 short chats."""
    path = tmp_path / "rows.jsonl"
    words = [
        "Hello",
        "there",
        "how",
        "are",
        "you",
        "today",
        "fine",
        "thank",
        "see",
        "tomorrow",
        "order",
        "date",
        "city",
        "Paris",
    ]
    with path.open("w") as file:
        for number in range(60):
            said = " ".join(words[(number + place) % len(words)] for place in range(2 + number % 7))
            answer = " ".join(words[(number * 3 + place) % len(words)] for place in range(1 + number % 5))
            turns = [{"role": "user", "content": said}, {"role": "assistant", "content": f"{answer} {number}"}]
            file.write(json.dumps({"messages": turns}) + "\n")
    return path


collect_ignore: list[str] = []
try:
    import torch  # noqa: F401
except ImportError:  # the assets alone: what needs torch is not collected
    collect_ignore += ["modeling", "learn", "engines", "examples", "test_api.py", "cli/test_merge.py"]
    with_torch = ["test_with_torch.py", "test_combine.py"]
    with_torch += [f"adapters/test_{name}.py" for name in ("experts", "kinds", "starts", "untied", "verified")]
    with_torch += ["adapters/test_extract.py", "adapters/test_to_peft.py"]
    with_torch += [f"families/test_{name}.py" for name in ("families", "gguf_models", "gguf_values", "layouts")]
    collect_ignore += [f"checkpoint/{name}" for name in with_torch]
