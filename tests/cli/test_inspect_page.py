"""Promise: the page of inspect holds what `inspect --json` says, loads nothing, hides nothing, finds what is asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from outlive.cli import main as outlive_main
from outlive.cli.inspect import PAGE_ROWS
from outlive.cli.show.inspect_page import SCRIPTS
from outlive.cli.show.inspect_payload import as_script
from outlive.cli.show.inspect_statistics import MAX_BINS, bins
from tests.fixtures import tiny_tokenizer

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
HOSTILE = "</script><script>alert(1)</script><!-- \u202eevil\u202c \u200b\ufeff\x07\U000e0041 & 'q' \"q\""


def chat(*turns: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[place % 2], "content": turn} for place, turn in enumerate(turns)], **more}


LIGHT = chat("Weigh this", "Half as much")
LIGHT["messages"][1]["weight"] = 0.5
ROWS: list[Any] = [
    chat("Hello there!", "I am fine, thank you.", "And Paris?", "See you, 世界 🎉"),
    chat("no answer in Paris"),
    "not json",
    chat(HOSTILE, "plain words"),
    LIGHT,
    chat("tell me", ""),
    chat("Hello there!", "I am fine, thank you.", "And Paris?", "See you, 世界 🎉"),
    chat("long", "Paris " * 60),
]


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_tokenizer(tmp_path / "model")
    write(tmp_path / "chats.jsonl", ROWS)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def outlive(*arguments: object) -> str:
    done = CliRunner().invoke(outlive_main.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def page_of(*arguments: object) -> str:
    outlive("inspect", *arguments, "--html", "page.html")
    return Path("page.html").read_text()


def data_of(page: str) -> dict[str, Any]:
    return dict(json.loads(page.split('id="data">')[1].split("</script>")[0]))


def objects_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of `inspect --json`, from the page's compact form."""
    return [_expanded(sample, data["vocab"]) for sample in data["samples"]]


def _expanded(sample: dict[str, Any], vocab: list[list[Any]]) -> dict[str, Any]:
    if "tokens" not in sample:
        return dict(sample["object"])
    text = sample["text"]
    return sample["object"] | {
        "input_ids": [vocab[place][0] for place in sample["tokens"]],
        "weights": [weight for weight, count in sample["weights"] for _ in range(count)],
        "text": text,
        "target_text": [one if isinstance(one, str) else text[one[0] : one[0] + one[1]] for one in sample["targets"]],
    }


PAIR = {"prompt": "Say", "chosen": "well then", "rejected": "no"}


@pytest.mark.parametrize("case", ["tokens", "text", "one row", "pairs", "two sources", "store"])
def test_the_page_holds_what_inspect_prints_as_json(case: str, tmp_path: Path) -> None:
    target: list[object] = ["chats.jsonl"] + ([] if case == "text" else ["--tokenizer", "model"])
    if case == "one row":
        target += ["--row", 4]
    elif case == "pairs":
        write(tmp_path / "chats.jsonl", [PAIR])
    elif case in ("two sources", "store"):
        write(tmp_path / "other.jsonl", [chat("Say", "something else")])
        run = {
            "name": "r",
            "model": str(tmp_path / "model"),
            "data": {"train": [{"path": "chats.jsonl"}], "validation": [{"path": "other.jsonl"}], "bad_rows": "drop"},
        }
        target = [tmp_path / "run.yaml"]
        (tmp_path / "run.yaml").write_text(json.dumps(run))
    if case == "store":
        made = json.loads(outlive("prepare", *target, "--json"))
        target = [made["train"][0]["store"]]
    printed = [json.loads(line) for line in outlive("inspect", *target, "--json").splitlines()]
    assert printed
    assert objects_of(data_of(page_of(*target))) == printed


