"""Values as notebooks show them: a small table in HTML, without style of its own but for its edges."""

from __future__ import annotations

from collections.abc import Iterable
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
