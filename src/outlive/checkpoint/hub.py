"""A folder as a repository of the Hugging Face hub: what is there already stays, the rest is sent, all is compared.

The hub tells a hash of each file: sha256 of large ones, git's sha1 of a blob of small ones
(https://git-scm.com/book/en/v2/Git-Internals-Git-Objects). An upload that was cut off goes on: files whose hash the
repository has are not sent again, and what the hub's own client has begun, it takes up.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from outlive.checkpoint.formats.inside import file_inside
from outlive.run.credentials import without_credentials
from outlive.run.errors import InputError, OutliveError, Resumable, WorkError
from outlive.run.files import disk_error

Others = Literal["refuse", "keep", "delete"]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_](?:[\w.-]*\w)?(?<!\.git)", re.ASCII)
_BLOCK = 1 << 20
_NAMED = 5
_TOKEN = "set HF_TOKEN in the environment to a token that may write, or log in: hf auth login"


class Hub(Protocol):
    """What is used of huggingface_hub.HfApi."""

    endpoint: str

    def repo_info(self, repo_id: str, *, revision: str | None = None) -> Any: ...
    def create_repo(self, repo_id: str, *, private: bool | None = None, exist_ok: bool = False) -> Any: ...
    def create_branch(self, repo_id: str, *, branch: str, exist_ok: bool = False) -> Any: ...
    def list_repo_tree(
        self, repo_id: str, *, recursive: bool = False, revision: str | None = None
    ) -> Iterable[Any]: ...
    def upload_folder(
        self,
        *,
        repo_id: str,
        folder_path: Path,
        revision: str | None,
        commit_message: str,
        allow_patterns: list[str],
        delete_patterns: list[str] | None,
    ) -> Any: ...


@dataclass(frozen=True)
class Uploaded:
    """`sent`: files that were sent now; `there`: that the repository had already. `commit` has them all."""

    repository: str
    commit: str
    url: str
    sent: list[str]
    there: list[str]
    deleted: list[str]


def check_name(repository: str) -> None:
    """Raise InputError for what is no repository's name."""
    if len(repository) > 96 or not _NAME.fullmatch(repository) or "--" in repository or ".." in repository:
        what = f"{repository[:100]!r} is no repository of the hub"
        raise InputError(what, where=repository[:100], fix="name it as ORG/NAME, such as acme/support-json")


def check_access() -> None:
    """Raise InputError where nothing can be sent from here: no token, or a hub that may not be asked."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise InputError("the hub can't be asked: HF_HUB_OFFLINE is set", where="HF_HUB_OFFLINE", fix="unset it")
    if get_token() is None:
        raise InputError("there is no token for the hub", where="HF_TOKEN", fix=_TOKEN)


def upload(
    folder: Path,
    repository: str,
    hub: Hub,
    *,
    private: bool = False,
    revision: str | None = None,
    others: Others = "refuse",
    say: Callable[[str], None] = lambda note: None,
) -> Uploaded:
    """Bring the files of `folder`, hidden ones left out, into a repository, which is made where there is none.

    `revision`: a branch, made where there is none. `others`: what becomes of files that the repository has beside them:
    shards of an older save are read by programs, silently. Afterwards the repository's hashes are compared with the
    files. Raises InputError where the hub or the folder says no, Resumable where the same call goes on, WorkError where
    what arrived is not what was sent.
    """
    files = _files(folder)
    before = _stats(folder, files)
    try:
        _make(hub, repository, private, revision)
        listed = _listing(hub, repository, revision)
        extra = _others(listed, files, others, repository)
        there = [name for name in files if name in listed and _is_same(folder / name, listed[name])]
        sent = [name for name in files if name not in there]
        if there and sent:
            say(f"{len(there)} of {len(files)} files are there already")
        if sent or extra:
            hub.upload_folder(
                repo_id=repository,
                folder_path=folder,
                revision=revision,
                commit_message=f"Upload {len(sent)} files",
                allow_patterns=[glob.escape(name) for name in sent],
                delete_patterns=[glob.escape(name) for name in extra] or None,
            )
        commit = str(hub.repo_info(repository, revision=revision).sha)
        arrived = _listing(hub, repository, commit)
    except OutliveError:
        raise
    except Exception as error:
        _tell(error, repository)
    _compare(folder, before, arrived, repository, commit)
    return Uploaded(repository, commit, f"{hub.endpoint}/{repository}/tree/{commit}", sent, there, extra)


def _compare(
    folder: Path, before: Mapping[str, tuple[int, int]], arrived: Mapping[str, Any], repository: str, commit: str
) -> None:
    """Raise WorkError where a file was changed meanwhile, and where the hub has another than was sent."""
    if changed := [name for name, stat in _stats(folder, list(before)).items() if stat != before[name]]:
        what = f"{changed[0]} was changed while it was uploaded"
        raise WorkError(what, where=str(folder / changed[0]), fix="upload the folder again when nothing writes into it")
    differ = [name for name in before if name not in arrived or not _is_same(folder / name, arrived[name])]
    if differ:
        what = f"what arrived is not what was sent: {_some(differ)} differ in commit {commit}"
        raise WorkError(what, where=repository, fix="run the same command again: it sends these files anew")


def _files(folder: Path) -> list[str]:
    """The names of all files below a folder but hidden ones, such as the cache that downloads leave."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if not path.is_dir()]
    names = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    if not names:
        raise InputError("there is nothing to upload", where=str(folder), fix="name a folder with a model")
    for name in names:
        file_inside(folder, name)
    return names


