"""Whom a site trusts with its exact numbers: the coordinator, or nobody [R29]."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.study.study import Study, Trust
from eigenveil_client.site.verdict import Verdict, at_least
from eigenveil_common.config import AT_LEAST_ONE, Rule, check_rules, key

KNOWN = tuple(one.value for one in Trust)
SEES = {
    Trust.CENTRAL: "the coordinator sees this site's exact numbers",
    Trust.SECURE_AGGREGATION: "nobody sees this site's numbers, only their sum with noise",
}
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

    def verdicts(self, study: Study) -> tuple[Verdict, ...]:
        """The rules about trust that site.toml states; the last two are about masked studies alone."""
        seen = self._about_trust(study)
        if not study.masked:
            return seen
        return (
            *seen,
            at_least("colluding", "colluding", study.colluders, self.colluding),
            at_least("minimum_sites", "quorum", study.federation.least, self.minimum_sites),
        )

    def _about_trust(self, study: Study) -> tuple[Verdict, ...]:
        if not self.trust:
            return ()
        allowed = study.trust.value in self.trust
        todo = "" if allowed else f'; state trust = "{self.trust[0]}" in the study'
        text = f"{study.trust.value}: {SEES[study.trust]}; allowed: {', '.join(self.trust)}{todo}"
        return (Verdict(rule="trust", passed=allowed, text=text),)
