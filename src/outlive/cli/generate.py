"""`outlive generate`: talk to a checkpoint, through the prompt that it was trained on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.modeling.served import Served


def command(
    model: Annotated[str, typer.Argument(help="A run, a checkpoint, a model or adapter folder, a .gguf, a hub id.")],
    prompt: Annotated[str | None, typer.Argument(help="What to say; without it, lines are read from stdin.")] = None,
    system: Annotated[str | None, typer.Option(help="A system text; a run's own data.system by default.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens of an answer.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Of the sampling.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an answer, with token ids.")] = False,
) -> None:
    """Answer a prompt, or chat line by line."""
    from outlive.modeling.served import open_served
    from outlive.run.home import outlive_home

    settings = _run_settings(Path(model))
    served = open_served(model, outlive_home(), date=settings.get("date"))
    system = system if system is not None else settings.get("system")
    for said in [prompt] if prompt is not None else _lines():
        _answer(served, said, system, as_json, max_tokens=max_tokens, temperature=temperature, seed=seed)


def _answer(served: Served, said: str, system: str | None, as_json: bool, **sampling: Any) -> None:
    from outlive.modeling.decode import generate
    from outlive.text.prompt import served_prompt

    tokenizer = served.tokenizer
    if served.template is None:
        text, ids = said, [*tokenizer.text_frame()[0], *tokenizer.encode(said)]
    else:
        turns = [{"role": "system", "content": system}] if system is not None else []
        text = served_prompt(served.template, [*turns, {"role": "user", "content": said}])
        ids = tokenizer.encode(text)
    sampling["max_new_tokens"] = sampling.pop("max_tokens")
    (answer,) = generate(served.model, [ids], end_ids=tokenizer.end_of_turn_ids, **sampling)
    if as_json:
        found = {"prompt": text, "prompt_ids": ids, "answer": tokenizer.decode(answer), "answer_ids": answer}
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        typer.echo(tokenizer.decode(answer))


def _lines() -> Any:
    """Lines of stdin; on a terminal with a sign that it is the user's turn."""
    terminal = sys.stdin.isatty()
    while True:
        if terminal:
            typer.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _run_settings(folder: Path) -> dict[str, Any]:
    """What the run says about prompts: its system text and date. Empty for what is no run."""
    from outlive.run.config import Run
    from outlive.run.folder import RunFolder

    file = RunFolder(folder).run_yaml
    if not folder.exists() and ("\\" in str(folder) or str(folder).startswith((".", "/"))):
        raise InputError("there is no such folder", where=str(folder))
    if not file.is_file():
        return {}
    data = Run.load(file).data
    return {"system": data.system, "date": data.date}
