"""A small run that is made once, for tests that look at what becomes of its folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.resuming import Verb
from tests.engines.test_loop import tiny_folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verb]:
    """A run of 8 steps with checkpoints at 3, 6 and 8, which is made once."""
    root = tmp_path_factory.mktemp("made")
    rows = root / "rows.jsonl"
    with rows.open("w") as file:
        for number in range(60):
            turns = [{"role": "user", "content": f"Hello {number}"}, {"role": "assistant", "content": f"fine {number}"}]
            file.write(json.dumps({"messages": turns}) + "\n")
    verb = Verb(root, tiny_folder(root / "model", "llama"), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLIVE_HOME", str(root / "home"))
        verb.train()
        yield verb


@pytest.fixture
def verb(made: Verb, tmp_path: Path) -> Verb:
    """The same run where nothing was trained yet."""
    return Verb(tmp_path, made.model, made.rows)


@pytest.fixture
def done(made: Verb, verb: Verb) -> Verb:
    """The run that was made, in a folder of its own."""
    shutil.copytree(made.folder.root, verb.folder.root)
    return verb