def _stats(folder: Path, files: list[str]) -> dict[str, tuple[int, int]]:
    try:
        found = {name: (folder / name).stat() for name in files}
    except OSError as error:
        raise disk_error(error, error.filename or folder, "read") from error
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def _make(hub: Hub, repository: str, private: bool, revision: str | None) -> None:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        found = hub.repo_info(repository)
    except RepositoryNotFoundError:
        hub.create_repo(repository, private=True if private else None, exist_ok=True)
    else:
        if private and found.private is False:
            what = "the repository is there already, and everybody can read it"
            raise InputError(what, where=repository, fix="leave --private out, or name another repository")
    if revision is not None:
        hub.create_branch(repository, branch=revision, exist_ok=True)


def _listing(hub: Hub, repository: str, revision: str | None) -> dict[str, Any]:
    entries = hub.list_repo_tree(repository, recursive=True, revision=revision)
    return {entry.path: entry for entry in entries if hasattr(entry, "blob_id")}


def _others(listed: Mapping[str, Any], files: list[str], others: Others, repository: str) -> list[str]:
    """The files of the repository that are to be deleted; texts about it stay whatever is said."""
    extra = [name for name in sorted(listed) if name not in files and not _is_about(name)]
    if others == "keep" or not extra:
        return []
    if others == "delete":
        return extra
    raise InputError(
        f"the repository has files that the folder does not have: {_some(extra)}",
        where=repository,
        fix="programs may read them with the new ones: --others delete removes them in the same commit, --others keep "
        "leaves them; or name another repository, or a branch with --revision",
    )


def _is_about(name: str) -> bool:
    return name == ".gitattributes" or name.endswith(".md") or name.upper().startswith("LICENSE")


def _is_same(path: Path, entry: Any) -> bool:
    """Whether the hub's hash of a file is that of the local one; its size is looked at first."""
    try:
        size = path.stat().st_size
        if entry.size != size:
            return False
        if entry.lfs is not None:
            return bool(entry.lfs.sha256 == _digest(path, hashlib.sha256()))
        return bool(entry.blob_id == _digest(path, hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)))
    except OSError as error:
        raise disk_error(error, path, "read") from error


def _digest(path: Path, hashed: Any) -> str:
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
    return str(hashed.hexdigest())


def _tell(error: Exception, repository: str) -> NoReturn:
    """Raise what the hub, the network or the disk says as an error of ours."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    said = without_credentials(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
    if type(error).__name__ == "LocalTokenNotFoundError" or status == 401:
        raise InputError("the hub does not know who asks", where=repository, fix=_TOKEN) from error
    if status == 403:
        raise InputError(f"the hub does not allow it: {said}", where=repository, fix=_TOKEN) from error
    if type(error).__name__ == "OfflineModeIsEnabled":
        raise InputError("the hub can't be asked: HF_HUB_OFFLINE is set", where=repository, fix="unset it") from error
    if status is not None and 400 <= status < 500 and status not in (408, 409, 429):
        fix = "correct what it names; then the same command goes on with what is missing"
        raise WorkError(f"the hub refused the upload: {said}", where=repository, fix=fix) from error
    if isinstance(error, OSError) and error.filename and os.path.lexists(error.filename):
        raise disk_error(error, error.filename, "read") from error
    if isinstance(error, (ValueError, TypeError)):
        fix = "update it: pip install --upgrade huggingface_hub"
        raise WorkError(f"the hub's own client failed: {said}", where=repository, fix=fix) from error
    fix = "run the same command again: it sends what is not there yet"
    raise Resumable(f"the upload was cut off: {said}", where=repository, fix=fix) from error


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
