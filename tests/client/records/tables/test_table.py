"""What a header says: a name, and a unit in brackets."""

from __future__ import annotations

import pytest

from eigenveil_client.records.tables.source import name_and_unit


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("glucose", ("glucose", None)),
        (" glucose [mmol/L] ", ("glucose", "mmol/L")),
        ("a[b] [c]", ("a[b]", "c")),
        ("[only]", ("[only]", None)),
        ("open [", ("open [", None)),
    ],
)
def test_units_in_brackets(header: str, expected: tuple[str, str | None]) -> None:
    assert name_and_unit(header) == expected
