"""`outlive schema`: print the JSON Schema of the run file."""

from __future__ import annotations

import json

import typer


def command() -> None:
    """Print the JSON Schema of the run file, for completion and checks in editors."""
    from outlive.run.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
