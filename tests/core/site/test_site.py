"""[P1] An answer is one exact vector of integers: whatever the order, the threads, the chunks or the
split over sites, and equal to plain Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from eigenveil.aggregation import aggregate
from eigenveil.errors import Code
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import (
    Query,
)
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from tests.core.queries import kinds
from tests.core.queries.kinds import every_query
from tests.core.records import hostile_rows
from tests.support import a_query, random_rows, refused

KINDS = list(every_query())
ROWS = np.concatenate([random_rows(9000, 4), hostile_rows(400, frozen(np.zeros(4, dtype=int)), S, 2)])


def same(left: IntArray, right: IntArray) -> bool:
    return left.dtype == right.dtype == np.int64 and left.tolist() == right.tolist()


@pytest.fixture(scope="module", params=KINDS)
def answered(request: pytest.FixtureRequest) -> tuple[Query, IntArray]:
    """A query, and its answer over ROWS as the daemon computes it."""
    query = every_query()[request.param]
    return query, Site(ROWS).answer(query)


def test_an_answer_does_not_depend_on_how_records_lie_or_on_earlier_queries(
    answered: tuple[Query, IntArray],
) -> None:
    query, expected = answered
    wide, used = np.zeros((len(ROWS), 9), dtype=np.int16), Site(ROWS)
    wide[:, 1::2] = ROWS
    for other in every_query().values():
        used.answer(other)
    sites = {
        "shuffled": Site(ROWS[np.random.default_rng(8).permutation(len(ROWS))]),
        "reversed": Site(ROWS[::-1]),
        "by column": Site(np.asfortranarray(ROWS)),
        "part of a wider table": Site(wide[:, 1::2]),
        "asked before": used,
        "small chunks": Site(ROWS, chunk=70),
        "large chunks": Site(ROWS, chunk=4096),
    }
    for name, site in sites.items():
        assert same(site.answer(query), expected), name
    with threadpool_limits(1):
        assert same(Site(ROWS).answer(query), expected)
    assert same(Site(ROWS[-99:], chunk=1).answer(query), Site(ROWS[-99:]).answer(query))


def test_the_split_over_sites_does_not_matter(answered: tuple[Query, IntArray]) -> None:
    query, expected = answered
    for cuts in ([], [1], [0, 0, 5000], [3, 4097, 8999]):
        parts = {f"s{i}": Site(part).answer(query) for i, part in enumerate(np.split(ROWS, cuts))}
        assert same(aggregate(a_query(query), parts), expected)


def test_the_reference_in_python_integers_agrees(answered: tuple[Query, IntArray]) -> None:
    query, _ = answered
    some = ROWS[-400:]
    assert Site(some).answer(query).tolist() == kinds.answer(some.tolist(), query)


def test_a_query_about_another_number_of_columns_is_refused() -> None:
    for name, query in every_query(d=5).items():
        if name != "count":
            with refused(Code.BAD_DATA, "5 columns", "4"):
                Site(ROWS).answer(query)
