"""The pages on scale show measured points, and the limits of their model are those of the code.
A benchmark fails only on a miss that is new or became worse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks import verdict
from benchmarks.cost_model import Wanted, limits
from benchmarks.growth.page import PAGES, written
from eigenveil.errors import RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.study.algorithm import Algorithm

PICTURE = re.compile(r"!\[([^\]]+)\]\((figures/growth/(\w+)\.png)\)")
SMALL = Wanted(records=10_000, columns=10, components=2, sites=4)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_follow_from_its_points(page: Path) -> None:
    assert page.read_text() == written(page.read_text())


def share(wanted: Wanted, name: str) -> float:
    (limit,) = (one for one in limits(wanted) if name in one.name)
    return limit.used / limit.most


@pytest.mark.parametrize(
    ("name", "fits", "beyond"),
    [
        ("sites of a study", {"sites": 1000}, {"sites": 1001}),
        ("records of a study", {"records": 2**31, "sites": 1}, {"records": 2**31 + 1, "sites": 1}),
        (
            "sums of products",
            {"records": 10**9, "columns": 64, "sites": 1000},
            {"records": 10**9, "columns": 65, "sites": 1000},
        ),
    ],
)
def test_limits_of_the_cost_model_are_those_of_a_plan(
    name: str, fits: dict[str, int], beyond: dict[str, int]
) -> None:
    wanted = replace(SMALL, algorithm=Algorithm.GAUSS_COV, **fits)
    assert share(wanted, name) <= 1
    make_plan(wanted.study())
    wanted = replace(wanted, **beyond)  # type: ignore[arg-type]
    assert share(wanted, name) > 1
    with pytest.raises(RequestError):
        make_plan(wanted.study())


@pytest.mark.parametrize(
    ("name", "value", "fails"),
    [("new", 3.0, False), ("new", 3.01, True), ("known", 4.6, False), ("known", 4.7, True)],
)
def test_a_benchmark_fails_if_a_miss_is_not_on_record_or_became_worse(
    name: str, value: float, fails: bool
) -> None:
    with patch.dict(verdict.KNOWN, {"known": 4.05}):
        assert verdict.judge(name, value, 3.0)[1] is fails
