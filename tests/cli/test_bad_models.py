"""Promise: a model that can't be trained is named in one message before anything is made, and why, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.bad import refused

pytest.importorskip("torch", reason="training needs torch")

from safetensors.torch import load_file, save_file

from tests.engines.test_loop import tiny_folder
from tests.tiny import CONFIGS

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("good") / "model", "llama")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good: Path, rows: Path) -> Path:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(good, tmp_path / "model")
    return tmp_path


def train(*settings: str, model: str = "model") -> list[str]:
    given = ["data.sequence_length=128", "batch.tokens=512", "stop.steps=1", "name=one", *settings]
    return ["train", "--model", model, "--data", "rows.jsonl", *given]


def _config(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | values
        (folder / "config.json").write_text(json.dumps(config))

    return change


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(text)


def _cut(name: str, size: int) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def _shards(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Split the weights in two files with an index, and then change something."""

    def split(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        names = sorted(weights)
        parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, inside in parts.items():
            save_file({name: weights[name] for name in inside}, folder / file, metadata={"format": "pt"})
        (folder / WEIGHTS).unlink()
        places = {name: file for file, inside in parts.items() for name in inside}
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
        change(folder)

    return split


FOLDERS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "no config": (_remove("config.json"), ["no config.json"]),
    "an adapter": (
        lambda folder: (folder / "config.json").rename(folder / "adapter_config.json"), ["an adapter, not a model"],
    ),
    "a config that is no JSON": (_write("config.json", '{"a": "b",\n "a" 1}'), ["config.json:2:6", "no JSON"]),
    "a config that is a list": (_write("config.json", "[1]"), ["no model_type"]),
    "an unknown model_type": (_config(model_type="lama"), ["model_type `lama`", "did you mean llama?", "upgrade"]),
    "a model of another kind": (_config(model_type="vit"), ["vit is no causal language model"]),
    "code that comes along": (
        _config(model_type="mine", auto_map={"AutoModelForCausalLM": "a.B"}), ["trust_remote_code: true"],
    ),
    "a wrong value": (_config(num_attention_heads="x"), ["num_attention_heads", "config.json"]),
    "other shapes": (_config(intermediate_size=40), ["mlp.down_proj", "[32, 48]", "[32, 40]"]),
    "too few layers": (_config(num_hidden_layers=3), ["tensors are missing", "model.layers.2"]),
    "no tokenizer": (_remove("tokenizer.json"), ["no tokenizer.json"]),
    "a damaged tokenizer": (_write("tokenizer.json", "{"), ["tokenizer.json"]),
    "no weights": (_remove(WEIGHTS), ["no weights", "model.safetensors"]),
    "weights without an index": (
        lambda folder: (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors"), ["no index"],
    ),
    "a pointer of LFS": (_write(WEIGHTS, "version https://git-lfs.github.com/spec/v1\n"), ["git lfs pull"]),
    "weights cut off": (_cut(WEIGHTS, 5000), ["cut off", "5,000 bytes"]),
    "weights cut off in the header": (_cut(WEIGHTS, 50), ["damaged", "50 bytes"]),
    "empty weights": (_cut(WEIGHTS, 0), ["damaged", "0 bytes"]),
    "a missing shard": (
        _shards(_remove("model-00002-of-00002.safetensors")), ["1 of 2", "model-00002-of-00002.safetensors", INDEX],
    ),
    "a shard cut off": (_shards(_cut("model-00002-of-00002.safetensors", 9000)), ["cut off", "9,000 bytes", "00002"]),
    "a damaged index": (_shards(_write(INDEX, "[]")), ["the index", INDEX]),
    "a shard that links to nothing": (
        _shards(
            lambda folder: (
                (folder / "model-00001-of-00002.safetensors").unlink(),
                (folder / "model-00001-of-00002.safetensors").symlink_to("gone"),
            )
        ),
        ["1 of 2", "model-00001"],
    ),
    "fewer places than the sequence": (
        _config(max_position_embeddings=64), ["data.sequence_length is 128", "up to 64", "data.sequence_length=64"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS)
def test_a_model_folder_that_is_wrong(here: Path, case: str) -> None:
    change, said = FOLDERS[case]
    change(here / "model")
    message = refused(train(), *said)
    assert message.count("error: ") == 1
    if case not in ("other shapes", "too few layers"):  # what is seen only with the model built
        assert not (here / "home" / "stores").exists()


FRESH = {**CONFIGS["llama"], "vocab_size": 512}
FRESH_MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no model_type": ({"hidden_size": 8}, ["no model_type", "model.init.config.model_type"]),
    "an unknown model_type": (
        {**FRESH, "model_type": "qwen33"},
        ["`qwen33`", "model.init.config", "did you mean qwen3"],
    ),
    "a wrong value": ({**FRESH, "num_attention_heads": 5}, ["model.init.config"]),
    "too few places": ({**FRESH, "max_position_embeddings": 32}, ["up to 32", "model.init.config"]),
}


@pytest.mark.parametrize("case", FRESH_MODELS)
def test_a_fresh_model_that_is_wrong(here: Path, case: str) -> None:
    config, said = FRESH_MODELS[case]
    run = {
        "model": {"init": {"config": config, "tokenizer": "model"}},
        "data": {"train": [{"path": "rows.jsonl"}], "sequence_length": 128},
        "batch": {"tokens": 512},
    }
    (here / "run.yaml").write_text(json.dumps(run))
    refused(["train", "run.yaml"], *said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nosuch", ["there is no such model", "./nosuch"]),
        ("modle", ["there is no such model", "did you mean model?"]),
        ("a/b/c", ["there is no such model", "hub id (org/name)"]),
        ("nosuch/model", ["is not in the hub's cache", "unset HF_HUB_OFFLINE"]),
        ("elsewhere/modle", ["there is no folder elsewhere/modle", "did you mean elsewhere/model?"]),
        ("rows.jsonl", ["this file is no model"]),
        ("model/config.json", ["this file is no model", "name its folder: model"]),
        ("rows.gguf", ["rows.gguf"]),
    ],
)
def test_a_model_that_is_not_there(here: Path, name: str, said: list[str]) -> None:
    (here / "elsewhere" / "model").mkdir(parents=True)
    refused(train(model=name), *said)


def _response(status: int) -> Any:
    from types import SimpleNamespace

    request = SimpleNamespace(url="https://huggingface.co/api/models/org/name", method="GET")
    return SimpleNamespace(status_code=status, headers={}, request=request, url=request.url)


@pytest.mark.parametrize("token", [None, "hf_sesame"])
@pytest.mark.parametrize(
    ("error", "status", "text", "said"),
    [
        ("GatedRepoError", 401, "Access to model org/name is restricted.", ["gated", "accept the licence", "HF_TOKEN"]),
        ("GatedRepoError", 403, "Your request is awaiting a review", ["gated", "not been granted yet"]),
        ("RepositoryNotFoundError", 404, "404", ["the hub has no model org/name", "HF_TOKEN"]),
        ("RevisionNotFoundError", 404, "no such revision", ["no such revision"]),
        ("HfHubHTTPError", 500, "500 Server Error", ["500 Server Error", "try again"]),
        ("LocalEntryNotFoundError", 0, "", ["the hub cannot be reached", "check the network"]),
    ],
)
def test_what_the_hub_says(
    monkeypatch: pytest.MonkeyPatch, error: str, status: int, text: str, said: list[str], token: str | None
) -> None:
    """The hub's library is a stub that raises what the real one raises for these answers (huggingface_hub 1 and 2)."""
    import huggingface_hub
    from huggingface_hub import errors

    def refuse(*arguments: Any, **options: Any) -> None:
        kind: Any = getattr(errors, error)
        raise kind(text) if error.startswith("Local") else kind(text, response=_response(status))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    for arguments in (train(model="org/name"), ["prepare", "--model", "org/name", "--data", "rows.jsonl"]):
        message = refused(arguments, "org/name", *said)
        assert "sesame" not in message


def test_a_run_folder_that_is_there_already(here: Path) -> None:
    (here / "elsewhere" / "one").mkdir(parents=True)
    message = refused([*train(), "--runs", "elsewhere"], "this run exists already", "elsewhere/one", "name=one-2")
    assert message.count("error: ") == 1
    assert list((here / "elsewhere").iterdir()) == [here / "elsewhere" / "one"]


def test_a_wrong_row_is_found_before_a_run_folder_is_made(here: Path) -> None:
    with (here / "rows.jsonl").open("a") as file:
        file.write('{"messages": [}\n')
    refused(train(), "rows.jsonl:61:15", "bad_json")
