"""Data sets of the Hugging Face hub: which of their files hold a split, and copies of these in the hub's own cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from outlive.data.natural import in_order
from outlive.run.credentials import without_credentials
from outlive.run.errors import InputError, nearest

SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}  # fmt: skip
README = "README.md"


def hub_files(
    name: str,
    split: str | None,
    revision: str | None,
    subset: str | None,
    is_rows: Callable[[str], bool],
    say: Callable[[str], None],
) -> tuple[list[Path], str]:
    """The files of a split (null: train) on this machine, and the commit that they are of.

    What is in the hub's cache is not fetched again; without a network the cache alone is asked. Raises InputError.
    """
    from huggingface_hub import hf_hub_download

    names, commit = _listing(name, revision, say)
    try:
        readme = None
        if README in names:
            readme = Path(hf_hub_download(name, README, repo_type="dataset", revision=commit)).read_text("utf-8")
        chosen = split_files(names, readme, split or "train", subset, is_rows, name)
        found = [Path(hf_hub_download(name, file, repo_type="dataset", revision=commit)) for file in chosen]
    except InputError:
        raise
    except Exception as error:
        raise _not_there(name, revision, error) from error
    return found, commit


def _listing(name: str, revision: str | None, say: Callable[[str], None]) -> tuple[list[str], str]:
    """The names of a data set's files and its commit: from the hub, or where that can't be asked from the cache."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        about = HfApi().dataset_info(name, revision=revision)
        return [file.rfilename for file in about.siblings or []], str(about.sha)
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise _not_there(name, revision, error) from error
    except Exception as unreachable:  # offline, no network, a proxy …
        try:
            folder = Path(snapshot_download(name, repo_type="dataset", revision=revision, local_files_only=True))
        except Exception:
            raise _not_there(name, revision, unreachable) from unreachable
        say(f"hub: {name}: the hub can't be asked ({type(unreachable).__name__}): its cache is read, at {folder.name}")
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return files, folder.name


def split_files(
    names: Sequence[str], readme: str | None, split: str, subset: str | None, is_rows: Callable[[str], bool], name: str
) -> list[str]:
    """Which files hold a split, in their order: those that the README's `configs` name; else by what the files and
    folders are called (train-00000-of-00002.parquet, train.jsonl, data/train/0.json); else all are train.

    Raises InputError where there is no such split or subset.
    """
    rows = in_order(file for file in names if is_rows(file))
    listed = _configured(readme, subset, name)
    if listed is not None:
        found = {key: [f for f in rows if any(_fits(f, p) for p in patterns)] for key, patterns in listed.items()}
    else:
        inside = [file for file in rows if subset is None or file.startswith(f"{subset}/")]
        found = {key: [file for file in inside if is_of(file, words)] for key, words in SPLITS.items()}
        if not any(found.values()):
            found = {"train": inside}
    found = {key: files for key, files in found.items() if files}
    if not rows or not found:
        scripts = [file for file in names if file.endswith(".py")]
        what = "the data set holds no file of rows" + (f", only a loading script ({scripts[0]})" if scripts else "")
        raise InputError(what, where=name, fix="take one with JSON Lines or Parquet files; scripts are never run")
    if split not in found:
        near = nearest(split, list(found)) or next(iter(found))
        what = f"there is no split {split!r}, only {', '.join(found)}"
        raise InputError(what, where=name, nearest=near, fix=f"set split: {near}")
    return found[split]


def _configured(readme: str | None, subset: str | None, name: str) -> dict[str, list[str]] | None:
    """Split → patterns of file names, as the README's `configs` say for a subset; None where they say nothing."""
    about = _front_matter(readme or "")
    listed = about.get("configs")
    configs = (
        [one for one in listed if isinstance(one, Mapping) and one.get("data_files")]
        if isinstance(listed, list)
        else []
    )
    if not configs:
        return None
    by_name = {str(one.get("config_name", "default")): one for one in configs}
    if subset is not None and subset not in by_name:
        near = nearest(subset, list(by_name))
        what = f"there is no subset {subset!r}, only {', '.join(by_name)}"
        raise InputError(what, where=name, nearest=near, fix=f"set subset: {near or next(iter(by_name))}")
    preferred = [key for key, one in by_name.items() if one.get("default")] or [
        key for key in by_name if key == "default"
    ]
    if subset is None and not preferred and len(by_name) > 1:
        what = f"the data set has several subsets: {', '.join(by_name)}"
        raise InputError(what, where=name, fix=f"name one: subset: {next(iter(by_name))}")
    chosen = by_name[subset or (preferred or list(by_name))[0]]
    return _patterns(chosen["data_files"])


def _patterns(files: Any) -> dict[str, list[str]]:
    if isinstance(files, str):
        return {"train": [files]}
    if isinstance(files, Mapping):
        return {str(split): [paths] if isinstance(paths, str) else list(paths) for split, paths in files.items()}
    found: dict[str, list[str]] = {}
    for item in files:
        entry = item if isinstance(item, Mapping) else {"split": "train", "path": item}
        paths = entry.get("path") or []
        found.setdefault(str(entry.get("split", "train")), []).extend([paths] if isinstance(paths, str) else paths)
    return found


def _fits(file: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./")
    return fnmatch(file, pattern) or fnmatch(file, f"{pattern.rstrip('/')}/*")


def is_of(file: str, words: Sequence[str]) -> bool:
    """Whether a file's name, or that of a folder on its path, has one of the words in it."""
    return re.search(rf"(^|[/._\- ])({'|'.join(words)})([/._\- 0-9]|$)", file, re.IGNORECASE) is not None


def _front_matter(readme: str) -> dict[str, Any]:
    """The YAML between the two lines of dashes at the beginning of a README; empty where there is none."""
    found = re.match(r"\ufeff?---\s*\n(.*?)\n---\s*(\n|$)", readme, re.DOTALL)
    try:
        value = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def _not_there(name: str, revision: str | None, error: Exception) -> InputError:
    kind = type(error).__name__
    what = {
        "RepositoryNotFoundError": "there is no such data set on the hub, or it is private",
        "GatedRepoError": "the data set asks for consent before it can be fetched",
        "RevisionNotFoundError": f"the data set has no revision {revision!r}",
        "OfflineModeIsEnabled": "the data set is not in the hub's cache, and HF_HUB_OFFLINE is set",
    }.get(kind)
    fix = {
        "RepositoryNotFoundError": "check the name; for a private one set HF_TOKEN in the environment",
        "GatedRepoError": "ask for access on its page, and set HF_TOKEN in the environment",
        "RevisionNotFoundError": "name a branch, a tag or a commit that it has",
    }.get(kind, "fetch it where there is a network, or name files with path")
    said = without_credentials(str(error).strip().splitlines()[0] if str(error).strip() else kind)
    return InputError(what or f"the data set can't be fetched: {said}", where=f"hub: {name}", fix=fix)
