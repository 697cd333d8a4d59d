"""What imagined sites contribute to a round: in this process, or wherever else somebody holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Protocol

from eigenveil.aggregation import Contribution, aggregate, validate
from eigenveil.numerics.apply import Apply
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.site.site import Site

SHARED = 2**18  # entries from which on a site's pieces are worth a thread
HELD = 32  # answers that are held at once


class Mask(Protocol):
    """What a site makes of its exact answer before it is sent, for the attempt of that digest."""

    @property
    def attempt(self) -> str: ...

    def __call__(self, site: str, values: IntArray) -> IntArray: ...


class Together(Protocol):
    """Sites that answer together, each for its own records."""

    def __call__(self, asked: RoundQuery, present: Sequence[str], mask: Mask | None = None) -> IntArray:
        """The exact sum of what these sites contribute, of answers as `mask` leaves them; votes stand side by
        side, by the sites' names."""


Hold = Callable[[Mapping[str, Site], Plan], Together]


def here(sites: Mapping[str, Site], plan: Plan, *, apply: Apply = map) -> Together:
    """The sites in this process."""
    return partial(contributed, sites, plan.study.max_records, apply=apply)


def contributed(
    sites: Mapping[str, Site],
    most: int,
    asked: RoundQuery,
    present: Sequence[str],
    mask: Mask | None = None,
    *,
    apply: Apply = map,
) -> IntArray:
    """What these sites contribute together, each validated as by a coordinator; none has over `most` records.

    Cost: memory for HELD answers, and one for each HELD sites.
    """
    names = sorted(present)
    groups = (names[first : first + HELD] for first in range(0, len(names), HELD))
    return in_order(asked, (_group(sites, most, asked, group, mask, apply) for group in groups))


def in_order(asked: RoundQuery, groups: Iterable[IntArray]) -> IntArray:
    """What groups of sites contribute together, as one: to the others a group is what a site is."""
    return aggregate(asked, {f"{place:06}": values for place, values in enumerate(groups)})


def _group(
    sites: Mapping[str, Site],
    most: int,
    asked: RoundQuery,
    names: Sequence[str],
    mask: Mask | None,
    apply: Apply,
) -> IntArray:
    answers: dict[str, IntArray] = {}
    attempt = "" if mask is None else mask.attempt
    for name in names:
        site = sites[name]
        values = site.answer(
            asked.query, apply if prod(site.rows.shape) >= SHARED else map, frame=asked.frame
        )  # for its own records
        sent = values if mask is None else mask(name, values)
        contribution = Contribution.to(asked, name, sent, attempt)
        validate(asked, contribution, range(most + 1), attempt)
        answers[name] = contribution.values
    return aggregate(asked, answers)  # exact, and private to whoever is trusted with it, unless it is masked
