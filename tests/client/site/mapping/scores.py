"""Scores of what was found in a file with a known truth."""

from __future__ import annotations

from collections.abc import Iterator

from eigenveil_client.records.discovery.look import SeenTable
from eigenveil_client.records.discovery.persons import find_person, possible_persons
from eigenveil_client.site.config import site_dictionary
from eigenveil_client.site.mapping.matching import ProposedMapping, propose
from tests.client.records.discovery.messy import MessyFile, TrueColumn

CLOSE = 0.01  # relative difference of two factors


def is_true(found: ProposedMapping, truth: TrueColumn) -> bool:
    """True if a proposal is the truth: the column, and the factor of a number."""
    factor = found.linear[0]
    return found.column == truth.column and (bool(found.levels) or abs(factor / truth.factor - 1) < CLOSE)


def columns(file: MessyFile, table: SeenTable) -> Iterator[str]:
    """Yield what became of each column: a true one is proposed (certain or as a question) or missed, and a
    certain proposal may be wrong."""
    person = find_person(table.columns)
    headers = possible_persons(one.header for one in table.columns) if person is None else [person.header]
    yield "person right" if headers == [file.person] else "person wrong"
    without = () if person is None else (person.header,)
    found = {one.header: one for one in propose(table.columns, site_dictionary(None), without=without)}
    for truth in file.columns:
        one = found.get(truth.header)
        right = one is not None and is_true(one, truth)
        if truth.column is not None:
            yield "proposed" if right else "missed"
            if right and one is not None and one.certain:
                yield "certain"
        if one is not None and one.certain and not right:
            yield "wrong without a question"
