"""The report states the required numbers in valid HTML and escapes column names."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil import Simulation, simulate
from eigenveil.reporting.figures.captions import loadings_caption, scree_caption
from eigenveil.reporting.figures.figure import ReleaseFigureData
from eigenveil.reporting.report import SUPERSCRIPTS, bound, number, render
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Study

LOWERED = {raised: lowered for lowered, raised in SUPERSCRIPTS.items()}
VOID = {"source", "meta", "img", "br", "hr", "link", "input"}
NASTY = ('<script>alert("1")</script>', "cost ($/$)", "température ½", "x" * 80, "名前")


@cache
def simulation(
    d: int = 6, k: int = 2, algorithm: Algorithm = Algorithm.GAUSS_COV, seed: int | None = 1
) -> Simulation:
    """Run of a small study; site-b misses round 1."""
    names = (*NASTY, *(f"c{i}" for i in range(d)))[:d]
    study = Study(
        name="pilot",
        purpose="Does <it> work?",
        columns=tuple(Column(name=name, unit="m&m", lower=-4, upper=4) for name in names),
        epsilon=3.0,
        delta=1e-6,
        components=k,
        algorithm=algorithm,
        federation=Federation(sites=("site-a", "site-b"), quorum=1),
    )
    generator = np.random.default_rng(0)
    parts = {name: generator.normal(size=(300, d)) for name in study.federation.sites}
    return simulate(study, parts, seed=seed, drop_outs={1: ["site-b"]})


class Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: Counter[str] = Counter()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self.ids.update(value for name, value in attrs if name == "id" and value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@cache
def plain() -> str:
    return render(simulation())


def check(page: str) -> Checker:
    """Parse a page and insist that it is whole and loads nothing."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert set(checker.ids.values()) == {1}
    for name, value in checker.attributes:
        if name in ("src", "href", "srcset"):
            assert value is not None
            assert value.startswith("data:image/svg+xml;base64,")
    assert "url(" not in page
    assert "http://" not in page
    return checker


def pictures(page: str) -> list[str]:
    """The SVG pictures of a page, each parsed once."""
    found = [base64.b64decode(text).decode() for text in re.findall(r"base64,([A-Za-z0-9+/=]+)", page)]
    for one in found:
        ElementTree.fromstring(one)
    return found


@pytest.mark.parametrize(
    ("algorithm", "k"),
    [
        (Algorithm.GAUSS_COV, 1),
        pytest.param(Algorithm.GAUSS_COV, 6, marks=pytest.mark.slow),
        pytest.param(Algorithm.DP_PCA, 2, marks=pytest.mark.slow),
    ],
)
def test_a_report_is_one_complete_page(algorithm: Algorithm, k: int) -> None:
    page = render(simulation(6, k, algorithm), public_key="ab" * 32)
    checker = check(page)
    found = pictures(page)
    known = algorithm is Algorithm.GAUSS_COV  # the noise of a covariance: then there are correlations
    assert checker.tags["img"] == len(found) / 2 == (3 if k == 1 else 4) + known  # wide, and for a phone
    assert ('id="correlations"' in page) is known
    message = {value for name, value in checker.attributes if name == "alt"}
    assert len(message) == checker.tags["img"]
    assert message >= {
        words(ReleaseFigureData.of(simulation(6, k, algorithm)))
        for words in (scree_caption, loadings_caption)
    }


def test_a_report_states_guarantee_rounds_sites_and_components(unpainted: None) -> None:
    run = simulation(seed=None)
    source, text = run.document, check(render(run, public_key="ab" * 32)).text
    assert source["guarantee"]["text"] in text
    assert "Does <it> work?" in text
    assert source["plan_digest"] in text
    assert f"eigenveil verify release.zip --key {'ab' * 32}" in text
    assert bound(source["guarantee"]["epsilon"]) in text
    assert bound(source["guarantee"]["other_epsilon"]) in text
    assert "Formal guarantee" in text
    for site in ("site-a", "site-b"):
        assert site in text
    assert "dropped out" in text
    for entry in source["rounds"]:
        assert number(entry["micro_rho"]) in text
    for rounds in (source["rounds"], [one for one in source["rounds"] if "site-b" in one["present"]]):
        tenths = -(-1000 * sum(entry["micro_rho"] for entry in rounds) // source["plan"]["micro_rho"])
        assert f"{tenths // 10}.{tenths % 10} %" in text  # rounded up, as what is spent is
    for value in run.result.components.flat:
        assert f"{value:+.3f}".replace("-", "−") in text
    assert run.result.predicted_sin_angle is not None
    assert number(run.result.predicted_sin_angle) in text


def test_stated_rules_of_sites_are_one_line_and_are_escaped(unpainted: None) -> None:
    stated = {"approval": "manual", "thresholds": {"max_missing": 0.5, "max_out_of_bounds": 0.025}}
    sites = {"site-a": stated, "<b>": stated, "site-c": None}
    page = render(replace(simulation(), document=simulation().document | {"sites": sites}))
    assert (
        "site-a, <b>: at most missing 50 %, out of bounds 2.5 % of a column (a person there decides); "
        "site-c: nothing." in check(page).text
    )
    assert "had stated" not in render(simulation())


def test_column_names_are_escaped_everywhere() -> None:
    page = plain()
    checker = check(page)
    assert checker.tags["script"] == 0
    assert NASTY[0] in checker.text
    assert any("cost ($/$)" in one for one in pictures(page))
    assert not any("<script" in one for one in pictures(page))


def test_many_columns_and_components() -> None:
    page = render(simulation(60, 7))
    check(page)
    assert "The figure shows the 48 strongest columns" in page
    assert 'id="correlations"' not in page


def test_a_study_without_prediction_has_a_report(unpainted: None) -> None:
    unpredicted = replace(simulation(), result=replace(simulation().result, sin_error=None))
    assert "There is no predicted error" in check(render(unpredicted)).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.25, "−0.25"),
        (12345.6, "12\N{NARROW NO-BREAK SPACE}346"),
        (1e-6, "1 × 10⁻⁶"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_readable(value: float, text: str) -> None:
    assert number(value) == text


@example(1000.4)
@given(st.floats(-300, 9).map(lambda x: 10.0**x))
def test_a_bound_is_rounded_up_by_less_than_a_step(value: float) -> None:
    """And larger by less than a step of the last digit that is shown."""
    shown = bound(value).replace("\N{NARROW NO-BREAK SPACE}", "").translate(LOWERED)
    assert value <= float(shown.replace(" × 10", "e")) <= value * 1.0101


def test_a_study_of_one_column() -> None:
    study = Study(
        name="one", columns=(Column(name="c", unit="", lower=0, upper=1),), epsilon=2.0, delta=1e-6,
        components=1, federation=Federation(sites=("here",)),
    )  # fmt: skip
    flat = replace(study, purpose="")
    page = render(simulate(flat, {"here": np.full((50, 1), 0.5)}, seed=0))
    check(page)
