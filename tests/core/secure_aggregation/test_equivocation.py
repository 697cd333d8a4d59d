"""[P31] [P32] [P33] Whatever sets a coordinator shows to whom, what can be unmasked is the noised sum over
all honest members of a set, with at least the noise that was paid for. Every case of 3 to 5 sites: each
number t of sites that may collude, each set of colluders up to t, and each way to show each honest site
nothing or a set that it is in, of more than t sites. Sites with the same part are the same but for their
names: renaming honest sites, or colluders, turns the signs of some masks, which are as fair as before. So
only the number of colluders counts, and of ways that differ by such a renaming one is looked at: in it the
sets that are shown grow with the names. Of six sites each set is looked at with each part of its honest
members that is shown it. That is all: answers to different attempts share no mask (which is checked for each
pair), so a combination is without masks exactly if what it has of each attempt is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product

import pytest

from tests.core.secure_aggregation.unmasking import Answer, Shown, cancelling, laid_open, symbolic

NAMES = "abcdef"


def sets_of(site: str, sites: str, t: int) -> list[frozenset[str]]:
    """All sets with `site` in it, of more than t sites."""
    others = [name for name in sites if name != site]
    return [frozenset((site, *more)) for n in range(t, len(sites)) for more in combinations(others, n)]


def ways(honest: str, sites: str, t: int) -> Iterator[list[Answer]]:
    """Each way to show honest sites sets, or nothing, but for renaming."""
    options = [[frozenset[str](), *sets_of(site, sites, t)] for site in honest]
    for shown in product(*options):
        sizes = [len(members) for members in shown]
        if sizes == sorted(sizes):
            yield [Answer(site, Shown(s)) for site, s in zip(honest, shown, strict=True) if s]


def problems(answers: Sequence[Answer], honest: str, t: int) -> list[str]:
    """Forbidden information in these answers."""
    known = frozenset(honest)
    found = cancelling(symbolic(answers, known), len(answers))
    result = (laid_open(one, answers, known, lambda size: Fraction(1, size - t)) for one in found)
    return [text for text in result if text]


def cases(n: int) -> Iterator[tuple[str, str, int]]:
    """Honest sites (one at least), all sites, t: for each t and each number of colluders up to it."""
    sites = NAMES[:n]
    return ((sites[: n - bad], sites, t) for t in range(1, n) for bad in range(t + 1))


@pytest.mark.parametrize("n", [3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_only_sums_over_all_honest_members_are_unmasked(n: int) -> None:
    looked = 0
    for honest, sites, t in cases(n):
        for answers in ways(honest, sites, t):
            assert problems(answers, honest, t) == []
            looked += 1
    assert looked == {3: 46, 4: 1184, 5: 118_334}[n]


def test_only_sums_over_all_honest_members_are_unmasked_of_six_sites() -> None:
    for honest, sites, t in cases(6):
        every = {s for site in honest for s in sets_of(site, sites, t)}
        for members in every:
            inside = sorted(members & frozenset(honest))
            for n in range(1, len(inside) + 1):
                for shown in combinations(inside, n):
                    assert problems([Answer(site, Shown(members)) for site in shown], honest, t) == []
        if t == 1:
            assert all(share_no_mask(one, other, honest) for one, other in combinations(every, 2))


def share_no_mask(one: frozenset[str], other: frozenset[str], honest: str) -> bool:
    """True if no mask is in answers to both attempts."""
    answers = [Answer(site, Shown(s)) for s in (one, other) for site in sorted(s & frozenset(honest))]
    first = len(one & frozenset(honest))
    return not any(any(row[:first]) and any(row[first:]) for row in symbolic(answers, frozenset(honest)))


def repeated(honest: str, sites: str, *of: tuple[int, int]) -> Iterator[list[Answer]]:
    """Each way to show honest sites sets, or nothing, under each of these (number, round)."""
    options = [[None, *sets_of(site, sites, 1)] for _ in of for site in honest]
    for shown in product(*options):
        result = zip(product(of, honest), shown, strict=True)
        yield [Answer(site, Shown(s, number, round)) for ((number, round), site), s in result if s]


@pytest.mark.parametrize("honest", ["abc", "ab"])
@pytest.mark.parametrize("again", [(2, 0), (1, 1)], ids=["another attempt", "another round"])
def test_two_attempts_and_two_rounds_share_nothing(honest: str, again: tuple[int, int]) -> None:
    for answers in repeated(honest, "abc", (1, 0), again):
        assert problems(answers, honest, 1) == []
