"""Promise: what inspect shows is what training sees, token by token; what is left out has a reason and a count."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from outlive.cli import main as outlive_main
from outlive.cli.show.pages import first_batch_page
from outlive.cli.show.terminal import make_console, show_sample
from outlive.cli.show.visible import cells, signed, stretches
from outlive.data.store import Store
from outlive.run.engine import TokensAndWeights
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import cases, tiny_tokenizer

HEAVY = ("torch", "transformers", "peft", "huggingface_hub")
CHAT = {
    "messages": [
        {"role": "user", "content": "Hello there!"},
        {"role": "assistant", "content": "I am fine, thank you."},
        {"role": "user", "content": "Paris\n\ttab  two"},
        {"role": "assistant", "content": "See you, 世界 🎉"},
    ]
}
ROWS: list[Any] = [
    CHAT,
    {"messages": [{"role": "user", "content": "no answer"}]},
    "not json",
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b " * 40}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c", "weight": 0.5}]},
]
REFUSED = {1: "no_assistant_turn", 2: "bad_json"}


@pytest.fixture(autouse=True)
def _verbs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for verb in ("inspect", "prepare", "report"):  # the table of verbs is another module's; here it needs these
        monkeypatch.setitem(outlive_main.VERBS, verb, (f"outlive.cli.{verb}", verb))
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_tokenizer(tmp_path / "model")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write(tmp_path / "chats.jsonl", ROWS)


def write(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def outlive(*arguments: object) -> Any:
    return CliRunner().invoke(outlive_main.app, list(map(str, arguments)))


def objects(*arguments: object) -> list[dict[str, Any]]:
    done = outlive("inspect", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


RUN = """
import sys
from outlive.cli import main as module
module.VERBS["inspect"] = ("outlive.cli.inspect", "")
"""


def test_a_bare_file_needs_no_framework(folder: Path, rows: Path) -> None:
    code = (
        RUN
        + f"import atexit\natexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules]))\nmodule.main()"
    )
    done = python(code, "inspect", rows, "--tokenizer", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_json_gives_ids_weights_and_texts(folder: Path, rows: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    found = objects(rows, "--tokenizer", folder)
    assert [value["row"] for value in found] == [0, 1, 2, 3, 4]
    first = found[0]
    assert list(first) == ["row", "part", "input_ids", "weights", "text", "target_text", "turns"]
    assert [turn[2:] for turn in first["turns"]] == [[n, ("user", "assistant")[n % 2]] for n in range(4)]
    assert first["part"] == 0
    assert first["target_text"] == ["I am fine, thank you.<|im_end|>", "See you, 世界 🎉<|im_end|>"]
    assert first["text"] == tokenizer.decode(first["input_ids"])
    assert first["text"].startswith("<|im_start|>system\nYou are a small assistant.<|im_end|>\n<|im_start|>user\n")
    assert first["weights"][0] == 0
    assert {type(weight) for weight in first["weights"]} == {int}
    marked = [i for i, weight in zip(first["input_ids"], first["weights"], strict=True) if weight]
    assert tokenizer.decode(marked) == "".join(first["target_text"])


def test_json_names_every_refused_row(folder: Path, rows: Path) -> None:
    found = {value["row"]: value for value in objects(rows, "--tokenizer", folder)}
    for row, reason in REFUSED.items():
        assert set(found[row]) == {"row", "file", "line", "refused"}
        assert found[row]["file"] == str(rows)
        assert found[row]["line"] == row + 1
        assert found[row]["refused"]["reason"] == reason
        assert set(found[row]["refused"]) == {"reason", "detail"}


def test_weights_other_than_0_and_1_are_floats(folder: Path, rows: Path) -> None:
    weights = objects(rows, "--tokenizer", folder, "--row", 4)[0]["weights"]
    assert set(weights) == {0, 0.5}
    assert 0.5 in [weight for weight in weights if isinstance(weight, float)]


def test_json_is_alone_on_stdout(folder: Path, rows: Path) -> None:
    done = outlive("inspect", rows, "--json")
    assert all(json.loads(line) for line in done.stdout.splitlines())
    assert "no tokenizer was named" in done.stderr
    assert "left out, bad_json: 1" in done.stderr


@pytest.mark.parametrize(
    ("options", "parts", "reason"),
    [((), [0], None), (("--overlong", "drop"), [], "overlong"), (("--overlong", "split"), [0, 1, 2], None)],
)
def test_overlong_rows(
    folder: Path, rows: Path, options: tuple[str, ...], parts: list[int], reason: str | None
) -> None:
    length = ["--sequence-length", 50] if options else []
    found = objects(rows, "--tokenizer", folder, "--row", 3, *length, *options)
    assert [value["part"] for value in found if "part" in value] == parts
    assert [value["refused"]["reason"] for value in found if "refused" in value] == ([reason] if reason else [])
    assert all(len(value.get("input_ids", [])) <= 50 for value in found if options)


def test_options_change_the_mask(folder: Path, rows: Path) -> None:
    def targets(*options: object) -> list[str]:
        found: list[str] = objects(rows, "--tokenizer", folder, "--row", 0, *options)[0]["target_text"]
        return found

    assert targets("--turn-end", "content")[0] == "I am fine, thank you."
    assert targets("--turn-end", "suffix")[0] == "I am fine, thank you.<|im_end|>\n"
    assert targets("--loss-on", "last_assistant") == ["See you, 世界 🎉<|im_end|>"]
    assert "Be brief." in objects(rows, "--tokenizer", folder, "--row", 0, "--system", "Be brief.")[0]["text"]


def test_a_chat_template_file_replaces_the_tokenizers(folder: Path, rows: Path, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    source = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    template.write_text(source + "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}")
    found = objects(rows, "--tokenizer", folder, "--chat-template", template, "--row", 0)[0]
    assert found["text"].startswith("<|im_start|>user: Hello there!<|im_end|><|im_start|>assistant: ")
    assert found["target_text"][0] == "I am fine, thank you.<|im_end|>"


def test_without_a_tokenizer_texts_are_shown_and_it_says_so(rows: Path) -> None:
    done = outlive("inspect", rows, "--rows", 5)
    assert done.exit_code == 0
    assert "no tokenizer was named" in done.stdout
    assert "⟦I am fine, thank you.⟧" in done.stdout
    assert "no_assistant_turn" in done.stdout
    assert "5 rows, format messages" in done.stdout
    first = objects(rows)[0]
    assert first["format"] == "messages"
    assert first["messages"] == CHAT["messages"]
    assert first["target_text"] == ["I am fine, thank you.", "See you, 世界 🎉"]


def test_the_terminal_shows_samples_signs_and_the_ledger(folder: Path, rows: Path) -> None:
    out = outlive("inspect", rows, "--tokenizer", folder, "--rows", 2).stdout
    assert "<|im_start|>assistant↵\n⟦I am fine, thank you.<|im_end|>⟧↵\n" in out
    assert "Paris↵\n→" in out
    assert "tab··two" in out
    assert "⟦See you, 世界 🎉<|im_end|>⟧" in out
    assert "left out, no_assistant_turn: 1" in out
    assert "line 3: bad_json" in out
    assert "row 3" not in out.split("chats.jsonl:")[0]
    assert "3 samples, " in out
    assert "\x1b" not in out


def test_colours_do_not_need_brackets_and_no_color_does(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    ids, weights = tokenizer.encode("Hello there"), [0.0, *[1.0] * (len(tokenizer.encode("Hello there")) - 1)]

    def shown(**options: Any) -> str:
        file = io.StringIO()
        show_sample(Console(file=file, width=80, **options), tokenizer, ids, weights, "x")
        return file.getvalue()

    assert "⟦" not in shown(force_terminal=True, color_system="truecolor")
    assert "48;2;20;83;45" in shown(force_terminal=True, color_system="truecolor")
    assert "30;42m" in shown(force_terminal=True, color_system="standard")  # black on green
    assert "⟦" in shown(force_terminal=True, color_system="truecolor", no_color=True)
    assert "⟦" in shown(force_terminal=False)


def test_nothing_in_the_data_reaches_the_terminal_as_a_command(folder: Path, tmp_path: Path) -> None:
    evil = "a\x1b[31m\x07\u202e\ud800[bold]b[/bold]\r\x9b"
    file = write(tmp_path / "evil.jsonl", [{"text": evil, "e\x1b]0;x": 1}, {"text": evil.replace("\ud800", "")}])
    for options in ([], ["--tokenizer", folder]):
        if options:
            write(file, [{"text": evil.replace("\ud800", ""), "e\x1b]0;x": 1}])
        done = outlive("inspect", file, *options)
        assert done.exit_code == 0, done.stderr
        assert not set("\x1b\x07\u202e\ud800\r\x9b") & set(done.stdout)
        assert "␛[31m␇⟨U+202E⟩" in done.stdout
        assert "[bold]b[/bold]␍" in done.stdout


def test_signs() -> None:
    assert signed("a  b \n c\td") == "a··b·↵\n·c→\td"
    assert signed(" a ", edges=True) == "·a·"
    assert signed("  ", edges=True) == "··"
    assert signed(" a b ") == " a b "
    assert signed("\u00a0\u200b\ufeff\x00") == "⍽⟨U+200B⟩⟨U+FEFF⟩␀"
    assert signed("👩‍👧") == "👩‍👧"


def test_a_character_of_several_tokens_is_one_cell(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.encode("a🎉b")
    found = cells(tokenizer, ids, [0.0] * len(ids))
    assert [cell.text for cell in found] == ["a", "🎉", "b"]
    assert [index for cell in found for index in cell.ids] == ids
    assert [cell.position for cell in found] == [0, 1, len(ids) - 1]
    cut = cells(tokenizer, ids, [0.0, 0.0, *[1.0] * (len(ids) - 2)])  # a bound inside the character stays visible
    assert "\\xf0" in "".join(part.text for part in stretches(cut))
    assert [index for cell in cut for index in cell.ids] == ids


def test_row_and_rows(folder: Path, rows: Path) -> None:
    assert [value["row"] for value in objects(rows, "--tokenizer", folder, "--rows", 2)] == [0, 1]
    assert [value["row"] for value in objects(rows, "--tokenizer", folder, "--row", 2)] == [2]
    assert outlive("inspect", rows, "--row", 99).exit_code == 2
    assert outlive("inspect", rows, "--row", 1, "--rows", 1).exit_code == 2


def broken(tmp_path: Path, folder: Path, rows: Path) -> Iterator[tuple[list[object], str]]:
    (tmp_path / "empty.jsonl").write_bytes(b"\n \n")
    (tmp_path / "junk.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "p.jsonl").write_bytes(b"PAR1rest")
    (tmp_path / "bad.jinja").write_text("{% for %}")
    (tmp_path / "dir").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    bare = tiny_tokenizer(tmp_path / "bare", template=None)
    yield [tmp_path / "missing.jsonl"], "no such file"
    yield [tmp_path / "empty.jsonl"], "no row"
    yield [tmp_path / "junk.jsonl"], "binary"
    yield [tmp_path / "p.jsonl"], "Parquet"
    yield [tmp_path / "dir"], "no file of rows"
    yield [tmp_path / "missing.yaml"], "missing.yaml"
    yield [rows, "--tokenizer", tmp_path / "nowhere"], "does not exist"
    yield [rows, "--tokenizer", tmp_path / "dir"], "no tokenizer.json"
    yield [rows, "--tokenizer", tmp_path / "broken"], "can't be read"
    yield [rows, "--tokenizer", bare], "no chat template"
    yield [rows, "--tokenizer", folder, "--chat-template", tmp_path / "no.jinja"], "no.jinja"
    yield [rows, "--tokenizer", folder, "--chat-template", tmp_path / "bad.jinja"], "chat template"
    yield [rows, "--turn-end", "content"], "--turn-end says nothing without a tokenizer"
    yield [rows, "--tokenizer", folder, "--loss-on", "asistant"], "did you mean assistant?"


def test_wrong_input_is_exit_2_with_the_reason(tmp_path: Path, folder: Path, rows: Path) -> None:
    for arguments, text in broken(tmp_path, folder, rows):
        for extra in ([], ["--json"]):
            done = outlive("inspect", *arguments, *extra)
            assert done.exit_code == 2, (arguments, done.output)
            assert text in done.stderr, (arguments, done.stderr)
            assert "Traceback" not in done.stderr
            assert done.stdout == "" or not extra


def test_a_json_array_is_read_as_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "array.json"
    file.write_text(json.dumps([CHAT, CHAT], indent=1))
    assert [row["row"] for row in objects(file)] == [0, 1]


def test_a_closed_pipe_is_quiet(folder: Path, rows: Path) -> None:
    for options in ([], ["--json"]):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-c", RUN + "module.main()", "inspect", rows, "--tokenizer", folder, *options]
        done = subprocess.run(list(map(str, command)), stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        assert "Traceback" not in done.stderr
        assert "fault" not in done.stderr


@pytest.fixture
def run_file(tmp_path: Path, folder: Path, rows: Path) -> Path:
    more = write(tmp_path / "more.jsonl", [CHAT | {"id": 1}] * 2)
    text = {
        "name": "try",
        "model": str(folder),
        "data": {
            "train": [{"path": str(rows)}, {"path": str(more), "limit": 1}],
            "validation": None,
            "sequence_length": 64,
            "bad_rows": "drop",
            "overlong": "split",
        },
        "batch": {"tokens": 128},
    }
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(text))
    return file


def test_a_run_file_and_its_store_show_the_same_samples(run_file: Path, rows: Path) -> None:
    found = objects(run_file)
    assert {Path(value["source"]).name for value in found} == {"chats.jsonl", "more.jsonl"}
    assert {value["row"] for value in found if Path(value["source"]).name == "more.jsonl"} == {0}
    kept = [value for value in found if "refused" not in value]
    prepared = json.loads(outlive("prepare", run_file, "--json").stdout)
    stored = [value for about in prepared["train"] for value in objects(about["store"])]
    for value in kept:
        del value["source"]
        value.pop("turns", None)  # a store holds samples, not the messages that they were made of
    assert any("lints" in value for value in stored)  # of the rows that its ledger names, which are few here: all
    for own, other in zip(stored, kept, strict=True):  # and what fits every row, which its ledger counts by row, too
        assert set(own.pop("lints", [])) >= set(other.pop("lints", []))
    assert stored == kept
    assert {value["refused"]["reason"] for value in found if "refused" in value} == set(REFUSED.values())


def test_a_run_folder_shows_the_stores_it_was_trained_on(run_file: Path, tmp_path: Path) -> None:
    prepared = json.loads(outlive("prepare", run_file, "data.validation=0.4", "--json").stdout)
    run = tmp_path / "runs" / "try"
    run.mkdir(parents=True)
    (run / "run.yaml").write_text(run_file.read_text())
    (run / "data.json").write_text(json.dumps(prepared))
    found = objects(run)
    sides = [store["num_samples"] for side in ("train", "validation") for store in prepared[side]]
    assert len(found) == sum(sides)
    assert sum(value.get("side") == "validation" for value in found) == sum(
        s["num_samples"] for s in prepared["validation"]
    )
    assert "left out, bad_json: 1" in outlive("inspect", run).stdout
    (tmp_path / "home").rename(tmp_path / "away")
    assert "not here any more" in outlive("inspect", run).stdout


def test_options_can_not_change_a_store(run_file: Path) -> None:
    prepared = json.loads(outlive("prepare", run_file, "--json").stdout)
    done = outlive("inspect", prepared["train"][0]["store"], "--loss-on", "all")
    assert done.exit_code == 2
    assert "--loss-on can't change it" in done.stderr


def test_prepare_shows_the_ledger_and_the_plan(run_file: Path) -> None:
    out = outlive("prepare", run_file).stdout
    assert "left out, bad_json: 1" in out
    plan = json.loads(outlive("prepare", run_file, "--json").stdout)["plan"]
    store = Store(Path(json.loads(outlive("prepare", run_file, "--json").stdout)["train"][0]["store"]))
    assert plan["tokens"] >= store.lengths.sum()
    assert plan["fill"] == plan["tokens"] / (plan["packs"] * 64)
    assert plan["steps_per_epoch"] == -(-plan["packs"] // plan["packs_per_step"])
    assert f"{plan['packs']} packs" in out


def test_prepare_of_rows_that_are_wrong_is_exit_2(run_file: Path) -> None:
    done = outlive("prepare", run_file, "data.bad_rows=refuse")
    assert done.exit_code == 2
    assert "error: bad_json" in done.stderr
    assert "chats.jsonl:3:" in done.stderr


def test_the_first_batch_page_holds_every_token(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.encode("<|im_start|>user\nHello there")
    weights = [0.0] * (len(ids) - 2) + [1.0, 0.5]
    packs = TokensAndWeights(
        [[*ids, *ids], ids], [[*weights, *weights], weights], [[0] * len(ids) + [1] * len(ids), [0] * len(ids)]
    )
    page = first_batch_page(tokenizer, packs, {"run": "<b>"})
    assert page.count("<b data-t=") + page.count('" data-t="') == 3 * len(ids)
    assert f'data-t="{len(ids) - 2} {ids[-2]} 1"' in page
    assert f'data-t="{len(ids) - 1} {ids[-1]} 0.5"' in page
    assert "Pack 1 of 2" in page
    assert "in 2 samples" in page
    assert "&lt;b&gt;" in page
    assert "http" not in page.replace("http-equiv", "")


def test_lints_are_counted_with_their_first_row(folder: Path, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "<|im_start|>user x"}, {"role": "assistant", "content": " y "}]
    file = write(tmp_path / "lint.jsonl", [CHAT, {"messages": said}, {"messages": said}])
    for options in ([], ["--tokenizer", folder]):
        out = outlive("inspect", file, *options).stdout
        assert "worth a look: blank_edges: 2 (first: row 1)" in out
        assert "worth a look: template_text: 2 (first: row 1)" in out
        assert "worth a look: duplicate: 1 (first: row 2)" in out


@pytest.mark.skipif(not cases().is_dir(), reason="the cases are not here")
def test_chat400(folder: Path) -> None:
    found = objects(cases() / "chat400.jsonl", "--tokenizer", folder)
    assert len(found) == 400
    assert all(value["target_text"] for value in found)


def test_make_console_prints_text_as_it_is() -> None:
    file = io.StringIO()
    make_console(file).print("[red]x[/red] :smile: 12")
    assert file.getvalue() == "[red]x[/red] :smile: 12\n"


def test_prepare_says_what_is_not_expected(run_file: Path) -> None:
    """A share too small for any row, a source that is used up before the run ends, a weight that gives nothing."""
    few = outlive("prepare", run_file, "data.validation=0.0001")
    assert "there is no row for validation" in few.stderr
    capped = outlive("prepare", run_file, "data.train.1.epochs=1", "stop.epochs=3")
    assert "more.jsonl has taken its epochs (2 visits) in pass 1: from there on" in capped.stderr
    stopped = outlive("prepare", run_file, "data.train.1.epochs=1", "data.used_up=stop", "stop.epochs=3")
    assert "the run ends there, before the 3 epochs" in stopped.stderr
    nothing = outlive("prepare", run_file, "data.train.1.weight=0.001")
    assert "more.jsonl: its weight of 0.001 gives it none of its 2 samples," in nothing.stderr
    assert "note:" not in outlive("prepare", run_file).stderr


def test_sources_are_laid_out_in_columns(run_file: Path) -> None:
    lines = outlive("prepare", run_file).stdout.splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("mixed"))
    first, second = lines[place : place + 2]
    assert "·" not in first + second  # what a reader's own blanks are shown as
    assert second.startswith("  ")
    assert first.index("% of the tokens") == second.index("% of the tokens")
    assert first.endswith("chats.jsonl")
    assert second.endswith("more.jsonl")


def test_a_run_file_shows_how_many_rows_are_for_validation(run_file: Path) -> None:
    """As many as are prepared so, though all are shown."""
    settings = json.loads(run_file.read_text())
    settings["data"]["validation"] = 0.6
    run_file.write_text(json.dumps(settings))
    wanted = [one["validation_rows"] for one in json.loads(outlive("prepare", run_file, "--json").stdout)["ledger"]]
    assert sum(wanted)
    shown = [line for line in outlive("inspect", run_file).stdout.splitlines() if "of these for validation" in line]
    assert shown == [f"  of these for validation: {number}" for number in wanted if number]


def test_a_bad_row_of_several_files_is_named_with_its_file(folder: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    write(many / "a.jsonl", [CHAT])
    write(many / "b.jsonl", [CHAT, "no json"])
    assert "b.jsonl:2: bad_json" in outlive("inspect", many, "--tokenizer", folder).stdout
    (refused,) = (value for value in objects(many, "--tokenizer", folder) if "refused" in value)
    assert (refused["row"], refused["file"], refused["line"]) == (2, "b.jsonl", 2)


def test_one_of_a_thing_is_not_called_many(folder: Path, tmp_path: Path) -> None:
    out = outlive("inspect", write(tmp_path / "one.jsonl", [CHAT | {"id": 1}]), "--tokenizer", folder).stdout
    assert "one.jsonl: 1 row, format" in out
    assert "column not used: id (1 row)" in out
    assert "1 sample," in out
