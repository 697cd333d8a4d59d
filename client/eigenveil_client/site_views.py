"""Tables for people, as the site's commands print them."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

NUMERIC = ("bytes", "micro-rho", "lower", "upper", "round", "entry", "row", "messages", "numbers", "value")
WORDS = ("what it reveals", "why", "meaning")


def table(*headings: str, title: str | None = None) -> Table:
    """A table; numbers stand to the right, sentences are wrapped."""
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        justify = "right" if heading in NUMERIC else "left"
        made.add_column(heading, justify=justify, no_wrap=heading not in WORDS)  # type: ignore[arg-type]
    return made


def plain(*texts: str) -> tuple[str, ...]:
    """What others wrote, shown as it is: brackets in it are no markup."""
    return tuple(map(escape, texts))


def moment(at: int) -> str:
    """Unix seconds as a date and a time, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
