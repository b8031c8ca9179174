"""Promise: the tokenizer starts without Jinja, templates without tokenizers, and neither needs a framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

FRAMEWORKS = ("torch", "transformers", "numpy")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("outlive.text.tokenizer", ("jinja2", *FRAMEWORKS)),
        ("outlive.text.template", ("tokenizers", *FRAMEWORKS)),
        ("outlive.text.spans", ("tokenizers", *FRAMEWORKS)),
        ("outlive.text.prompt", ("tokenizers", *FRAMEWORKS)),
    ],
)
def test_importing_one_module_does_not_import(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
