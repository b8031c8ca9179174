"""Promise: of a folder or a pattern nothing is passed over in silence: each real file is read once, what is left out is
named, what can't be listed is an error, and what holds several splits is no one source."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from outlive.data.sources import resolve_path
from outlive.run.errors import InputError
from tests.data.test_sources import names, write


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """d/sub can't be listed, as where its mode says so and the user is not root."""
    scandir = os.scandir

    def scan(path: str) -> Any:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)


@pytest.mark.parametrize("path", ["d", "d/**/*.jsonl", "d/*/*.jsonl", "d/sub"])
def test_a_folder_that_cannot_be_listed_is_an_error(path: str, closed: None) -> None:
    write("d/a.jsonl")
    write("d/sub/b.jsonl")
    with pytest.raises(InputError, match=r"d/sub.*denied|denied") as error:
        names(path)
    assert "d/sub" in str(error.value)


@pytest.mark.parametrize("path", ["d", "d/p-*.jsonl", "d/**/*.jsonl", "d/**"])
def test_a_link_to_nothing_is_an_error(path: str) -> None:
    write("d/p-1.jsonl")
    os.symlink("nowhere.jsonl", "d/p-2.jsonl")
    with pytest.raises(InputError, match="points to nothing"):
        names(path)
    os.remove("d/p-2.jsonl")
    os.symlink("p-2.jsonl", "d/p-2.jsonl")  # to itself
    with pytest.raises(InputError, match=r"can't be read"):
        names(path)


@pytest.mark.parametrize("path", ["d", "d/**/*.jsonl"])
def test_a_linked_folder_is_followed_once_whichever_way_it_is_named(path: str) -> None:
    write("d/one/a.jsonl")
    write("other/b.jsonl")
    os.symlink("../other", "d/two")
    assert names(path) == ["d/one/a.jsonl", "d/two/b.jsonl"]
    os.symlink("../other", "d/zwo")
    os.symlink(".", "d/loop")
    os.symlink("../d", "other/back")
    said: list[str] = []
    assert names(path, said) == ["d/one/a.jsonl", "d/two/b.jsonl"]
    (note,) = said
    assert "3 linked folders lead to what is read already" in note
    for name in ("d/zwo", "d/loop", "d/two/back"):
        assert name in note


@pytest.mark.parametrize("path", ["d", "d/*.jsonl", "d/**"])
def test_each_real_file_is_read_once(path: str) -> None:
    write("d/b.jsonl")
    os.symlink("b.jsonl", "d/a.jsonl")
    os.symlink("b.jsonl", "d/c.jsonl")
    said: list[str] = []
    assert names(path, said) == ["d/b.jsonl"]
    assert "read already under another name: d/a.jsonl, d/c.jsonl" in said[0]
    write("e/elsewhere")
    os.symlink("elsewhere", "e/a.jsonl")
    assert names("e/*.jsonl") == ["e/a.jsonl"]  # a link alone has its own name


@pytest.mark.parametrize("path", ["d", "d/*.jsonl"])
def test_what_is_no_plain_file_is_named(path: str) -> None:
    write("d/a.jsonl")
    os.mkfifo("d/b.jsonl")
    said: list[str] = []
    assert names(path, said) == ["d/a.jsonl"]
    assert "d/b.jsonl" in said[0]


def test_a_folder_that_fits_a_pattern_is_named_unless_its_files_fit_too() -> None:
    write("d/a.jsonl")
    write("d/x.jsonl/b.jsonl")
    said: list[str] = []
    assert names("d/*.jsonl", said) == ["d/a.jsonl"]
    assert "d/x.jsonl" in said[0]
    assert names("d/**/*.jsonl", said[:0]) == ["d/a.jsonl", "d/x.jsonl/b.jsonl"]
    with pytest.raises(InputError, match=r"only what is no plain file: d/x\.jsonl"):
        names("d/x*")


