"""`outlive generate`: talk to a checkpoint, through the prompt that it was trained on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    checkpoint: Annotated[
        Literal["latest", "best"], typer.Option(help="Which of a run's checkpoints; best by validation loss.")
    ] = "latest",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an answer, with token ids.")] = False,
) -> None:
    """Answer a prompt, or chat line by line."""
    served, own_system = opened(model, checkpoint)
    system = system if system is not None else own_system
    for said in [prompt] if prompt is not None else _lines():
        found = answer(served, said, system, max_new_tokens=max_tokens, temperature=temperature, seed=seed)
        typer.echo(json.dumps(found, ensure_ascii=False) if as_json else found["answer"])


def opened(model: str, checkpoint: Literal["latest", "best"] = "latest") -> tuple[Served, str | None]:
    """The model as its run trained it, and the run's own system text. Which checkpoint answers is said on stderr."""
    from outlive.modeling.served import open_served
    from outlive.run.home import outlive_home

    settings = run_settings(Path(model))
    trusted = bool(settings.get("trust_remote_code"))
    served = open_served(
        model, outlive_home(), date=settings.get("date"), which=checkpoint, trust_remote_code=trusted,
        say=lambda note: typer.echo(f"note: {note}", err=True),
    )  # fmt: skip
    return served, settings.get("system")


def answer(served: Served, said: str, system: str | None, **sampling: Any) -> dict[str, Any]:
    """The answer to a user's turn: prompt and answer, as text and as token ids. `sampling` goes to `generate`."""
    from outlive.modeling.decode import generate
    from outlive.text.prompt import served_prompt

    tokenizer = served.tokenizer
    if served.template is None:
        text, ids = said, [*tokenizer.text_frame()[0], *tokenizer.encode(said)]
    else:
        turns = [{"role": "system", "content": system}] if system is not None else []
        text = served_prompt(served.template, [*turns, {"role": "user", "content": said}])
        ids = tokenizer.encode(text)
    (found,) = generate(served.model, [ids], end_ids=tokenizer.end_of_turn_ids, **sampling)
    return {"prompt": text, "prompt_ids": ids, "answer": tokenizer.decode(found), "answer_ids": found}


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


def run_settings(folder: Path) -> dict[str, Any]:
    """What the run says of prompts (system text, date) and of trust in the model's code. Empty for what is no run."""
    from outlive.run.config import Run
    from outlive.run.folder import RunFolder

    file = RunFolder(folder).run_yaml
    if not folder.exists() and ("\\" in str(folder) or str(folder).startswith((".", "/"))):
        raise InputError("there is no such folder", where=str(folder), fix="name a model, a checkpoint or a run folder")
    if not file.is_file():
        return {}
    run = Run.load(file)
    return {"system": run.data.system, "date": run.data.date, "trust_remote_code": run.trust_remote_code}
