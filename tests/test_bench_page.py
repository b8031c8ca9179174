"""`make prove --only X` renews the table of X; what other parts measured, and what was written by hand, stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.page import renewed
from benchmarks.prove import FAULTS, PARTS

PAGE = (
    "# Measured\n\nRead ratios.\n\n## Quickstart\n\n| a |\n|---|\n| 1 |\n\n"
    "## By hand\n\nA ## in a line.\n\n## Loss\n\nold\n"
)


def test_one_section_is_renewed_in_its_place() -> None:
    found = renewed(PAGE, {"Quickstart": "\n| b |\n"})
    assert found == PAGE.replace("| a |\n|---|\n| 1 |", "| b |")
    assert renewed(found, {"Loss": "new"}) == found.replace("old", "new")


def test_what_is_new_comes_last() -> None:
    assert renewed(PAGE, {"GGUF": "x", "More": "y"}) == PAGE + "\n## GGUF\n\nx\n\n## More\n\ny\n"
    assert renewed("", {"GGUF": "x"}) == "## GGUF\n\nx\n"


def test_a_heading_that_is_there_twice_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="more than once"):
        renewed(PAGE + "\n## Loss\n\nagain\n", {"Loss": "new"})


def test_the_page_in_the_repository_keeps_all_that_was_not_measured() -> None:
    page = (Path(__file__).parents[1] / "docs" / "measured.md").read_text(encoding="utf-8")
    titles = [title for title, _ in PARTS.values()] + [FAULTS]
    assert len(set(titles)) == len(titles)
    for title in titles:
        assert len(page.split(f"\n## {title}\n")) <= 2
        found = renewed(page, {title: "measured anew"})
        kept = [part for part in page.split("\n## ") if not part.startswith(f"{title}\n")]
        assert all(part.strip() in found for part in kept)
        assert "measured anew" in found
