"""Promise: an upload sends what is not there, goes on after it was cut off, mixes no old files with new ones in
silence, and says that it is done only when the hub's hashes are those of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoint.hub import check_name, upload
from outlive.run.errors import InputError, Resumable, WorkError
from tests.checkpoint.fake_hub import FakeHub, Repository, http_error

NAME = "acme/support"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for number in range(4):
        (folder / f"model-{number}.safetensors").write_bytes(bytes([number]) * (300 + number))
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "odd [1]*.txt").write_text("brackets are no pattern")
    (folder / ".cache" / "huggingface").mkdir(parents=True)
    (folder / ".cache" / "huggingface" / "x.lock").write_text("of a download")
    return folder


def _names(folder: Path) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith(".")}


def test_all_files_but_hidden_ones_arrive(folder: Path) -> None:
    hub = FakeHub()
    done = upload(folder, NAME, hub)
    assert set(done.sent) == set(hub.files(NAME)) - {".gitattributes"} == _names(folder)
    assert all(hub.files(NAME)[name] == (folder / name).read_bytes() for name in _names(folder))
    assert (done.commit, done.url) == ("main@1", "https://hub/acme/support/tree/main@1")
    assert not hub.repositories[NAME].private
    assert (folder / ".cache" / "huggingface" / "x.lock").exists()


@pytest.mark.parametrize("after", range(6))
def test_an_upload_that_is_cut_off_goes_on(after: int, folder: Path) -> None:
    hub = FakeHub()
    hub.fail_after = after
    with pytest.raises(Resumable, match="the line was cut") as caught:
        upload(folder, NAME, hub)
    assert caught.value.exit_code == 75
    assert "same command" in str(caught.value.fix)
    hub.fail_after, notes = None, list[str]()
    done = upload(folder, NAME, hub, say=notes.append)
    assert sorted(hub.sent) == sorted(_names(folder))  # each once, over both
    assert len(done.there) == after
    assert bool(notes) == bool(after)


def test_the_same_again_makes_no_commit(folder: Path) -> None:
    hub = FakeHub()
    first = upload(folder, NAME, hub)
    again = upload(folder, NAME, hub)
    assert (again.sent, again.commit) == ([], first.commit)
    (folder / "config.json").write_text('{"a": 1}')
    assert upload(folder, NAME, hub).sent == ["config.json"]


def test_a_file_of_the_same_size_is_told_by_its_hash(folder: Path) -> None:
    hub = FakeHub()
    upload(folder, NAME, hub)
    (folder / "model-2.safetensors").write_bytes(b"z" * 302)
    (folder / "config.json").write_text("[]")
    assert upload(folder, NAME, hub).sent == ["config.json", "model-2.safetensors"]


@pytest.mark.parametrize("name", ["config.json", "model-3.safetensors"])
def test_what_arrives_otherwise_is_found(name: str, folder: Path) -> None:
    """A small file is compared by git's hash, a large one by sha256."""
    hub = FakeHub()
    hub.damage = name
    with pytest.raises(WorkError, match=name):
        upload(folder, NAME, hub)
    hub.damage = None
    assert upload(folder, NAME, hub).sent == [name]


def _with_old(folder: Path) -> FakeHub:
    hub = FakeHub()
    hub.repositories[NAME] = Repository(private=False)
    hub.repositories[NAME].branches["main"].append(
        {".gitattributes": b"x", "README.md": b"about", "model.safetensors.index.json": b"old", "LICENSE": b"mine"}
    )
    return hub


def test_files_of_an_older_save_are_not_mixed_with_the_new_in_silence(folder: Path) -> None:
    hub = _with_old(folder)
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json") as caught:
        upload(folder, NAME, hub)
    assert "--others delete" in str(caught.value.fix)
    assert hub.sent == []
    assert upload(folder, NAME, hub, others="keep").deleted == []
    assert "model.safetensors.index.json" in hub.files(NAME)
    assert upload(folder, NAME, hub, others="delete").deleted == ["model.safetensors.index.json"]
    assert set(hub.files(NAME)) == _names(folder) | {".gitattributes", "README.md", "LICENSE"}


def test_a_branch(folder: Path) -> None:
    hub = FakeHub()
    done = upload(folder, NAME, hub, revision="v2")
    assert done.commit.startswith("v2@")
    assert set(hub.files(NAME, "v2")) > _names(folder)
    assert set(hub.files(NAME)) == {".gitattributes"}


def test_private_is_never_public(folder: Path) -> None:
    hub = FakeHub()
    upload(folder, NAME, hub, private=True)
    assert hub.repositories[NAME].private
    with pytest.raises(InputError, match="everybody can read it"):
        upload(folder, NAME, _with_old(folder), private=True)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (http_error(401), InputError, "HF_TOKEN"),
        (http_error(403, "you may not"), InputError, "you may not"),
        (http_error(413, "too large"), WorkError, "too large"),
        (http_error(429, "slowly"), Resumable, "slowly"),
        (http_error(503, "later"), Resumable, "later"),
        (ValueError("a name"), WorkError, "client failed: a name"),
        (TimeoutError("no answer"), Resumable, "no answer"),
        (RuntimeError("hf_" + "a" * 30), Resumable, "cut off"),
    ],
)
def test_what_the_hub_says_is_an_error_of_ours(error: Exception, kind: Any, said: str, folder: Path) -> None:
    hub = FakeHub()
    hub.refuse = error
    with pytest.raises(kind) as caught:
        upload(folder, NAME, hub)
    assert said in str(caught.value)
    assert caught.value.fix
    assert "aaaa" not in str(caught.value)


def test_links_that_lead_out_are_not_uploaded(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (folder / "model.txt").symlink_to(tmp_path / "secret")
    hub = FakeHub()
    with pytest.raises(InputError, match="leads out"):
        upload(folder, NAME, hub)
    assert hub.repositories == {}


def test_a_file_that_changes_on_the_way(folder: Path) -> None:
    class Changing(FakeHub):
        def create_branch(self, repo_id: str, **rest: Any) -> None:
            (folder / "config.json").write_text('{"changed": 1}')
            super().create_branch(repo_id, **rest)

    with pytest.raises(WorkError, match=r"config\.json was changed"):
        upload(folder, NAME, Changing(), revision="v1")


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to upload"):
        upload(tmp_path, NAME, FakeHub())


@pytest.mark.parametrize(
    "name", ["model", "a/b/c", "", "/b", "a/", "a/..", "a b/c", "https://hf.co/a/b", "a/b.git", "a/b--c"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InputError, match="no repository"):
        check_name(name)


@pytest.mark.parametrize("name", [NAME, "HuggingFaceTB/SmolLM2-135M-Instruct", "a/b", "a/b.c_d"])
def test_names(name: str) -> None:
    check_name(name)
