"""Promise: the run file that `outlive init` writes loads, means the defaults, and names every key that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from outlive.run.config import load_run
from outlive.run.init_file import init_text
from outlive.run.mistakes import section_of
from outlive.run.settings.base import NotBuilt, Section
from outlive.run.settings.whole import Run


def loaded(folder: Path, text: str) -> Run:
    path = folder / "run.yaml"
    path.write_text(text)
    result = load_run(path)
    assert result.notes == []
    return result.run


@pytest.mark.parametrize("data", ["chats.jsonl", "org/name", "it's: a # file.jsonl"])
def test_it_loads_to_the_defaults(tmp_path: Path, data: str) -> None:
    run = loaded(tmp_path, init_text("org/model", data))
    assert run == load_run(None, ["name=run"], model="org/model", data=data).run


def test_any_yaml_reader_reads_it() -> None:
    values = yaml.safe_load(init_text())
    assert values["optimizer"]["eps"] == 1e-8
    assert values["data"]["validation"] == 0.05


def working_keys(model: type[Section], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, field in model.model_fields.items():
        if not any(isinstance(item, NotBuilt) for item in field.metadata):
            inner = section_of(field.annotation)
            keys += working_keys(inner, f"{prefix}{name}.") if inner else [prefix + name]
    return keys


def test_every_key_that_works_stands_in_it_once_and_no_other() -> None:
    found: list[str] = []
    section = ""
    for line in init_text().splitlines():
        if top := re.match(r"(?:# )?([a-z_]+):( |$)", line):
            section = top[1] if top[2] == "" else ""
            found += [] if section else [top[1]]
        elif inner := re.match(r"(?:#   |  )(?:# )?([a-z_]+):( |$)", line):
            found.append(f"{section}.{inner[1]}")
    assert sorted(found) == sorted(set(working_keys(Run)) - {"name"})


def test_each_key_that_is_off_can_be_put_on(tmp_path: Path) -> None:
    lines = init_text().splitlines()
    tried = 0
    for index, line in enumerate(lines):
        if on := re.fullmatch(r"( +)# ([a-z_]+: .*)", line):
            loaded(tmp_path, "\n".join([*lines[:index], on[1] + on[2], *lines[index + 1 :]]))
            tried += 1
    assert tried >= 10


def test_the_adapter_can_be_put_on_by_taking_its_marks_off(tmp_path: Path) -> None:
    head, _, rest = init_text().partition("# adapter:\n")
    block, _, tail = rest.partition("\n\n")
    run = loaded(tmp_path, head + "adapter:\n" + re.sub(r"^# ", "", block, flags=re.MULTILINE) + "\n\n" + tail)
    assert run.adapter is not None
    assert (run.adapter.rank, run.optimizer.lr) == (16, 1e-4)


def test_choices_stand_beside_their_key() -> None:
    assert "  packing: best_fit  # best_fit | none | concatenate\n" in init_text()
    assert all(len(line) <= 120 for line in init_text().splitlines())
