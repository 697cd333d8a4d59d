"""Every algorithm has a page that says what it guarantees, costs and returns, and says what the code says."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms import ALGORITHMS
from eigenveil.errors import RequestError
from eigenveil.planning.choose import make_plan, rehearse
from eigenveil.queries import Query
from eigenveil.study.algorithm import Algorithm, AlgorithmProperties
from eigenveil.study.study import Column, Federation, Study, Trust
from tests.repo.test_privacy_claims import cited, claims
from tests.repo.tree import ROOT

PAGES = ROOT / "docs" / "algorithms"
TABLE = (PAGES / "README.md").read_text()
FIGURES = ROOT / "docs" / "figures"
LARGEST = 150_000  # bytes of a picture
NAMED = sorted(set(Algorithm) - {Algorithm.AUTO}, key=lambda algorithm: algorithm.value)
HEADINGS = (
    "Guarantee", "The paper, and what holds here", "When to use it", "Cost", "Returns", "Picture", "Source",
)  # fmt: skip
LINK = re.compile(r"\]\(([^)#\s]+)\)")
EXAMPLE = re.compile(r"At d = 20, k = 3, n = ([\d,]+): ([\d,]+) rounds, ([\d,]+) bytes from a site\.")
MEDIAN = re.compile(
    r"Median at n = ([\d,]+)(?: and ε = (\d+))?: `([a-z-]+)` ([\d.e-]+), `?([A-Za-z -]+)`? ([\d.e-]+)\."
)


@cache
def page(algorithm: Algorithm) -> str:
    """The text of an algorithm's page, on one line a paragraph."""
    return (PAGES / f"{algorithm.value}.md").read_text()


def flowing(text: str) -> str:
    """The text without line breaks inside its paragraphs."""
    return re.sub(r"(?<!\n)\n(?!\n)\s*", " ", text)


def stated(algorithm: Algorithm) -> tuple[str, set[str]]:
    """Composition of costs in the table of traits, and the other traits."""
    row = re.search(rf"^\| \[{algorithm.value}\]\(.*\) \|[^|]*\| (.*) \| (.*) \|$", TABLE, re.MULTILINE)
    assert row is not None
    return row[1], set(row[2].split(", "))


def adds_up(traits: AlgorithmProperties) -> str:
    """In what costs add up where delta is above 0."""
    if traits.gaussian:
        return "mu"
    return "epsilons" if traits.basic else "approximate zCDP" if traits.delta else "zCDP"


def expected(algorithm: Algorithm) -> tuple[str, set[str]]:
    """The row that the code's traits ask for."""
    traits = algorithm.properties
    named = {
        "masked": traits.private and runs_masked(algorithm),
        "delta = 0": traits.pure,
        "mechanism delta": traits.delta,
        "exact sums": traits.trusted,
        "one site": traits.one_site,
        "batches": traits.batches,
        "deflation": traits.deflation,
        "not private": not traits.private,
    }
    return adds_up(traits), {name for name, has in named.items() if has}


def questions(algorithm: Algorithm, n: int) -> list[Query]:
    """Queries of the pages' example: 20 columns, 3 components, n expected records, one site."""
    shuffled = algorithm is Algorithm.PRIVATE_OJA_SHUFFLED
    study = Study(
        name="example",
        columns=tuple(Column(name=f"c{i}", unit="1", lower=-1.0, upper=1.0) for i in range(20)), epsilon=1.0,
        delta=1e-6, components=3, algorithm=algorithm,
        neighbours=Neighbours.REPLACE_ONE if shuffled else Neighbours.ADD_REMOVE,
        federation=Federation(sites=("here",)), expected_records=n,
        max_records=n if algorithm is Algorithm.SUBSPACE_REFERENCE else 2**24,
    )  # fmt: skip
    return [
        round_query.query
        for round_query in rehearse(make_plan(study, federation="pages", submission="pages"))
    ]


def runs_masked(algorithm: Algorithm) -> bool:
    """True if a masked study may name the algorithm."""
    study = Study(
        name="masked", columns=tuple(Column(name=f"c{i}", unit="1", lower=-1.0, upper=1.0) for i in range(5)),
        epsilon=1.0, delta=1e-6, components=1, algorithm=algorithm,
        federation=Federation(sites=("here", "there")), trust=Trust.SECURE_AGGREGATION,
    )  # fmt: skip
    try:
        rehearse(make_plan(study, federation="pages", submission="pages"))
    except RequestError:
        return False
    return True


def linked(path: Path) -> list[Path]:
    found = LINK.findall(path.read_text())
    return [path.parent / target for target in found if "://" not in target]


@pytest.mark.parametrize("algorithm", NAMED, ids=str)
def test_the_page_has_its_headings_row_claims_and_picture(algorithm: Algorithm) -> None:
    text = page(algorithm)
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
    assert text.startswith(f"# {algorithm.value}\n")
    assert stated(algorithm) == expected(algorithm)
    ids = cited(text)
    assert ids - claims() == set()
    assert bool(ids) is algorithm.properties.private
    assert f"](../figures/page-{algorithm.value}.png)" in text


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_what_a_page_links_to_exists(path: Path) -> None:
    assert [target.name for target in linked(path) if not target.exists()] == []


@pytest.mark.parametrize("algorithm", [algorithm for algorithm in NAMED if algorithm in ALGORITHMS])
def test_the_example_costs_what_the_page_states(algorithm: Algorithm) -> None:
    found = EXAMPLE.search(flowing(page(algorithm)))
    assert found, 'the page lacks its line "At d = 20, k = 3, ..."'
    n, rounds, size = (int(number.replace(",", "")) for number in found.groups())
    round_query = questions(algorithm, n)
    assert (len(round_query), sum(8 * query.length for query in round_query)) == (rounds, size)


@pytest.mark.parametrize("algorithm", NAMED, ids=str)
def test_the_page_quotes_the_numbers_of_its_table(algorithm: Algorithm) -> None:
    found = MEDIAN.search(flowing(page(algorithm)))
    assert found, 'the page lacks its line "Median at n = ..."'
    n, epsilon, name, median, other, reference = found.groups()
    panel, x = ("n", float(n.replace(",", ""))) if epsilon is None else ("epsilon", float(epsilon))
    with (FIGURES / f"page-{algorithm.value}.csv").open(newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["panel"] == panel and float(row["x"]) == x]
    medians = {row["series"]: row["median"] for row in rows}
    assert {name: median, other.strip("` "): reference} == medians
    assert name == algorithm.value


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\(([a-z-]+)\.md\)", (PAGES / "README.md").read_text()))
    assert listed == {algorithm.value for algorithm in NAMED}


def test_each_picture_has_a_table() -> None:
    pictures, tables = ({path.stem for path in FIGURES.glob(f"*.{kind}")} for kind in ("png", "csv"))
    assert pictures == tables
    assert all(path.stat().st_size < LARGEST for path in FIGURES.iterdir())
