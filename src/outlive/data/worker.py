"""`python -m outlive.data.worker`: one of the processes of `workers`. A recipe and chunks come in, made ones go out.

What it reads is written by the process that started it, and by nobody else.
"""

from __future__ import annotations

import os
import pickle
import sys

from outlive.data.chunks import Recipe
from outlive.data.workers import leave_signals_to_parent, receive, send
from outlive.run.errors import OutliveError


def main() -> None:
    """Make chunks until there are no more."""
    leave_signals_to_parent()
    given = sys.stdin.buffer
    found = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no message
    first = receive(given)
    if first is None:
        return
    recipe: Recipe = pickle.loads(first)
    while (chunk := receive(given)) is not None:
        try:
            made: object = recipe.make(pickle.loads(chunk))
        except OutliveError as error:
            made = error
        send(found, pickle.dumps(made, protocol=5))


if __name__ == "__main__":
    main()
