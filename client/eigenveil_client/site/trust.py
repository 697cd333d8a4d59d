"""Whom a site trusts with its exact numbers: the coordinator, or nobody [R29]."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.study.study import Trust
from eigenveil_common.config import AT_LEAST_ONE, Rule, check_rules, key

KNOWN = tuple(one.value for one in Trust)
SOME_OF_THEM = Rule(
    holds=lambda value: set(value) <= set(KNOWN),
    words=f"{{key}}: name some of {', '.join(KNOWN)}, or none to let confirmed cards of other sites decide",
)
TWO_AT_LEAST = Rule(
    holds=lambda value: value >= 2, words="{key} must be at least 2: a sum over one site is its answer"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRules:
    """What this site insists on: fields are keys of site.toml. Without any `trust` named, both are answered
    until a card of another site is confirmed, then masked studies alone (`peers.rule`). `colluding` and
    `minimum_sites` are about studies under secure aggregation: how many other sites may help the coordinator
    against this one at least, and over how many sites each sum is at least.

    Raises:
        RequestError: code `bad-config`.
    """

    trust: tuple[str, ...] = key((), SOME_OF_THEM)
    colluding: int = key(1, AT_LEAST_ONE)
    minimum_sites: int = key(2, TWO_AT_LEAST)

    def __post_init__(self) -> None:
        check_rules(self)
