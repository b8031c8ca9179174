"""Promise: what looks like a secret is refused with its place and without itself, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.run.credentials import find_secret, has_credentials, is_secret_key, without_credentials
from outlive.run.errors import InputError
from outlive.run.load import load_run

# Assembled here, so that no scanner takes this file for a leak.
_RANDOM = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
TOKENS = [
    "hf_" + _RANDOM,
    "ghp_" + _RANDOM,
    "github_pat_" + "11ABC_" + _RANDOM,
    "glpat-" + _RANDOM[:20],
    "sk-" + _RANDOM,
    "sk-proj-" + _RANDOM + "-_x",
    "sk-" + "0123456789abcdef" * 2,
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "xoxb-" + "123456789012-abcdef",
    "AIza" + _RANDOM + "x",
]
BASE = "model: m\ndata: {train: [{path: d}]}\n"
HARMLESS = [
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8",
    "hf_internal_testing/tiny-random",
    "sk-learn-tutorial-of-2024-with-a-long-name",
    "models/sk-base/checkpoint-000123",
    "02a5f69c1d0d8f4b7f1a3c5e7b9d1f2a4c6e8a0b",  # a commit
    "d41d8cd98f00b204e9800998ecf8427e",
    "VGhpcyBpcyBiYXNlNjQgdGV4dA",
    "akiaabcdefghijklmnop",
    "me@host",
    "https://huggingface.co/org/name@main",
    "task-AbCdEfGh1JkLmNoPqRsTuVwXyZ",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("how", ["file", "deep", "override", "option"])
def test_a_token_is_refused_and_not_repeated(tmp_path: Path, token: str, how: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(BASE + (f"seed: 1\ntokens_of_mine:\n  - [{token}]\n" if how == "deep" else ""))
    if how == "file":
        file.write_text(BASE.replace("path: d", f"hub: {token}"))
    overrides = [f"data.chat_template=x/{token}"] if how == "override" else []
    with pytest.raises(InputError, match="environment only") as refused:
        load_run(file, overrides, model=token if how == "option" else None)
    text = refused.value.render() + str(refused.value.to_json())
    assert token not in text
    assert token[4:] not in text
    assert token[:3] + "…" in text
    where = {"file": f"{file}:2", "deep": f"{file}:5", "override": "override data.chat_template", "option": "--model"}
    assert refused.value.where == where[how]


@pytest.mark.parametrize(
    "key", ["token", "api_key", "hub_token", "use_auth_token", "wandb_api_key", "password", "secret", "HF-Token"]
)
def test_a_key_for_secrets_is_refused_whatever_it_holds(tmp_path: Path, key: str) -> None:
    file = tmp_path / "run.yaml"
    for line in (f"{key}: opensesame\n", f"data_of_mine: {{{key}: opensesame}}\n"):
        file.write_text(BASE + line)
        with pytest.raises(InputError, match=r"ope….*environment only") as refused:
            load_run(file)
        assert refused.value.where == f"{file}:3"
        assert "sesame" not in refused.value.render() + str(refused.value.to_json())
    file.write_text(BASE)
    with pytest.raises(InputError, match="environment only") as refused:
        load_run(file, [f"{key}=opensesame"])
    assert "sesame" not in refused.value.render() + str(refused.value.to_json())


def test_a_url_with_a_password_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(BASE + "notes: {deep: ['https://me:sesame@host/x']}\n")
    with pytest.raises(InputError, match="URL with credentials") as refused:
        load_run(file)
    assert refused.value.where == f"{file}:3"
    assert "sesame" not in refused.value.render()


def test_a_broken_line_is_shown_without_its_secret(tmp_path: Path) -> None:
    """YAML that can't be read is quoted, and nothing in it was looked at before."""
    file = tmp_path / "run.yaml"
    for line in ("password: opensesame: 2", f"x: [{TOKENS[0]}", "api_key: 'opensesame"):
        file.write_text(BASE + line + "\n")
        with pytest.raises(InputError) as refused:
            load_run(file)
        shown = refused.value.render() + str(refused.value.to_json())
        assert "sesame" not in shown
        assert TOKENS[0][4:] not in shown


@pytest.mark.parametrize("text", HARMLESS)
def test_names_hashes_and_paths_are_no_secrets(text: str) -> None:
    assert not has_credentials(text)
    assert without_credentials(text) == text
    assert find_secret({"model": text, "data": [{"revision": text}]}) is None


def test_keys_of_tokenizers_are_no_secrets() -> None:
    for key in ("eos_token", "pad_token", "image_token", "bos_token_id", "max_new_tokens", "tokens", "micro_tokens"):
        assert not is_secret_key(key)
        assert find_secret({key: "<|end|>"}) is None
    assert find_secret({"use_auth_token": True, "token": None, "api_key": ""}) is None
    text = "eos_token=<|im_end|> token: there is no such key; batch.tokens=4096"
    assert without_credentials(text) == text


@pytest.mark.parametrize("token", TOKENS)
def test_what_is_shown_is_cut(token: str) -> None:
    clean = without_credentials({"git": [f"see {token} there", f"password={token}"]})
    assert clean == {"git": [f"see {token[:3]}… there", f"password={token[:3]}…"]}
    assert without_credentials(clean) == clean
