"""`python -m outlive.data.worker`: one of the processes of `workers`. A recipe and chunks come in, made ones go out.

What it reads is written by the process that started it, and by nobody else.
"""

from __future__ import annotations

import pickle

from outlive.data.chunks import Recipe
from outlive.data.workers import pipes_of_child, receive, send
from outlive.run.errors import OutliveError


def main() -> None:
    """Make chunks until there are no more."""
    given, found = pipes_of_child()
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
