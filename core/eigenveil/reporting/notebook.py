"""Values as notebooks show them: a small table in HTML, without style of its own but for its edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def card(title: str, rows: Iterable[tuple[str, str]], *, note: str = "", picture: str = "") -> str:
    """A title, named values and a sentence below; `picture` is SVG of our own making, the rest is escaped."""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<div class="eigenveil"><table><caption style="text-align:left"><b>{escape(title)}</b></caption>'
        f"<tbody>{cells}</tbody></table>{picture}{below}</div>"
    )


def grid(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title and a table with a heading over each column; all of it is escaped."""
    top = "".join(f'<th scope="col" style="text-align:left">{escape(one)}</th>' for one in headings)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(one)}</td>' for one in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="eigenveil"><table><caption style="text-align:left"><b>{escape(title)}</b></caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def lines(title: str, rows: Iterable[tuple[str, str]], *, note: str = "") -> str:
    """What `card` shows, where there is only text."""
    named = list(rows)
    width = max((len(name) for name, _ in named), default=0)
    told = [f"  {name:<{width}}  {value}" for name, value in named]
    return printable("\n".join([title, *told, *([note] if note else [])]))


def printable(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def one_line(text: str) -> str:
    """That, and no line of its own: others' words cannot look like ours."""
    return printable(text).replace("\n", "?")
