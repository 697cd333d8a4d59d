"""What the product asks of a database, asked of each."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.migrations import Expect
from tests.common.storage.places import Place
from tests.support import refused

SCHEMA = """
CREATE TABLE t (
  "index" INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  "values" BLOB,
  x REAL
) STRICT;
CREATE TABLE log (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL REFERENCES t (name)
) STRICT;
CREATE TRIGGER log_never_changes BEFORE UPDATE ON log
  BEGIN SELECT RAISE(ABORT, 'the log is append-only; ask'); END;
CREATE TRIGGER log_is_never_deleted BEFORE DELETE ON log
  BEGIN SELECT RAISE(ABORT, 'the log is append-only; ask'); END;
"""
INSERT = 'INSERT INTO t ("index", name, "values", x) VALUES (?, ?, ?, ?)'


def test_values_come_back_as_they_went(place: Place) -> None:
    database = place.open(SCHEMA)
    rows: list[tuple[Any, ...]] = [
        (-(2**63), "least", b"\x00\xff" * 1000, -0.1),
        (0, "", b"", 5e-324),
        (2**63 - 1, "Ünïcode ? ' \" % $1", None, None),
    ]
    with database.transaction() as change:
        for row in rows:
            change.execute(INSERT, row)
    found = database.rows('SELECT "index", name, "values", x FROM t ORDER BY "index"')
    assert [tuple(row) for row in found] == rows
    assert all(type(row["values"]) in (bytes, type(None)) for row in found)


def test_rows_are_read_by_name_and_by_position(place: Place) -> None:
    database = place.open(SCHEMA)
    with database.transaction() as change:
        change.execute(INSERT, (1, "a", None, 1.5))
        row = change.execute('SELECT name, x AS "Size" FROM t').fetchone()
        assert change.execute("SELECT 1 FROM t WHERE name = ?", ("b",)).fetchone() is None
    assert row is not None
    assert (row["name"], row["Size"], row[0], row[1]) == ("a", 1.5, "a", 1.5)
    assert dict(row) == {"name": "a", "Size": 1.5}
    assert len(row) == 2
    with pytest.raises(KeyError):
        row["other"]
    assert "a" not in repr(row).replace("name", "")


def test_what_looks_like_a_parameter_in_a_text_is_none(place: Place) -> None:
    rows = place.open(SCHEMA).rows("SELECT '?' AS mark, '50 %' AS part, 1 AS one WHERE 1 = ?", (True,))
    assert dict(rows[0]) == {"mark": "?", "part": "50 %", "one": 1}


def test_text_sorts_by_its_bytes(place: Place) -> None:
    database = place.open(SCHEMA)
    names = ["B", "a", "a-b", "aa", "é"]
    with database.transaction() as change:
        for index, name in enumerate(reversed(names)):
            change.execute(INSERT, (index, name, None, None))
    assert [row[0] for row in database.rows("SELECT name FROM t ORDER BY name")] == names


def test_a_key_that_is_left_out_is_the_next(place: Place) -> None:
    database = place.open(SCHEMA)
    with database.transaction() as change:
        change.execute(INSERT, (1, "a", None, None))
        for _ in range(3):
            change.execute("INSERT INTO log (name) VALUES (?)", ("a",))
    assert [row["id"] for row in database.rows("SELECT id FROM log ORDER BY id")] == [1, 2, 3]


def refuse() -> None:
    """As a decision within a transaction may."""
    raise RequestError(Code.BUDGET, "planted")


def test_a_transaction_is_all_or_nothing(place: Place) -> None:
    database = place.open(SCHEMA)
    with refused(Code.BUDGET), database.transaction() as change:
        change.execute(INSERT, (1, "a", None, None))
        refuse()
    with refused(Code.STORAGE), database.transaction() as change:
        change.execute(INSERT, (1, "a", None, None))
        change.execute(INSERT, (2, "a", None, None))
    assert database.rows("SELECT * FROM t") == []
    with database.transaction() as change:
        change.execute(INSERT, (1, "a", None, None))
    assert len(place.open(SCHEMA).rows("SELECT * FROM t")) == 1


def test_nobody_sees_what_is_not_committed(place: Place) -> None:
    writer, reader = place.open(SCHEMA), place.open(SCHEMA)
    with writer.transaction() as change:
        change.execute(INSERT, (1, "a", None, None))
        assert reader.rows("SELECT * FROM t") == []
    assert len(reader.rows("SELECT * FROM t")) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET name = 'b'",
        "DELETE FROM log",
        "DELETE FROM log WHERE id = 1",
        "INSERT INTO log (id, name) VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET name = 'b'",
    ],
)
def test_append_only_tables_are_only_appended_to(place: Place, statement: str) -> None:
    database = place.open(SCHEMA)
    with database.transaction() as change:
        for index, name in enumerate("ab"):
            change.execute(INSERT, (index, name, None, None))
        change.execute("INSERT INTO log (name) VALUES ('a')")
    with refused(Code.STORAGE, "the log is append-only; ask"), database.transaction() as change:
        change.execute(statement)
    assert [row["name"] for row in database.rows("SELECT name FROM log")] == ["a"]


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [
        ("INSERT INTO t (name) VALUES (NULL)", ()),
        ("INSERT INTO log (name) VALUES ('nobody')", ()),
        ("INSERT INTO nothing VALUES (1)", ()),
        ("no statement", ()),
        (INSERT, (2**63, "a", None, None)),
        (INSERT, (1, "a", None, "text")),
        (INSERT, (1, "a")),
    ],
)
def test_every_error_is_a_storage_error(place: Place, statement: str, parameters: tuple[Any, ...]) -> None:
    database = place.open(SCHEMA)
    with refused(Code.STORAGE), database.transaction() as change:
        change.execute(statement, parameters)
    assert database.rows("SELECT * FROM t") == []


def test_an_error_names_no_value(place: Place) -> None:
    database = place.open(SCHEMA)
    with database.transaction() as change:
        change.execute(INSERT, (1, "secret", None, None))
    with pytest.raises(InternalError) as caught, database.transaction() as change:
        change.execute(INSERT, (2, "secret", None, None))
    assert "secret" not in str(caught.value)


def test_transactions_of_two_connections_take_turns(place: Place) -> None:
    """Each reads a number and writes the next one: without turns, some would write the same."""
    connections = [place.open(SCHEMA), place.open(SCHEMA)]
    with connections[0].transaction() as change:
        change.execute(INSERT, (1, "count", None, 0.0))

    def count(change: Connection) -> None:
        row = change.execute("SELECT x FROM t").fetchone()
        assert row is not None
        change.execute("UPDATE t SET x = ?", (row["x"] + 1,))

    def work(number: int) -> None:
        for _ in range(25):
            with connections[number].transaction() as change:
                count(change)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connections[0].rows("SELECT x FROM t")[0]["x"] == 100.0


def test_a_new_database_and_an_old_one_are_told_apart(place: Place) -> None:
    with refused(Code.STORAGE, "no tables", "restore"):
        place.open(SCHEMA, expect=Expect.EXISTING)
    place.open(SCHEMA, expect=Expect.NEW)
    with refused(Code.CONFLICT, "already"):
        place.open(SCHEMA, expect=Expect.NEW)
    assert place.open(SCHEMA, expect=Expect.EXISTING).rows("SELECT * FROM t") == []