def test_patterns_are_those_of_the_shell() -> None:
    for name in ("d/a1.jsonl", "d/a2.jsonl", "d/.hidden.jsonl", "d/.h/a.jsonl", "d/e/a3.jsonl", "d/[1].jsonl"):
        write(name)
    assert names("d/a[12].jsonl") == ["d/a1.jsonl", "d/a2.jsonl"]
    assert names("d/a?.jsonl") == ["d/a1.jsonl", "d/a2.jsonl"]
    assert names("d/.*.jsonl") == ["d/.hidden.jsonl"]
    assert names("./d/[[]*.jsonl") == ["d/[1].jsonl"]
    assert names("**/a*.jsonl") == ["d/a1.jsonl", "d/a2.jsonl", "d/e/a3.jsonl"]
    assert names("d/**/a3.jsonl") == ["d/e/a3.jsonl"]
    assert names(f"{os.getcwd()}/*/a1.jsonl") == [f"{os.getcwd()}/d/a1.jsonl"]
    assert names("d/*/../a1*") == ["d/e/../a1.jsonl"]


def _saved(folder: str, splits: list[str]) -> None:
    """As `datasets` saves a data set of several splits."""
    write(f"{folder}/dataset_dict.json", json.dumps({"splits": splits}))
    for split in splits:
        write(f"{folder}/{split}/data-00000-of-00001.jsonl")
        write(f"{folder}/{split}/dataset_info.json", "{}")


@pytest.mark.parametrize("path", ["d", "."])
def test_a_saved_data_set_of_several_splits_is_no_one_source(path: str) -> None:
    _saved("d", ["train", "extra"])
    with pytest.raises(InputError, match=r"several splits.*train, extra") as error:
        names(path)
    assert "d/train" in str(error.value)
    assert names("d/extra") == ["d/extra/data-00000-of-00001.jsonl"]
    _saved("one", ["train"])
    assert names("one") == ["one/train/data-00000-of-00001.jsonl"]


def test_what_datasets_keeps_beside_its_rows_is_not_read() -> None:
    from tests.data.test_rows_forms import FORMS

    Path("d").mkdir()
    for name in ("data-00000-of-00001.arrow", "cache-1234.arrow"):
        FORMS["Arrow stream"](Path("d") / name)
    write("d/state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    said: list[str] = []
    assert names("d", said) == ["d/data-00000-of-00001.arrow"]
    assert "cache-1234.arrow" in said[0]


def _exported(form: str, sides: list[str]) -> None:
    write(
        f"{form}/manifest.json",
        json.dumps({"export_version": 1, "format": form, "sides": {side: {} for side in sides}}),
    )
    for side in sides:
        write(f"{form}/{side}/data.jsonl" if form == "hf" else f"{form}/{side}.{form}")


@pytest.mark.parametrize(("form", "fix"), [("hf", "hf/train"), ("jsonl", "jsonl/train.jsonl")])
def test_an_export_of_both_sides_is_no_one_source(form: str, fix: str) -> None:
    _exported(form, ["train", "validation"])
    with pytest.raises(InputError, match=r"several splits.*train, validation") as error:
        names(form)
    assert f"such as {fix};" in str(error.value)
    assert names(fix)


def test_an_export_of_one_side_is_read_without_its_manifest() -> None:
    _exported("jsonl", ["train"])
    said: list[str] = []
    assert names("jsonl", said) == ["jsonl/train.jsonl"]
    assert "manifest.json" in said[0]
    _exported("megatron", ["train"])
    write("megatron/train.json", "{}")
    with pytest.raises(InputError, match="for Megatron"):
        names("megatron")


def test_files_that_are_named_by_splits_are_no_one_source() -> None:
    for name in (
        "data/train-00000-of-00002.jsonl",
        "data/train-00001-of-00002.jsonl",
        "data/test-00000-of-00001.jsonl",
    ):
        write(f"d/{name}")
    with pytest.raises(InputError, match=r"several splits.*train") as error:
        names("d")
    assert "test" in str(error.value)
    assert len(names("d/data/train*")) == 2
    assert len(names("d/data/*")) == 3  # a pattern says which files are meant
    write("d/more.jsonl")
    assert len(names("d")) == 4  # not all of them are named by a split


def test_files_of_a_folder_keep_their_identity_however_they_are_named() -> None:
    write("d/a.jsonl")
    write("d/b.jsonl")
    found = {
        resolve_path(path, lambda note: None).identity for path in ("d", "./d", "d/*", "d/**", os.path.abspath("d"))
    }
    assert len(found) == 1
