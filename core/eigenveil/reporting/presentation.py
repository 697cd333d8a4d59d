"""Small tables for notebooks, in HTML and in text. Names of the query kinds for people; JSON, digests and the
wire use the kinds themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, get_args

from eigenveil.errors import Code, RequestError, install_command
from eigenveil.queries import KINDS, NAMES, AdditiveQuery

LEFT = 'style="text-align:left"'


def summary_html(title: str, rows: Iterable[tuple[str, str]], *, note: str = "", picture: str = "") -> str:
    """Return a title, named values and a note as HTML, with a paragraph for each line of the note; `picture`
    is trusted HTML, the rest is escaped."""
    cells = "".join(
        f'<tr><th scope="row" {LEFT}>{escape(name)}</th><td {LEFT}>{escape(value)}</td></tr>'
        for name, value in rows
    )
    below = "".join(f"<p>{escape(line)}</p>" for line in note.splitlines())
    return _table(title, f"<tbody>{cells}</tbody>", picture + below)


def table_html(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a title and a table with column headings as HTML; everything is escaped."""
    top = "".join(f'<th scope="col" {LEFT}>{escape(one)}</th>' for one in headings)
    body = "".join(
        "<tr>" + "".join(f"<td {LEFT}>{escape(one)}</td>" for one in row) + "</tr>" for row in rows
    )
    return _table(title, f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>")


def _table(title: str, content: str, below: str = "") -> str:
    caption = f"<caption {LEFT}><b>{escape(title)}</b></caption>"
    return f'<div class="eigenveil"><table>{caption}{content}</table>{below}</div>'


def table_text(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the content of `table_html` as text, the cells of the first column to the left."""
    lines = [headings, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    aligned = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
    return "\n".join([title, *(f"  {one}" for one in aligned)])


def dataframe(columns: Mapping[str, Sequence[Any]], index: Sequence[str] | None = None) -> Any:
    """Return a pandas DataFrame. Raises RequestError: code `bad-config`, pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError as lack:
        todo = f"a DataFrame needs pandas, which is not installed. Run: {install_command('pandas')}"
        raise RequestError(Code.BAD_CONFIG, todo) from lack
    return pandas.DataFrame(dict(columns), index=index)


def summary_text(title: str, rows: Iterable[tuple[str, str]], *, note: str = "") -> str:
    """Return the content of `summary_html` as text."""
    named = list(rows)
    width = max((len(name) for name, _ in named), default=0)
    value_lines = [f"  {name:<{width}}  {value}" for name, value in named]
    return printable_text("\n".join([title, *value_lines, *([note] if note else [])]))


def printable_text(text: str) -> str:
    """Return text without control characters, each replaced by a question mark."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def one_line(text: str) -> str:
    """Return printable text on one line, so that foreign text cannot imitate a line of ours."""
    return printable_text(text).replace("\n", "?")


KIND_LABELS: dict[str, str] = {kind: query.label for kind, query in KINDS.items()}
# Kinds that are released as their sum plus noise. Of the others, the label says what is released.
NOISED_KINDS = frozenset(NAMES[query] for query in get_args(AdditiveQuery))


def kind_label(kind: str) -> str:
    """Return the name of a kind for people; the kind itself if this version does not know it."""
    return KIND_LABELS.get(kind, kind)


def sent_kind_label(kind: str, *, masked: bool) -> str:
    """Return the name of a kind and who adds the noise."""
    if kind not in NOISED_KINDS:
        return kind_label(kind)
    return f"{kind_label(kind)} ({'masked, with noise inside' if masked else 'the coordinator adds noise'})"