class _Outside(HTMLParser):
    """Collects what a page would load, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        self.scripts += tag == "script"
        if tag in ("link", "img", "iframe", "base", "object") or names & {"src", "srcset", "href", "action", "onclick"}:
            self.loads.append(tag)


@pytest.mark.parametrize("arguments", [(), ("--tokenizer", "model")])
def test_the_page_loads_nothing_and_hides_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    bad = chat("x", "y")
    bad["messages"][0]["role"] = f"wizard {HOSTILE}"
    path = write(tmp_path / "<b>\u202ename<i>.jsonl", [*ROWS, bad])
    page = page_of(path, *arguments)
    seen = _Outside()
    seen.feed(page)
    assert not seen.loads
    assert seen.scripts == 2
    assert page.count("</script>") == 2
    assert page.count("alert(1)") == page.count("\\u003cscript\\u003ealert(1)") + page.count("&lt;script&gt;alert(1)")
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0041]", page
    )
    assert "<b>\\u202ename" not in page
    assert "<!-- " not in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_scripts_make_no_html_of_texts() -> None:
    for name in SCRIPTS:
        script = (files("outlive.cli.show") / "assets" / name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|</script", script)


def test_the_wheel_ships_what_the_page_is_made_of() -> None:
    root = Path(__file__).parents[2]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["src/outlive"]}  # the whole folder: no kind of file is left out
    assert "exclude" not in build
    ignored = (root / ".gitignore").read_text().split()  # which hatchling leaves out
    assert not [line for line in ignored if "assets" in line or line.endswith((".js", ".css"))]


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_in_a_script_is_the_same_json(value: Any) -> None:
    written = as_script(value)
    assert json.loads(written) == value
    assert not re.search("[<>\u2028-\u202e]", written)
    written.encode()


@given(st.lists(st.integers(1, 200_000), max_size=50))
def test_every_length_is_in_one_bar(lengths: list[int]) -> None:
    found = bins(lengths)
    assert sum(number for _, _, number in found) == len(lengths)
    assert len(found) <= MAX_BINS
    assert all(sum(first <= length <= last for length in lengths) == number for first, last, number in found)


def test_the_statistics_count_every_row_also_those_beyond_the_page() -> None:
    page = page_of("chats.jsonl", "--tokenizer", "model", "--rows", 2)
    assert len(data_of(page)["samples"]) == 2
    assert "the page has the first 2 rows" in page
    numbers = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert (numbers["rows"], numbers["kept"], numbers["left out"]) == ("8", "6", "2")
    assert 'data-filter="refused=bad_json"' in page
    assert 'data-filter="lint=duplicate"' in page
    assert 'data-filter="q=%236"' in page  # the first example of a duplicate
    assert "left out, no_assistant_turn: 1" in page


def test_a_page_has_only_as_many_samples_as_a_browser_opens_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "many.jsonl", [chat("a", f"b {number}") for number in range(PAGE_ROWS + 1)])
    assert len(data_of(page_of(path))["samples"]) == PAGE_ROWS
    assert len(data_of(page_of(path, "--rows", PAGE_ROWS + 1))["samples"]) == PAGE_ROWS + 1


# In a browser, without a socket: the page is a file, a script is added to it that acts as a user does, and what it
# returns is read from the DOM that the browser prints.

Act = Callable[..., Any]
_ADDED = """
<script>(async () => {
  const press = (key, more) => document.activeElement.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more }));
  const rows = () => [...document.querySelectorAll('#samples > li')].map(item => Number(item.dataset.row));
  const result = document.createElement('pre');
  result.id = 'result';
  try { result.textContent = JSON.stringify(await (async () => { %s })()); } catch (error) { result.textContent =
    JSON.stringify(String(error)); }
  document.body.append(result);
})()</script>
"""


class _Result(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self._inside, self.text = False, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = dict(attrs).get("id") == "result"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        self.text += data if self._inside else ""


@pytest.fixture
def act(tmp_path: Path) -> Act:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no browser here: Chromium shows what the page does")

    def run(page: str, script: str, fragment: str = "", around: str = "") -> Any:
        (tmp_path / "acted.html").write_text(page + ("" if around else _ADDED % script))
        (tmp_path / "around.html").write_text(around + _ADDED % script)
        name = "around" if around else "acted"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        flags += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
        flags += ["--virtual-time-budget=1000000", "--window-size=1000,800", "--dump-dom"]
        address = (tmp_path / f"{name}.html").as_uri() + (f"#{fragment}" if fragment else "")
        done = subprocess.run([browser, *flags, address], capture_output=True, text=True, timeout=120, check=False)
        seen = _Result()
        seen.feed(done.stdout)
        assert seen.text, done.stderr[-2000:]
        return json.loads(seen.text)

    return run


def test_the_address_sets_search_and_filters(act: Act) -> None:
    page = page_of("chats.jsonl", "--tokenizer", "model")
    script = "return [rows(), document.getElementById('status').textContent, location.hash];"
    shown, status, address = act(page, script, "q=Paris&lint=duplicate")
    assert shown == [6]
    assert status == "1 of 8 samples"
    assert address == "#q=Paris&lint=duplicate"


def _says(sample: dict[str, Any], words: str) -> bool:
    refused = sample.get("refused", {})
    return words in (" ".join(refused.values()) if refused else sample["text"]).lower()


def _length(sample: dict[str, Any]) -> int | None:
    return len(sample["input_ids"]) if "input_ids" in sample else None


FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "q=PARIS": lambda sample: _says(sample, "paris"),
    "q=%233": lambda sample: sample["row"] == 3,
    "q=%2399": lambda sample: False,
    "q=bad_json": lambda sample: sample["row"] == 2,
    "q=alert(1)": lambda sample: sample["row"] == 3,
    "lint=empty_answer": lambda sample: "empty_answer" in sample.get("lints", []),
    "lint=*": lambda sample: bool(sample.get("lints")),
    "refused=*": lambda sample: "refused" in sample,
    "refused=bad_json": lambda sample: sample.get("refused", {}).get("reason") == "bad_json",
    "refused=no": lambda sample: "refused" not in sample,
    "targets=with": lambda sample: any(sample.get("weights", [])),
    "targets=without": lambda sample: not any(sample.get("weights", [])),
    "min=66": lambda sample: (_length(sample) or 0) >= 66,
    "max=39&q=we": lambda sample: (_length(sample) or 99) <= 39 and _says(sample, "we"),
    "source=1": lambda sample: sample["source"] == "other.jsonl",
    "source=0&refused=no&lint=duplicate": lambda sample: sample["row"] == 6,
}


def test_each_filter_shows_what_fits(act: Act, tmp_path: Path) -> None:
    write(tmp_path / "other.jsonl", [chat("a", "other")])
    data = {"train": [{"path": "chats.jsonl"}, {"path": "other.jsonl"}], "bad_rows": "drop"}
    (tmp_path / "run.yaml").write_text(json.dumps({"name": "r", "model": str(tmp_path / "model"), "data": data}))
    page = page_of("run.yaml")
    script = """
      const found = {};
      for (const said of %s) {
        const changed = new Promise(done => addEventListener('hashchange', done, { once: true }));
        location.hash = said;
        await changed;
        found[said] = [...document.querySelectorAll('#samples > li')].map(item => Number(item.dataset.place));
      }
      document.getElementById('clear').click();
      found.all = rows().length;
      document.querySelector('[data-filter="lint=duplicate"]').click();
      found.click = rows();
      return found;
    """
    found = act(page, script % json.dumps(list(FILTERS)))
    assert found.pop("all") == len(ROWS) + 1
    assert found.pop("click") == [6]
    printed = [json.loads(line) for line in outlive("inspect", "run.yaml", "--json").splitlines()]
    wanted = {said: [place for place, one in enumerate(printed) if fits(one)] for said, fits in FILTERS.items()}
    assert found == wanted
    few = [said for said, places in wanted.items() if not 0 < len(places) < len(printed)]
    assert few == ["q=%2399"]  # every other filter shows some and hides some


def test_the_browser_decodes_what_inspect_prints(act: Act) -> None:
    arguments = ["chats.jsonl", "--tokenizer", "model"]
    script = """
      const said = [];
      for (const details of document.querySelectorAll('#samples .json')) {
        const opened = new Promise(done => details.addEventListener('toggle', done, { once: true }));
        details.open = true;
        await opened;
        said.push(JSON.parse(details.querySelector('pre').textContent));
      }
      return said;
    """
    printed = [json.loads(line) for line in outlive("inspect", *arguments, "--json").splitlines()]
    found = [act(page_of(*arguments), script, f"q=%23{row}")[0] for row in (0, 3, 4)]
    assert found == [printed[0], printed[3], printed[4]]


def test_tokens_show_signs_and_mark_targets_by_more_than_colour(act: Act) -> None:
    script = """
      const box = document.querySelector('#samples .tokens'), style = name => getComputedStyle(box.querySelector(name));
      return { text: box.textContent, targets: [...box.querySelectorAll('.t')].map(one => one.textContent).join(''),
        line: style('.t').borderBottomStyle, plain: getComputedStyle(box.children[0]).borderBottomStyle,
        edges: [...box.children].map(one => getComputedStyle(one, '::before').content[1] === '⟦' ? '⟦'
          : getComputedStyle(one, '::after').content[1] === '⟧' ? '⟧' : '').join(''),
        dashed: box.querySelector('.w') ? style('.w').borderBottomStyle : '', alerts: document.scripts.length };
    """
    page = page_of("chats.jsonl", "--tokenizer", "model")
    whole, hostile, light = (act(page, script, f"q=%23{row}") for row in (0, 3, 4))
    assert whole["targets"] == "I am fine, thank you.<|im_end|>See you, 世界 🎉<|im_end|>"
    assert (whole["line"], whole["plain"]) == ("solid", "none")
    assert whole["edges"] == "⟦⟧⟦⟧"
    assert "</script><script>alert(1)</script>" in hostile["text"]
    assert "⟨U+202E⟩evil⟨U+202C⟩" in hostile["text"]
    assert "␇⟨U+E0041⟩" in hostile["text"]
    assert hostile["alerts"] == whole["alerts"]
    assert light["dashed"] == "dashed"


def test_the_page_is_used_by_keys(act: Act) -> None:
    script = """
      const now = () => document.activeElement, tip = document.getElementById('tip'), seen = {};
      press('/'); seen.search = now().name;
      press('Escape'); seen.left = now().tagName;
      press('n'); seen.first = now().textContent;
      press('ArrowRight'); seen.second = now().textContent;
      press('t'); seen.target = now().textContent; seen.told = tip.innerText; seen.label = now().ariaLabel;
      press('End'); press('Home'); seen.home = now().textContent;
      press('ArrowDown'); seen.below = now().textContent;
      seen.stops = now().parentElement.querySelectorAll('[tabindex="0"]').length;
      press('n'); seen.next = now().closest('li').dataset.row;
      press('p'); seen.before = now().closest('li').dataset.row;
      press('Escape'); seen.tip = getComputedStyle(tip).display;
      return seen;
    """
    seen = act(page_of("chats.jsonl", "--tokenizer", "model"), script, "refused=no")
    assert (seen["search"], seen["left"]) == ("q", "BODY")
    assert (seen["first"], seen["second"], seen["home"]) == ("<|im_start|>", "system", "<|im_start|>")
    assert seen["target"] == "I"
    assert re.search(r"weight\s+1, a target", seen["told"])
    assert re.search(r"turn\s+1 · assistant", seen["told"])
    assert re.search(r"id \d+", seen["label"])
    assert seen["below"] == " are"
    assert seen["stops"] == 1
    assert (seen["next"], seen["before"]) == ("3", "0")
    assert seen["tip"] == "none"


def test_a_store_shows_target_runs_and_the_lints_that_its_ledger_names(act: Act, tmp_path: Path) -> None:
    data = {"train": [{"path": "chats.jsonl"}], "bad_rows": "drop"}
    (tmp_path / "run.yaml").write_text(json.dumps({"name": "r", "model": str(tmp_path / "model"), "data": data}))
    store = json.loads(outlive("prepare", "run.yaml", "--json"))["train"][0]["store"]
    page = page_of(store)
    assert "names only the first rows" in page
    script = """
      document.querySelector('#samples .t').focus();
      const rows = [...document.querySelectorAll('#samples > li')].map(item => Number(item.dataset.row));
      return { rows, told: document.getElementById('tip').innerText };
    """
    seen = act(page, script, "lint=duplicate")
    assert seen["rows"] == [6]
    assert re.search(r"target run\s+1 of 2", seen["told"])


def test_samples_are_made_as_they_come_into_view(act: Act, tmp_path: Path) -> None:
    path = write(tmp_path / "many.jsonl", [chat("a", f"b {number} " + "word " * 80) for number in range(400)])
    script = """
      const items = [...document.querySelectorAll('#samples > li')], last = items[items.length - 1];
      const filled = () => items.filter(item => item.childElementCount).length, before = filled();
      last.scrollIntoView();
      while (!last.childElementCount) await new Promise(done => setTimeout(done, 1));  // of the browser's virtual clock
      return [items.length, before, filled(), last.querySelector('.tokens').textContent.includes('b 399')];
    """
    count, before, after, has_text = act(page_of(path, "--tokenizer", "model"), script)
    assert count == 400
    assert 0 < before < 40
    assert 0 < after < 80
    assert has_text


def test_a_phone_scrolls_no_page_sideways_and_the_switch_changes_the_theme(act: Act, tmp_path: Path) -> None:
    rows = [*ROWS, chat("w" * 3000, "x" * 3000), "y" * 500]
    path = write(tmp_path / ("long" * 40 + ".jsonl"), rows)
    around = '<iframe src="acted.html#q=www" style="width:360px;height:740px;border:0"></iframe>'
    script = """
      const frame = document.querySelector('iframe');
      if (frame.contentDocument.readyState !== 'complete' || frame.contentDocument.URL === 'about:blank')
        await new Promise(done => frame.addEventListener('load', done, { once: true }));
      const page = frame.contentDocument, seen = {};
      for (const details of page.querySelectorAll('details')) details.open = true;
      page.getElementById('more').click();
      seen.fields = frame.contentWindow.getComputedStyle(page.getElementById('fields')).display;
      const width = () => [frame.contentWindow.innerWidth, page.documentElement.scrollWidth];
      seen.widths = [width()];
      page.getElementById('clear').click();
      seen.widths.push(width());
      page.querySelector('#samples .b').focus();
      const tip = page.getElementById('tip').getBoundingClientRect();
      seen.tip = [Math.round(tip.left), Math.round(tip.right), Math.round(tip.bottom)];
      const back = () => frame.contentWindow.getComputedStyle(page.body).backgroundColor;
      seen.themes = [1, 2, 3].map(() => { page.getElementById('theme').click(); return back(); });
      return seen;
    """
    seen = act(page_of(path, "--tokenizer", "model"), script, around=around)
    assert seen["fields"] == "grid"
    assert [(inner, whole <= inner) for inner, whole in seen["widths"]] == [(360, True)] * 2
    assert seen["tip"][0] >= 0
    assert seen["tip"][1] <= 360
    assert seen["tip"][2] == 740
    light, dark, _ = seen["themes"]
    assert (light, dark) == ("rgb(251, 251, 250)", "rgb(22, 22, 21)")
