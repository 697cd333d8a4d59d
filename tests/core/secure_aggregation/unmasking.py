"""Leaks of masked answers, by linear algebra modulo 2^64 [P31], without any code of the product. An answer is
x + e + its masks. Masks that are fair, and known to nobody who looks, leave of all answers together exactly
the combinations in which they cancel: the answers are uniform on a coset of the module that masks span, and
what tells two cosets apart are the linear forms that vanish on it. `cancelling` finds all of these;
`laid_open` says what is wrong with one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

MODULUS = 2**64


@dataclass(frozen=True, slots=True)
class Shown:
    """An attempt: of which round, the how-manieth, and the sites in its set."""

    members: frozenset[str]
    number: int = 1
    round: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """That an honest `site` answered what it was shown."""

    site: str
    to: Shown


Row = list[int]  # what one mask (or one word of all masks) is in each answer


def symbolic(answers: Sequence[Answer], honest: frozenset[str]) -> list[Row]:
    """Masks between honest sites, one a row: + 1 with the later of two by name, - 1 with the earlier."""
    rows: dict[Hashable, Row] = defaultdict(lambda: [0] * len(answers))
    for place, answer in enumerate(answers):
        for other in (answer.to.members & honest) - {answer.site}:
            sign = 1 if other < answer.site else -1
            rows[answer.to, frozenset((answer.site, other))][place] += sign
    return list(rows.values())


def cancelling(rows: Iterable[Sequence[int]], answers: int) -> list[Row]:
    """Generators of all combinations modulo 2^64 in which every row is 0. One row at a time: of the
    generators so far, the one in which the row has the fewest factors of 2 takes the row out of all others,
    and stays as the multiple in which it is 0."""
    found = [[int(i == j) for j in range(answers)] for i in range(answers)]
    for row in rows:
        left = [sum(a * b for a, b in zip(row, one, strict=True)) % MODULUS for one in found]
        if not any(left):
            continue
        place = min((i for i, x in enumerate(left) if x), key=lambda i: left[i] & -left[i])
        pivot, of_pivot = found.pop(place), left.pop(place)
        even = of_pivot & -of_pivot
        inverse = pow(of_pivot // even, -1, MODULUS)
        for one, x in zip(found, left, strict=True):
            times = x // even * inverse
            one[:] = [(a - times * b) % MODULUS for a, b in zip(one, pivot, strict=True)]
        found.append([MODULUS // even * b % MODULUS for b in pivot])
        found = [one for one in found if any(one)]
    return found


def laid_open(
    combination: Row, answers: Sequence[Answer], honest: frozenset[str], share: Callable[[int], Fraction]
) -> str:
    """Leak of a combination without masks beyond noised sums over all honest members; empty, if all is well.
    `share` of a set of so many sites is the variance of a share in it, in units of sigma^2."""
    by_attempt: dict[Shown, dict[str, int]] = defaultdict(dict)
    for answer, x in zip(answers, combination, strict=True):
        by_attempt[answer.to][answer.site] = x
    for to, result in by_attempt.items():
        inside = to.members & honest
        if len({result.get(site, 0) for site in inside}) > 1:
            return f"members of one set weigh differently: {result}"
        if any(result.values()) and len(inside) * share(len(to.members)) < 1:
            return f"the noise of {len(inside)} of {len(to.members)} shares is too quiet"
    return ""
