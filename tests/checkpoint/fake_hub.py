"""A hub that keeps repositories in memory: what upload asks of huggingface_hub.HfApi, with failures on demand."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

LARGE = 200  # bytes from which a file is one of LFS


def http_error(status: int, said: str = "no", kind: type[HfHubHTTPError] = HfHubHTTPError) -> HfHubHTTPError:
    """What the client raises for an answer of the hub."""
    error = kind.__new__(kind)
    Exception.__init__(error, said)
    error.response = SimpleNamespace(status_code=status, headers={})
    return error


@dataclass
class Repository:
    """branches: name → the commits in order, each the files of then."""

    private: bool
    branches: dict[str, list[dict[str, bytes]]] = field(default_factory=lambda: {"main": [{".gitattributes": b"x"}]})


class FakeHub:
    """`fail_after`: so many files are committed, then the connection is cut. `refuse`: an error for every upload.
    `damage`: a file that arrives with another last byte. `sent`: names of all files that were sent."""

    endpoint = "https://hub"

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.sent: list[str] = []
        self.fail_after: int | None = None
        self.refuse: Exception | None = None
        self.damage: str | None = None

    def repo_info(self, repo_id: str, *, revision: str | None = None) -> Any:
        if repo_id not in self.repositories:
            raise http_error(404, "there is none", RepositoryNotFoundError)
        found = self.repositories[repo_id]
        return SimpleNamespace(private=found.private, sha=f"{revision or 'main'}@{self._number(found, revision)}")

    def create_repo(self, repo_id: str, *, private: bool | None = None, exist_ok: bool = False) -> Any:
        if repo_id not in self.repositories:
            self.repositories[repo_id] = Repository(bool(private))

    def create_branch(self, repo_id: str, *, branch: str, exist_ok: bool = False) -> Any:
        branches = self.repositories[repo_id].branches
        branches.setdefault(branch, list(branches["main"]))

    def list_repo_tree(self, repo_id: str, *, recursive: bool = False, revision: str | None = None) -> Any:
        assert recursive
        for path, data in self.files(repo_id, revision).items():
            size, lfs = len(data), None
            if size >= LARGE:
                lfs = SimpleNamespace(sha256=hashlib.sha256(data).hexdigest())
            blob = hashlib.sha1(b"blob %d\0" % size + data).hexdigest()
            yield SimpleNamespace(path=path, size=size, lfs=lfs, blob_id=blob)
        yield SimpleNamespace(path="a folder")

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, revision: str | None, commit_message: str, allow_patterns: list[str],
        delete_patterns: list[str] | None,
    ) -> Any:  # fmt: skip
        if self.refuse is not None:
            raise self.refuse
        commits = self.repositories[repo_id].branches[revision or "main"]
        gone = delete_patterns or []
        files = {name: data for name, data in commits[-1].items() if not any(fnmatchcase(name, one) for one in gone)}
        for path in sorted(Path(folder_path).rglob("*")):
            name = path.relative_to(folder_path).as_posix()
            if not path.is_file() or not any(fnmatchcase(name, one) for one in allow_patterns):
                continue
            if self.fail_after == 0:
                commits.append(files)
                raise ConnectionError("the line was cut")
            self.fail_after = None if self.fail_after is None else self.fail_after - 1
            data = path.read_bytes()
            files[name] = data[:-1] + b"?" if name == self.damage else data
            self.sent.append(name)
        commits.append(files)

    def files(self, repo_id: str, revision: str | None = None) -> dict[str, bytes]:
        """The files of a branch's last commit, or of a commit."""
        branch, _, number = (revision or "main").partition("@")
        commits = self.repositories[repo_id].branches[branch]
        return commits[int(number)] if number else commits[-1]

    def _number(self, found: Repository, revision: str | None) -> int:
        return len(found.branches[(revision or "main").partition("@")[0]]) - 1
