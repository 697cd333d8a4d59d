"""The pages on scale show measured points, and the limits of their model are those of the code."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import verdict
from benchmarks.cost_model import Wanted, limits
from benchmarks.growth.page import PAGES, POINTS, written
from benchmarks.growth.parts import parts
from benchmarks.growth.pictures import PLOTS
from benchmarks.growth.points import Points, Setting
from eigenveil.errors import RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.study.algorithm import Algorithm

PICTURE = re.compile(r"!\[([^\]]+)\]\((figures/growth/(\w+)\.png)\)")
LARGEST = 150_000  # bytes of a picture
SMALL = Wanted(records=10_000, columns=10, components=2, sites=4)


def test_every_picture_of_growth_is_shown_with_words_and_has_its_points() -> None:
    shown = {
        name: (words, PAGES[0].parent / path) for words, path, name in PICTURE.findall(PAGES[0].read_text())
    }
    assert set(shown) == set(PLOTS)
    for name, (words, picture) in shown.items():
        assert len(words) > 40
        assert 0 < picture.stat().st_size < LARGEST
        assert Points(POINTS / f"{name}.json").all()
    assert {path.stem for path in POINTS.iterdir()} == {part.name for part in parts()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_what_its_points_say(page: Path) -> None:
    assert page.read_text() == written(page.read_text())


def test_points_state_cores_and_memory_of_the_machine_only() -> None:
    known = {"date", "version", "cores", "memory_gib", *asdict(Setting(what=""))}
    for path in POINTS.glob("*.json"):
        for line in path.read_text().splitlines():
            rest = {name: value for name, value in json.loads(line).items() if name not in known}
            assert rest
            assert all(isinstance(value, float) for value in rest.values())


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


# Verdicts of benchmarks.


@pytest.mark.parametrize(
    ("name", "value", "failed"),
    [
        ("on record", 1.0, False),
        ("on record", 1.5, False),
        ("on record", 2.3, False),
        ("on record", 2.31, True),
        ("another", 1.0, False),
        ("another", 1.01, True),
    ],
)
def test_a_miss_fails_unless_it_is_on_record_and_no_worse(
    name: str, value: float, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "KNOWN", {"on record": 2.0})
    word, fails = verdict.judge(name, value, 1.0)
    assert fails is failed
    assert (word == "ok") is (value <= 1.0)
