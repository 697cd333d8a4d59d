"""A study on its way to a signature: what was written, and the plan that the coordinator makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from eigenveil.accounting.digits import shown
from eigenveil.analyst_signature.authorization import MAX_AUTHORIZATION_SECONDS
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm

DAY_SECONDS = 86_400
USUAL_DAYS = 7  # for which a signature is good
MOST_DAYS = MAX_AUTHORIZATION_SECONDS // DAY_SECONDS
SKEW_SECONDS = 3_600  # that clocks may differ: a signature never lasts longer than others' clocks allow


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The `plan` of the study in `toml`, which was found to follow from it; nothing is signed."""

    toml: str
    plan: Plan

    def sentence(self, fingerprint: str, expires: int) -> str:
        """What a signature says, for whoever is about to give it."""
        study, plan = self.plan.study, self.plan
        chosen = " (chosen by auto)" if study.algorithm is Algorithm.AUTO else ""
        return (
            f"You sign {study.name}: {study.components} of {study.dimension} directions by "
            f"{plan.algorithm.value}{chosen}, epsilon {shown(study.epsilon)} at delta {shown(study.delta)} "
            f"({study.neighbours.value}), trust {study.trust.value}, at {', '.join(study.federation.sites)}; "
            f"good until {datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M} UTC. Your key: {fingerprint}"
        )


def expiry(now: float, days: int) -> int:
    """The Unix time at which a signature that is given `now` ends."""
    return int(now) + min(days * DAY_SECONDS, MAX_AUTHORIZATION_SECONDS - SKEW_SECONDS)


def check_days(days: int) -> None:
    """Insist that a signature may be good for so many days.

    Raises:
        RequestError: code `bad-argument`.
    """
    if not 1 <= days <= MOST_DAYS:
        raise RequestError(
            Code.BAD_ARGUMENT, f"a signature is good for 1 to {MOST_DAYS} days, not {days} (expires_days)"
        )
