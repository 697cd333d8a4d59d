"""Rows that print as a table, show as one in a notebook, and become a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any, TypeVar, overload

from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text

from eigenveil.reporting.notebook import grid, printable

T = TypeVar("T")
WIDTH = 120  # of what is printed: a notebook's cell says nothing of its own


class Table(Sequence[T]):
    """Frozen values of one kind. `cells` says what is shown of each, under which heading."""

    def __init__(self, title: str, rows: Sequence[T], cells: Callable[[T], Mapping[str, Any]]) -> None:
        self.title = title
        self._rows = tuple(rows)
        self._cells = cells

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...
    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        return self._rows[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows)

    def to_pandas(self) -> Any:
        """The same as a DataFrame, which needs pandas."""
        import pandas

        return pandas.DataFrame([dict(self._cells(one)) for one in self])

    def __repr__(self) -> str:
        headings, lines = self._texts()
        printed = Printed(*headings, title=Text(self.title), title_justify="left")
        for line in lines:
            printed.add_row(*map(Text, line))
        console = Console(file=StringIO(), width=WIDTH, force_jupyter=False)  # which would display it
        console.print(printed if lines else Text(f"{self.title}: none"))
        told: str = console.file.getvalue()  # type: ignore[attr-defined]
        return printable(told.rstrip())

    def _repr_html_(self) -> str:
        return grid(self.title, *self._texts())

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        found = [self._cells(one) for one in self]
        headings = list(found[0]) if found else []
        return headings, [[_text(row[heading]) for heading in headings] for row in found]


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M} UTC"
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)
