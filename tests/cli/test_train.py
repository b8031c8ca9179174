"""`outlive train` and `generate` from end to end, on a tiny model: what they write, print and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoint.manifest import verify_manifest
from outlive.data.store import Store
from outlive.run.config import Run

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.engines.test_loop import tiny_folder  # noqa: E402


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model", "llama")


def outlive(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `cwd`, with its stores below it."""
    env = {**os.environ, "OUTLIVE_HOME": str(cwd / "home"), **environment}
    command = [sys.executable, "-m", "outlive.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)


TRAIN = ["data.sequence_length=128", "batch.tokens=512", "stop.steps=3", "optimizer.lr=1e-3", "name=one"]


@pytest.mark.parametrize("adapter", [[], ["adapter.rank=4"]], ids=["full", "lora"])
def test_a_run_from_end_to_end(tmp_path: Path, model: Path, rows: Path, adapter: list[str]) -> None:
    done = outlive("train", "--model", str(model), "--data", str(rows), *TRAIN, *adapter, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "one"
    kind = "adapter" if adapter else "model"
    checkpoint = folder / "checkpoints" / "step-00000003"
    verify_manifest(checkpoint)
    served = checkpoint / kind
    assert (served / "tokenizer.json").is_file()
    assert (served / "chat_template.jinja").is_file()
    for name in ("run.yaml", "lock.json", "data.json", "metrics.jsonl", "first_batch.html", "report.html"):
        assert (folder / name).stat().st_size > 0, name
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train"] == [1, 2, 3]
    assert {"loss", "grad_norm", "lr", "tokens", "target_tokens", "memory"} <= records[1].keys()
    assert Run.load(folder / "run.yaml").name == "one"
    assert "sample 1" in done.stdout
    assert "sample 2" in done.stdout
    assert "60 rows, format messages" in done.stdout
    _loads_elsewhere(served, model, adapter)
    _same_prompt(tmp_path, folder, rows)
    again = outlive("train", "--model", str(model), "--data", str(rows), *TRAIN, *adapter, cwd=tmp_path)
    assert again.returncode == 2
    assert "name=one-2" in again.stderr


def _loads_elsewhere(served: Path, base: Path, adapter: list[str]) -> None:
    """transformers and PEFT open the folder, and the trained weights are in it."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(served)
    original = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    trained = AutoModelForCausalLM.from_pretrained(base if adapter else served, dtype=torch.float32)
    if adapter:
        trained = PeftModel.from_pretrained(trained, str(served)).merge_and_unload()
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert not torch.allclose(original(ids).logits, trained(ids).logits, atol=1e-4)


def _same_prompt(cwd: Path, folder: Path, rows: Path) -> None:
    """The token ids of generate's prompt are the first of the sample that was trained on."""
    store = Store(Path(json.loads((folder / "data.json").read_text())["train"][0]["store"]))
    number = int(store.value(0, "sample_id").split(":")[1])
    said = json.loads(rows.read_text().splitlines()[number])["messages"][0]["content"]
    done = outlive("generate", str(folder), said, "--json", "--max-tokens", "4", cwd=cwd)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    prompt = answer["prompt_ids"]
    assert store.tokens(0)[: len(prompt)].tolist() == prompt
    assert store.weights(0)[len(prompt)] == 1.0
    assert len(answer["answer_ids"]) <= 4


def test_another_base_is_refused(tmp_path: Path, model: Path, rows: Path) -> None:
    outlive("train", "--model", str(model), "--data", str(rows), *TRAIN, "adapter.rank=4", cwd=tmp_path)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    done = outlive("generate", "runs/one", "Hello", cwd=tmp_path)
    assert done.returncode == 2
    assert "not the one that this adapter was trained on" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimizer.lrr=1"], "lr"),
        (["adapter.targets=[q_prj]"], "q_proj"),
        (["data.train.0.path=missing.jsonl"], "missing.jsonl"),
        (["model=missing-folder"], "missing-folder"),
        (["stop.steps=0"], "stop.steps"),
        (["engine=trl"], "not built"),
        (["method.loss=nowhere:loss"], "nowhere"),
    ],
)
def test_wrong_input_is_exit_2_and_leaves_nothing(
    tmp_path: Path, model: Path, rows: Path, arguments: list[str], said: str
) -> None:
    given = {"--model": str(model), "--data": str(rows)}
    if arguments[0].startswith("model="):
        given["--model"] = "missing-folder"
        arguments = []
    if arguments and arguments[0].startswith("data.train"):
        given["--data"] = "missing.jsonl"
        arguments = []
    options = [part for pair in given.items() for part in pair]
    done = outlive("train", *options, "name=one", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (tmp_path / "runs" / "one").exists()
    assert "Traceback" not in done.stderr


USER_LOSS = """
from outlive.learn.loss_rule import Term

def loss(batch, logprobs, columns):
    assert len(columns["margin"]) == len(batch.segments)
    return [Term("mine", -logprobs.sum(), "weight"), Term("pull", (logprobs**2).sum(), "weight", 0.1)]
"""


def test_a_loss_of_ones_own(tmp_path: Path, model: Path, rows: Path) -> None:
    (tmp_path / "mine.py").write_text(USER_LOSS)
    with_margin = tmp_path / "with_margin.jsonl"
    values: list[dict[str, Any]] = [json.loads(line) for line in rows.read_text().splitlines()]
    with_margin.write_text("".join(json.dumps({**row, "margin": n}) + "\n" for n, row in enumerate(values)))
    settings = [*TRAIN, "method.loss=mine:loss", "method.columns={margin: segment}"]
    done = outlive(
        "train", "--model", str(model), "--data", str(with_margin), *settings, cwd=tmp_path, PYTHONPATH=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr


def test_a_run_that_goes_wrong_ends_with_exit_1(tmp_path: Path, model: Path, rows: Path) -> None:
    """At step 1 the loss is a number, later it is none: the records stay, and there is no checkpoint."""
    settings = [*TRAIN[:3], "name=one", "optimizer.lr=1e9", "optimizer.warmup=0", "stop.nonfinite_steps=2"]
    done = outlive("train", "--model", str(model), "--data", str(rows), *settings, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "2 steps in a row changed no weights" in done.stderr
    assert "no checkpoint was saved before" in done.stderr
    assert (tmp_path / "runs" / "one" / "metrics.jsonl").exists()
    assert list((tmp_path / "runs" / "one" / "checkpoints").iterdir()) == []


def test_a_run_that_never_took_a_step_leaves_nothing(tmp_path: Path, model: Path, rows: Path) -> None:
    (tmp_path / "mine.py").write_text("def loss(batch, logprobs, columns):\n    return None\n")
    settings = [*TRAIN, "method.loss=mine:loss"]
    command = ["train", "--model", str(model), "--data", str(rows), *settings]
    done = outlive(*command, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs" / "one").exists()


def test_a_report_that_cannot_be_written_loses_no_result(tmp_path: Path) -> None:
    """The model is trained and saved by then, so that is said, and what went wrong too."""
    from outlive.cli.train import write_report
    from outlive.run.folder import RunFolder

    assert "not written: there are no metrics" in write_report(RunFolder(tmp_path))
