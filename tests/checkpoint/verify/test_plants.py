"""Promise: each fault that others accept in silence is named, in every format in which it can occur."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.formats.gguf import open_gguf
from outlive.checkpoint.formats.gguf_write import write_gguf
from outlive.checkpoint.verify.consequences import KINDS
from outlive.checkpoint.verify.path import verify_path
from tests.checkpoint.verify.plants import FAULTS, Fault, table
from tests.checkpoint.verify.small import FORMATS, gguf, huggingface
from tests.fixtures import cases

SAMPLES = {"dcp of 2 ranks": "dcp_fsdp2"}


def parts(folder: Path) -> Path:
    """A GGUF file in two parts."""
    whole = open_gguf(gguf(folder.with_name("whole")))
    names = sorted(whole.tensors)
    for number in range(2):
        numbers = {"split.no": number, "split.count": 2, "split.tensors.count": len(names)}
        kv = {"general.architecture": "llama", **numbers}
        with building_checkpoint(folder.with_name(f"part{number}"), {}) as building:
            write_gguf(building, "m.gguf", {name: whole.tensors[name] for name in names[number::2]}, kv)
        folder.mkdir(exist_ok=True)
        name = f"m-0000{number + 1}-of-00002.gguf"
        (folder.with_name(f"part{number}") / "m.gguf").rename(folder / name)
    return folder


def sample(name: str, folder: Path) -> Path:
    """A checkpoint that torch wrote on two ranks."""
    source = cases() / "checkpoints" / SAMPLES[name]
    if not source.is_dir():
        pytest.skip("the samples are missing")
    return Path(shutil.copytree(source, folder))


def made(fault: Fault, folder: Path) -> Path:
    if fault.format in SAMPLES:
        return sample(fault.format, folder)
    if fault.format == "bins":
        pytest.importorskip("torch")
    return parts(folder) if fault.format == "gguf of 2 parts" else FORMATS[fault.format](folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return huggingface(tmp_path_factory.mktemp("base") / "base")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.format}: {fault.name}")
def test_each_is_named(fault: Fault, tmp_path: Path, base: Path) -> None:
    folder = made(fault, tmp_path / "checkpoint")
    before = verify_path(folder, base if fault.format == "adapter" else None)
    assert fault.kind not in {one.id for one in before}
    fault.make(folder)
    found = verify_path(folder, base if fault.format == "adapter" else None)
    assert fault.kind in {one.id for one in found}
    assert all(one.id in KINDS and one.fix and one.where for one in found)


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_one_has_no_error_and_no_warning(name: str, tmp_path: Path, base: Path) -> None:
    if name == "bins":
        pytest.importorskip("torch")
    folder = FORMATS[name](tmp_path / "checkpoint")
    assert [one for one in verify_path(folder, base if name == "adapter" else None) if one.level != "note"] == []


def test_the_page_has_the_list() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verify.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in page
