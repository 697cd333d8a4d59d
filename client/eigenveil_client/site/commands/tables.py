"""Tables for people, as the site's commands print them."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from eigenveil_common.command import console

NUMERIC = (
    "bytes",
    "% of its price",
    "% of the budget",
    "epsilon",
    "lower",
    "upper",
    "round",
    "entry",
    "row",
    "messages",
    "numbers",
    "value",
)
WHOLE = 2**16  # characters: wider than any row


def table(*headings: str, title: str | None = None) -> Table:
    """A table; numbers stand to the right, and what is too long is folded, never cut: it is evidence."""
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        justify = "right" if heading in NUMERIC else "left"
        made.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return made


def show(made: Table) -> None:
    """Print a table: one line a row into a file or a pipe, and as wide as a person's terminal is."""
    if not console.is_terminal:
        made.width = console.measure(made, options=console.options.update_width(WHOLE)).maximum
    console.print(made, crop=False)


def plain(*texts: str) -> tuple[str, ...]:
    """What others wrote, shown as it is: brackets in it are no markup."""
    return tuple(map(escape, texts))


def moment(at: int) -> str:
    """Unix seconds as a date and a time, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
