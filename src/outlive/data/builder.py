"""`python -m outlive.data.builder`: prepares one source while the process that started it does something else.

It is told what to prepare by one message, and sends notes, how far it is, and how it ended.
"""

from __future__ import annotations

import os
import pickle
import threading
from dataclasses import replace
from typing import NamedTuple

from outlive.data.preparer import Preparer, no_progress
from outlive.data.workers import pipes_of_child, receive, send
from outlive.run.config import Source
from outlive.run.errors import OutliveError
from outlive.run.notes import to_stderr


class Task(NamedTuple):
    """What is to be prepared, as a message can carry it."""

    preparer: Preparer
    source: Source

    @classmethod
    def of(cls, preparer: Preparer, source: Source) -> Task:
        """Without the functions that belong to this process."""
        return cls(replace(preparer, say=to_stderr, progress=no_progress, elsewhere=None), source)


def main() -> None:
    """Prepare one source; end at once when the process that started this one does."""
    given, told = pipes_of_child()
    first = receive(given)
    if first is None:
        return
    task: Task = pickle.loads(first)
    threading.Thread(target=_end_with, args=(given.fileno(),), daemon=True).start()

    def tell(message: object) -> None:
        send(told, pickle.dumps(message, protocol=5))

    try:
        replace(task.preparer, say=tell, progress=tell).store_pair(task.source, 0.0)
        tell(None)
    except OutliveError as error:
        tell(error)


def _end_with(parent: int) -> None:
    """Wait for the end of the process that started this one, which says nothing more through its pipe. What is prepared
    so far stays, for the next start to go on from."""
    os.read(parent, 1)
    os._exit(0)


if __name__ == "__main__":
    main()
