"""Promise: the notebook opens in Jupyter, and every cell of it does what its text says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from outlive.checkpoint.manifest import verify_manifest
from tests.fixtures import tiny_tokenizer
from tests.tiny import CONFIGS

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
# Runs the cells as Jupyter's kernel does, in one process and without the kernel's sockets, which it forbids.
RUNNER = """
import json, socket, sys

class NoSocket(socket.socket):
    def __init__(self, *args, **kwargs):
        raise AssertionError("a socket")

socket.socket = NoSocket
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell, found = InteractiveShell(), {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        with capture_output() as captured:
            ran = shell.run_cell("".join(cell["source"]))
        if not ran.success:
            sys.exit(f"{cell['id']}: {ran.error_in_exec or ran.error_before_exec}")
        html = getattr(ran.result, "_repr_html_", lambda: "")()
        found[cell["id"]] = {"printed": captured.stdout, "result": repr(ran.result), "html": html}
found["work"] = str(shell.user_ns["work"])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each code cell printed and gave, run with a tiny model in place of the real one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("notebook")
    model = tiny_tokenizer(folder / "model")
    torch.manual_seed(0)
    config = AutoConfig.for_model(**{**CONFIGS["llama"], "vocab_size": 512})
    AutoModelForCausalLM.from_config(config).save_pretrained(model)
    home = {"OUTLIVE_HOME": folder / "home", "IPYTHONDIR": folder / "ipython", "TMPDIR": folder}
    env = {**os.environ, "OUTLIVE_TEST_MODEL": str(model), **{name: str(path) for name, path in home.items()}}
    command = [sys.executable, "-c", RUNNER, str(NOTEBOOK)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_it_is_a_notebook_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    loop = next(cell.source for cell in code if cell.id == "loop")
    assert len([line for line in loop.splitlines() if line.strip()]) <= 25
    for cell in code:
        assert len(cell.source.splitlines()) <= 25
        assert all(len(line) <= 120 for line in cell.source.splitlines())


def test_overrides_hold_and_the_ledger_counts_every_row(outputs: dict[str, Any]) -> None:
    assert "lr=0.0003" in outputs["run"]["result"]
    assert "24 rows" in outputs["prepare"]["printed"]


def test_the_targets_are_marked_as_text_and_as_html(outputs: dict[str, Any]) -> None:
    text, html = outputs["show"]["result"], outputs["show"]["html"]
    assert text.count("⟦The") == 2
    for marked in re.findall("⟦(.*?)⟧", text):
        assert re.fullmatch(r"The code of \w+ is \w-\d\d\.<\|im_end\|>", marked)
    targets = re.findall(r'<b class="t[^"]*"[^>]*>(.*?)</b>', html.partition("sample 1")[2])
    shown = re.sub(r"<[^>]*>", "", "".join(targets))
    assert shown.count("The") == 2
    assert "user" not in shown
    assert 'title="position 0, id 1, weight 0"' in html
    assert "<script" not in html
    assert "\nbody {" not in html, "styles of a whole page would change the notebook's own"


@pytest.mark.parametrize("cell", ["sft", "loss"])
def test_both_loops_learn(cell: str, outputs: dict[str, Any]) -> None:
    first, last = map(float, re.findall(r"\d+\.\d+", outputs[cell]["printed"]))
    assert last < first - 0.3


def test_a_loop_can_be_run_again_and_begins_at_the_beginning(outputs: dict[str, Any]) -> None:
    # Both loops begin with the same weights and batches: the focal loss is below the plain one, and neither is empty.
    plain = float(re.findall(r"\d+\.\d+", outputs["sft"]["printed"])[0])
    focal = float(re.findall(r"\d+\.\d+", outputs["loss"]["printed"])[0])
    assert 0.95 * plain < focal < plain


def test_the_checkpoint_opens_and_answers(outputs: dict[str, Any]) -> None:
    assert "model.safetensors" in outputs["save"]["result"]
    assert "tokenizer.json" in outputs["save"]["result"]
    verify_manifest(Path(outputs["work"]) / "checkpoint")
    assert outputs["talk"]["result"].startswith(("'", '"'))
