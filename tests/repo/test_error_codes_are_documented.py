"""Each error code opens a table row somewhere in the documentation, for example
`| `bad-study` | what happened and what to do | INVALID_ARGUMENT | 2 |`, and the gRPC status and
exit code in that row are the ones of the code."""

from __future__ import annotations

from eigenveil.errors import Code
from tests.repo.tree import documents

Row = tuple[str, ...]


def rows(text: str) -> list[Row]:
    """Cells of every Markdown table row, without backticks."""
    lines = (line.strip() for line in text.splitlines())
    tables = (line.strip("|").split("|") for line in lines if line.startswith("|"))
    return [tuple(cell.strip().strip("`") for cell in cells) for cells in tables]


def code_rows(text: str) -> list[Row]:
    """The rows that open with the name of an error code."""
    codes = {code.value for code in Code}
    return [row for row in rows(text) if row[0] in codes]


def is_right(row: Row) -> bool:
    rule = Code(row[0])
    return rule.status in row and str(rule.exit_code) in row


def documented() -> list[Row]:
    """Rows of every page."""
    return [row for path in documents() for row in code_rows(path.read_text())]


def test_rows_are_read() -> None:
    rule = Code.BUG
    right = f"| `{Code.BUG.value}` | our fault | `{rule.status}` | {rule.exit_code} |"
    wrong = f"| `{Code.BUG.value}` | our fault | `{rule.status}` | {rule.exit_code + 1} |"
    assert [is_right(row) for row in code_rows(f"| code |\n|---|\n{right}\n{wrong}")] == [True, False]


def test_every_code_has_a_row() -> None:
    assert {code.value for code in Code} - {row[0] for row in documented()} == set()


def test_every_row_is_right() -> None:
    assert [row for row in documented() if not is_right(row)] == []
