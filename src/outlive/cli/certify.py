"""`outlive inspect --certify`: what a chat template does with every shape of conversation, spans in colour."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlive.text.certificate import Certificate
    from outlive.text.template import ChatTemplate
    from outlive.text.written import Written

# What looks like a special token where it stands in a template: <|im_end|>, <｜User｜>, <end_of_turn>, [/INST].
_SPECIAL = re.compile(
    r"<[|｜][^<>{}'\"\s]*>|<[^<>{}'\"\s|]*[|｜]>|<(?:start|end)_of_[a-z]+>|<(?:eos|bos)>|\[/?[A-Z_]{3,}\]"
)
_KINDS = {
    "append_only": "a conversation is one text, and each of its turns is exact in it",
    "rewrites_history": "some conversations are exact one turn at a time only, one sample per turn",
    "no_end_of_turn": "nothing closes an answer, so a model would not learn to stop",
    "refused": "plain chats have no proved mask",
}


def certify_file(file: Path, tokenizer: Path | None, special: Sequence[str], as_json: bool) -> None:
    """Print the certificate of the template in `file`. Raises InputError and TemplateError."""
    from outlive.text.certificate import certify, look

    template = _template(file, tokenizer, special)
    if tokenizer is None and not special:
        named = " ".join(template.added_tokens) or "none"
        note = f"no tokenizer is named: taken for special tokens, by their form: {named}"
        typer.echo(f"note: {note}; --tokenizer DIR or --special TOKEN says which are", err=True)
    certificate = certify(template)
    if as_json:
        sys.stdout.buffer.write((json.dumps(asdict(certificate), ensure_ascii=False) + "\n").encode())
        return
    _print(file, template, certificate, tokenizer is not None)
    for shape, found in look(template).items():
        if isinstance(found, list):
            for number, one in enumerate(found):
                _show(f"{shape}, {one.how}" + (f", turn {number + 1}" if len(found) > 1 else ""), one)
        else:
            typer.echo(f"{shape}: refused: {found.reason}: {found.detail}\n")


def _template(file: Path, tokenizer: Path | None, special: Sequence[str]) -> ChatTemplate:
    from outlive.run.errors import InputError
    from outlive.text.template import ChatTemplate
    from outlive.text.tokenizer import Tokenizer

    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the template can't be read: {error}", where=str(file), fix="name a .jinja file") from error
    if tokenizer is None:
        ends = [token for token in special if token in ("</s>", "<|endoftext|>")]
        names = {"bos_token": "<s>", "eos_token": "</s>"}
        found = [*(special or sorted(set(_SPECIAL.findall(source))))]
        written = [token for name, token in names.items() if token in source or re.search(rf"\b{name}\b", source)]
        return ChatTemplate(source, names, ends, name=str(file), added_tokens=list(dict.fromkeys([*found, *written])))
    known = Tokenizer.load(tokenizer)
    known.add_special(special)
    return ChatTemplate.of(known, source, name=str(file))


def _print(file: Path, template: ChatTemplate, certificate: Certificate, served: bool) -> None:
    typer.echo(f"{file.name}: {certificate.kind}: {_KINDS[certificate.kind]}")
    typer.echo(f"ends of turn: {' '.join(certificate.ends) or 'none'}")
    if certificate.learned_ends and served:
        declared = " ".join(template.end_of_turn) or "nothing that is declared"
        typer.echo(
            f"note: a server stops at {declared}, this template ends turns with {' '.join(certificate.learned_ends)}: "
            "name its id as eos_token_id in generation_config.json"
        )
    calls = "lost" if certificate.drops_tool_calls else f"arguments as {certificate.arguments}"
    system = "shown" if certificate.takes_system else "not shown"
    typer.echo(f"system turn: {system}; tools: {'shown' if certificate.takes_tools else 'not shown'}; calls: {calls}\n")


def _show(title: str, one: Written) -> None:
    from rich.text import Text

    from outlive.cli.show.terminal import make_console, palette, sample_text, show_heading
    from outlive.cli.show.visible import Stretch

    console, parts, place = make_console(), list[Stretch](), 0
    for span in one.spans:
        parts += [
            Stretch(one.text[place : span.start], 0.0, False),
            Stretch(one.text[span.start : span.end], 1.0, False),
        ]
        place = span.end
    text: Text = sample_text([*parts, Stretch(one.text[place:], 0.0, False)], palette(console))
    show_heading(console, title, f"{len(one.spans)} span{'' if len(one.spans) == 1 else 's'}")
    console.print(text, soft_wrap=not console.is_terminal)
