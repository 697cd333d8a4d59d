"""What every database offers, whichever it is: transactions, rows by name, one error for all that fails.

Statements use `?` for parameters and the SQL that SQLite and PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Row:
    """One row of a result; its values by column name or by position."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            return self._values[key]
        try:
            return self._values[self._names.index(key)]
        except ValueError:
            raise KeyError(key) from None

    def keys(self) -> tuple[str, ...]:
        """The columns, so that `dict(row)` works."""
        return self._names

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Row({', '.join(self._names)})"  # never the values


class Connection:
    """An open transaction; `run` gives all rows of a statement with its parameters."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[str, Sequence[object]], list[Row]]) -> None:
        self._run = run

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """All rows of one statement, read already: nothing stays open behind it."""
        return self._run(statement, parameters)

    def insert(self, table: str, row: Mapping[str, object]) -> None:
        """Add one row, its values by column."""
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        self._run(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))


class Database(Protocol):
    """One connection, shared by threads; every change is one explicit transaction.

    Raises:
        InternalError: code `storage`, for any error of the disk, the network or the database. A daemon
            that sees it must exit: after a failed write nothing may be released.
    """

    def transaction(self) -> AbstractContextManager[Connection]:
        """All or nothing, durable on exit; other threads and processes wait."""

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """The result of a read."""

    def close(self) -> None:
        """Close the connection."""
