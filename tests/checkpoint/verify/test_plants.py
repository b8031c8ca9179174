"""Promise: each fault that others accept in silence is named, in every format in which it can occur."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.formats.gguf import open_gguf
from outlive.checkpoint.formats.gguf_write import write_gguf
from outlive.checkpoint.verify.consequences import KINDS
from outlive.checkpoint.verify.consequences import table as programs_table
from outlive.checkpoint.verify.path import verify_path
from outlive.checkpoint.verify.programs import FACTS, FORMS, SOURCES, TRIED
from outlive.cli.main import app
from outlive.run.errors import InputError
from tests.checkpoint.verify.plants import FAULTS, Fault, table
from tests.checkpoint.verify.small import FORMATS, adapter, gguf, huggingface
from tests.checkpoint.verify.test_verify import SINGLE_FAULTS
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


def pickled_adapter(folder: Path) -> Path:
    """An adapter as old versions of PEFT wrote it."""
    torch = pytest.importorskip("torch")
    path = adapter(folder) / "adapter_model.safetensors"
    torch.save({name: torch.from_numpy(one) for name, one in load_file(path).items()}, folder / "adapter_model.bin")
    path.unlink()
    return folder


def made(fault: Fault, folder: Path) -> Path:
    if fault.format in SAMPLES:
        return sample(fault.format, folder)
    if fault.format == "bins":
        pytest.importorskip("torch")
    if fault.format == "adapter .bin":
        return pickled_adapter(folder)
    return parts(folder) if fault.format == "gguf of 2 parts" else FORMATS[fault.format](folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return huggingface(tmp_path_factory.mktemp("base") / "base")


def _in_words(fault: Fault) -> str:
    return f"{fault.format}: {fault.name}"


@pytest.mark.parametrize("fault", FAULTS, ids=_in_words)
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


def test_the_page_says_what_programs_do_and_how_that_is_known() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verify.md").read_text(encoding="utf-8")
    assert "\n".join(programs_table()) in page
    for fact in FACTS:
        assert set(fact.kinds) <= KINDS
        assert fact.form in FORMS
        assert SOURCES[fact.source]


def test_programs_are_told_apart_by_the_form(tmp_path: Path) -> None:
    shutil.rmtree(gguf(tmp_path / "gguf").with_name("of"))
    path = tmp_path / "gguf" / "model.gguf"
    path.write_bytes(path.read_bytes()[:-5000])
    done = CliRunner().invoke(app, ["verify", str(path), "--json"])
    about = json.loads(done.stdout)
    assert (done.exit_code, list(about["programs"])) == (1, ["llama.cpp"])
    folder = adapter(tmp_path / "adapter")
    done = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["whole"]) == (0, True)


def test_a_pickled_adapter_is_read_and_warned_of(tmp_path: Path, base: Path) -> None:
    found = verify_path(pickled_adapter(tmp_path / "adapter"), base)
    assert "pickled_adapter" in {one.id for one in found}
    wrong = {one.id for one in found if one.level == "error"}
    assert wrong == {"missing_file"}  # of the manifest, which was written of the other file


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for path in (tmp_path / "nowhere", tmp_path / "a.txt"):
        with pytest.raises(InputError):
            verify_path(path)


def test_a_file_alone_is_looked_at(tmp_path: Path) -> None:
    folder = gguf(tmp_path / "gguf")
    assert [one.id for one in verify_path(folder / "model.gguf") if one.level != "note"] == []
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.ones(3, 5), "step": 3}, tmp_path / "state.pt")
    assert [one.id for one in verify_path(tmp_path / "state.pt")] == ["no_manifest"]


_TRIED = [one for one in FAULTS if one.format in {"huggingface", "sharded", "bins"}]


@pytest.mark.parametrize("fault", _TRIED, ids=_in_words)
def test_transformers_does_what_is_said(fault: Fault, tmp_path: Path) -> None:
    """Only what was tried is said of it, and it is tried again here."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    folder = made(fault, tmp_path / "checkpoint")
    fault.make(folder)
    said = [one.does for one in FACTS if one.form == "folder" and fault.kind in one.kinds and one.source == TRIED]
    assert said
    try:
        _, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    except Exception:
        assert said[0].startswith("stops")
    else:
        assert not said[0].startswith("stops")
        assert bool(report["missing_keys"]) == ("draws what is missing at random" in said[0])


def test_transformers_refuses_chats_without_a_template(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = FORMATS["huggingface"](tmp_path / "checkpoint")
    chat = [{"role": "user", "content": "Hello"}]
    assert transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(chat)
    SINGLE_FAULTS["no template"][0](folder)
    with pytest.raises(ValueError, match="chat_template"):
        transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(chat)
