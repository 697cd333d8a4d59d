"""How far a study is, while it is waited for: on a terminal, in a notebook, or in lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from eigenveil_client.analyst.display import Display
from eigenveil_common.command import console
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class Waited(Protocol):
    """What is waited for."""

    name: str

    @property
    def short(self) -> str: ...


class Shows(Protocol):
    def take(self, message: pb.StudyEvent | str | None) -> None:
        """An event, a sentence about the connection, or nothing new."""


@contextmanager
def watching(run: Waited) -> Iterator[Shows]:
    """Where a run is shown until it has ended."""
    if in_notebook():
        yield _Cell(run)
        return
    with Display(console, f"{run.name} ({run.short})") as display:
        yield display


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; IPython is not imported to know."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class _Cell:
    """The run's own card, drawn anew below the cell with each event."""

    def __init__(self, run: Waited) -> None:
        from IPython.display import display

        self._run = run
        self._handle: Any = display(run, display_id=True)  # type: ignore[no-untyped-call]

    def take(self, message: pb.StudyEvent | str | None) -> None:
        if isinstance(message, str):
            print(message)
        elif message is not None:
            self._handle.update(self._run)
