"""SQLite reports no DELETE without WHERE, and no REPLACE, of a watched table: consent read before one would
count as present [TM23]."""

from __future__ import annotations

import re

from eigenveil_client.site.state.store import CONSENT_TABLES
from tests.repo.tree import files

TABLE = rf"(?:{'|'.join(CONSENT_TABLES)}|[{{][^}}]*[}}])"  # or a name that is filled in
UNREPORTED = re.compile(
    rf"DELETE\s+FROM\s+{TABLE}(?![\w}}])(?!\s+(?:AS\s+\w+\s+)?WHERE\b)|\bREPLACE\s+INTO\s+{TABLE}(?![\w}}])",
    re.IGNORECASE,
)


def unreported(text: str) -> list[str]:
    return [found.group() for found in UNREPORTED.finditer(text)]


def test_every_change_of_a_watched_table_is_reported() -> None:
    found = {path.name: unreported(path.read_text("utf-8")) for path in files("*.py", "client", "common")}
    assert {name: statements for name, statements in found.items() if statements} == {}


def test_it_would_be_found() -> None:
    table = CONSENT_TABLES[0]
    for statement in (f"DELETE FROM {table}", "delete from {name}", f"INSERT OR REPLACE INTO {table} VALUES"):
        assert unreported(f'change.execute("{statement}")')
    for statement in (f"DELETE FROM {table} WHERE x = 1", f"DELETE FROM {table}_other", "DELETE FROM calls"):
        assert not unreported(f'change.execute("{statement}")')
