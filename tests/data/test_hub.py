"""Promise: a hub data set's split is the files that the hub itself would read for it, from the cache if need be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from outlive.data.hub import split_files
from outlive.data.sources import is_rows, resolve
from outlive.run.config import Source
from outlive.run.errors import InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def chosen(files: list[str], split: str = "train", readme: str | None = None, subset: str | None = None) -> list[str]:
    return split_files(files, readme, split, subset, is_rows, "org/set")


@pytest.mark.parametrize(
    ("files", "split", "expected"),
    [
        (["train.jsonl", "test.jsonl"], "train", ["train.jsonl"]),
        (["train.jsonl", "test.jsonl"], "test", ["test.jsonl"]),
        (["data/train-00002-of-00011.parquet", "data/train-00010-of-00011.parquet", "data/test-0.parquet"], "train",
         ["data/train-00002-of-00011.parquet", "data/train-00010-of-00011.parquet"]),
        (["data/train/a.json", "data/dev/b.json"], "validation", ["data/dev/b.json"]),
        (["my-train-set.csv", "my_valid.csv"], "validation", ["my_valid.csv"]),
        (["chats.jsonl"], "train", ["chats.jsonl"]),
        (["trainer_notes.jsonl", "README.md"], "train", ["trainer_notes.jsonl"]),  # no split's name: all are train
    ],
)  # fmt: skip
def test_by_the_names_of_files(files: list[str], split: str, expected: list[str]) -> None:
    assert chosen(files, split) == expected


CONFIGS = """---
license: mit
configs:
- config_name: en
  default: true
  data_files:
  - split: train
    path: "en/part-*.jsonl"
  - split: heldout
    path: [en/x.jsonl, en/y.jsonl]
- config_name: de
  data_files: de/all.jsonl
---
# The data set
"""
FILES = ["README.md", "de/all.jsonl", "en/part-10.jsonl", "en/part-9.jsonl", "en/x.jsonl", "en/y.jsonl"]


def test_by_the_readme() -> None:
    assert chosen(FILES, "train", CONFIGS) == ["en/part-9.jsonl", "en/part-10.jsonl"]
    assert chosen(FILES, "heldout", CONFIGS) == ["en/x.jsonl", "en/y.jsonl"]
    assert chosen(FILES, "train", CONFIGS, "de") == ["de/all.jsonl"]


@pytest.mark.parametrize(
    ("files", "split", "readme", "subset", "said", "fix"),
    [
        (FILES, "tset", None, None, "only train", "split: train"),
        (["train.jsonl", "test.jsonl"], "tets", None, None, "only train, test", "split: test"),
        (FILES, "test", CONFIGS, None, "only train, heldout", "split: "),
        (FILES, "train", CONFIGS, "fr", "only en, de", "subset: "),
        (FILES, "train", CONFIGS.replace("  default: true\n", ""), None, "several subsets: en, de", "subset: en"),
        (["set.py", "README.md"], "train", None, None, "only a loading script (set.py)", "never run"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    files: list[str], split: str, readme: str | None, subset: str | None, said: str, fix: str
) -> None:
    with pytest.raises(InputError) as caught:
        chosen(files, split, readme, subset)
    assert said in caught.value.what
    assert fix in str(caught.value.fix)


@pytest.mark.parametrize(
    "readme", ["", "# no front matter", "---\n[: broken\n---\n", "---\n- a list\n---\n", "---\nconfigs: 3\n---"]
)
def test_a_readme_that_says_nothing_is_no_hindrance(readme: str) -> None:
    assert chosen(["train.jsonl"], "train", readme) == ["train.jsonl"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache as it lies on a disk, with one data set; no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    root = tmp_path / "hub" / "datasets--org--set"
    snapshot = root / "snapshots" / COMMIT
    for name, text in (("README.md", "# hi"), ("train.jsonl", '{"text": "a"}\n'), ("test.jsonl", '{"text": "b"}\n')):
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_text(text)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)
    return tmp_path


def test_without_a_network_the_cache_is_read(cache: Path) -> None:
    said: list[str] = []
    found = resolve(Source(hub="org/set", split="test"), said.append)
    assert COMMIT in said[0]  # the newest commit may be another
    assert [path.read_text() for path in found.files] == ['{"text": "b"}\n']
    assert found.about == {"revision": COMMIT}
    assert resolve(Source(hub="org/set", revision=COMMIT), lambda note: None).files[0].name == "train.jsonl"


def test_what_is_not_in_the_cache_is_said(cache: Path) -> None:
    with pytest.raises(InputError, match="not in the hub's cache") as caught:
        resolve(Source(hub="org/other"), lambda note: None)
    assert "hub: org/other" in str(caught.value.where)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("RepositoryNotFoundError", "no such data set"),
        ("GatedRepoError", "asks for consent"),
        ("RevisionNotFoundError", "no revision"),
    ],
)
def test_what_the_hub_refuses_has_a_fix_and_no_token_in_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    from huggingface_hub import HfApi, errors

    monkeypatch.setenv("HF_TOKEN", "hf_" + "s" * 34)

    def refuse(self: Any, name: str, revision: str | None = None) -> None:
        error = getattr(errors, kind).__new__(getattr(errors, kind))
        Exception.__init__(error, f"401 for token {os.environ['HF_TOKEN']}")
        raise error

    monkeypatch.setattr(HfApi, "dataset_info", refuse)
    with pytest.raises(InputError, match=said) as caught:
        resolve(Source(hub="org/set", revision="v2"), lambda note: None)
    assert caught.value.fix
    assert "hf_s" not in str(caught.value)
