"""kill -9 at any moment loses nothing but the step under way (the long form, 200 moments and every call of a save, is
`make prove`)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.engines.test_loop import tiny_folder
from tests.kills import VARIANTS, Story

MOMENTS = 3


@pytest.fixture(params=VARIANTS)
def story(request: pytest.FixtureRequest, tmp_path: Path, rows: Path) -> Story:
    story = Story(tmp_path, tiny_folder(tmp_path / "model", "llama"), rows, request.param)
    story.undisturbed()
    return story


def test_every_resume_gives_the_undisturbed_losses(story: Story) -> None:
    drawn = random.Random(story.variant)
    kills = 0
    for _ in range(MOMENTS):
        kills += story.killed_after(drawn.uniform(0.2, 0.95) * story.seconds)
        story.resumed()
        story.clean()
    for when in ("before", "inside", "after"):
        assert story.killed_at(drawn.randrange(story.num_calls), when)
        story.resumed()
        story.clean()
    assert kills  # at least one moment hit a living run


def test_a_resume_that_is_killed_while_it_starts_loses_nothing(story: Story) -> None:
    """While it sweeps, sets aside, moves records, writes the run's files and makes the trial save."""
    story.goes_back()
    drawn = random.Random(story.variant)
    kills = 0
    for when in ("before", "inside", "after"):
        kills += story.killed_at_start(drawn.randrange(story.num_start_calls), when)
        story.resumed()
    assert kills >= 2  # a call that fails, as of what is not there, has no "after"
