"""The rules of a site that it states to its federation: who may ask, how, and for how much [R23].

The site decides by them, and the coordinator foresees its decision by the same code. None of them is about
the number of its records, and none follows from a record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.digits import shown
from eigenveil.dictionary.verdict import Verdict, allowing, at_least, at_most
from eigenveil.study.checks import check_readable, need, settle
from eigenveil.study.study import LONGEST_NAME, Study, Trust

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan
    from eigenveil_proto.v1 import eigenveil_pb2 as pb

ANY = "*"
SEES = {
    Trust.CENTRAL: "the coordinator sees this site's exact numbers",
    Trust.SECURE_AGGREGATION: "nobody sees this site's numbers, only their sum with noise",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRules:
    """Fields are keys of site.toml. `analysts` are those who may ask, or ("*",) for all; without any `trust`
    site.toml leaves it to the cards of other sites; `colluding` and `minimum_sites` are about studies under
    secure aggregation.

    Raises:
        RequestError: code `bad-study`, a value is out of range or cannot be shown.
    """

    analysts: tuple[str, ...]
    algorithms: tuple[str, ...]
    noise: str
    max_epsilon_per_study: float
    max_delta: float
    trust: tuple[str, ...]
    colluding: int
    minimum_sites: int

    def __post_init__(self) -> None:
        settle(self)  # lists become tuples
        for name in (*self.analysts, *self.algorithms, *self.trust, self.noise):
            check_readable("a name in a site's rules", name, LONGEST_NAME)
        for name in ("max_epsilon_per_study", "max_delta"):
            value = getattr(self, name)
            need(math.isfinite(value) and value > 0, f"{name} must be a number above 0")
        need(self.colluding >= 0 and self.minimum_sites >= 0, "colluding and minimum_sites are not below 0")

    def verdicts(self, plan: Plan) -> tuple[Verdict, ...]:
        """Every stated rule, applied to `plan`."""
        study = plan.study
        return (
            self._about_analyst(plan.analyst),
            Verdict(
                rule="algorithms",
                passed=plan.algorithm.value in self.algorithms,
                text=f"{plan.algorithm.value}; allowed: {', '.join(self.algorithms)}",
            ),
            self._about_noise(plan),
            at_most(
                "max_epsilon_per_study",
                f"{study.neighbours.value} epsilon",
                study.epsilon,
                self.max_epsilon_per_study,
            ),
            at_most("max_delta", "delta", study.delta, self.max_delta),
            *self._about_trust(study),
        )

    def _about_analyst(self, analyst: str) -> Verdict:
        """A study that is not submitted yet has no analyst; a daemon refuses a plan without one before."""
        listed = ANY in self.analysts or not analyst or analyst in self.analysts
        allowed = "every analyst" if ANY in self.analysts else ", ".join(self.analysts) or "nobody"
        todo = "" if listed else f"; to allow it, site.toml says: {allowing(*self.analysts, analyst)}"
        text = f"{analyst or 'not submitted yet'}; allowed: {allowed}{todo}"
        return Verdict(rule="analysts", passed=listed, text=text)

    def _about_noise(self, plan: Plan) -> Verdict:
        """A budget that is counted in mu pays for Gaussian noise alone."""
        passed = plan.gaussian or self.noise == NoiseRule.ANY.value
        has = "all noise is Gaussian" if plan.gaussian else f"other noise, at delta {shown(plan.study.delta)}"
        return Verdict(rule="noise", passed=passed, text=f"{has}; allowed: {self.noise}")

    def _about_trust(self, study: Study) -> tuple[Verdict, ...]:
        """Where the coordinator sees exact numbers, the rules about other sites say nothing."""
        seen = self._about_who_sees(study)
        if not study.masked:
            return seen
        return (
            *seen,
            at_least("colluding", "colluding", study.colluders, self.colluding),
            at_least("minimum_sites", "quorum", study.federation.least, self.minimum_sites),
        )

    def _about_who_sees(self, study: Study) -> tuple[Verdict, ...]:
        if not self.trust:
            return ()
        allowed = study.trust.value in self.trust
        todo = "" if allowed else f'; state trust = "{self.trust[0]}" in the study'
        text = f"{study.trust.value}: {SEES[study.trust]}; allowed: {', '.join(self.trust)}{todo}"
        return (Verdict(rule="trust", passed=allowed, text=text),)

    def seen_by(self, analyst: str) -> StatedRules:
        """What one analyst may be told: whom else the site allows is not theirs to know."""
        if ANY in self.analysts:
            return self
        return replace(self, analysts=(analyst,) if analyst in self.analysts else ())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a screen or another process."""
        told = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}

    def to_proto(self) -> pb.SiteRules:
        """The same in a message."""
        from eigenveil_proto.v1 import eigenveil_pb2 as pb  # commands that only help do without

        return pb.SiteRules(**asdict(self))


def rules_from_dict(told: Mapping[str, Any]) -> StatedRules:
    """The inverse of `to_dict`. Raises as `StatedRules`."""
    return StatedRules(**told)


def rules_from_proto(message: pb.SiteRules) -> StatedRules:
    """What a message says. Raises as `StatedRules`."""
    return StatedRules(
        analysts=tuple(message.analysts),
        algorithms=tuple(message.algorithms),
        noise=message.noise,
        max_epsilon_per_study=message.max_epsilon_per_study,
        max_delta=message.max_delta,
        trust=tuple(message.trust),
        colluding=message.colluding,
        minimum_sites=message.minimum_sites,
    )


def forbidding(plan: Plan, stated: Mapping[str, StatedRules | None]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The invited sites whose stated rules forbid a plan, and the rules that each names."""
    for site in plan.study.federation.sites:
        rules = stated.get(site)
        failed = () if rules is None else tuple(one.rule for one in rules.verdicts(plan) if not one.passed)
        if failed:
            yield site, failed
