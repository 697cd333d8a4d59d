"""A study on its way to a signature: what was written, and the plan that the coordinator makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from eigenveil.accounting.digits import shown
from eigenveil.analyst_signature.authorization import MAX_AUTHORIZATION_SECONDS, SignedAuthorization
from eigenveil.dictionary.dictionary import range_text
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Study
from eigenveil.study.toml import study_digest
from eigenveil_client.analyst.signing.signed_submissions import SignedSubmission
from eigenveil_client.analyst.signing.signing_key import SigningKey

DAY_SECONDS = 86_400
USUAL_DAYS = 7  # for which a signature is good
MOST_DAYS = MAX_AUTHORIZATION_SECONDS // DAY_SECONDS
SHOWN = 12  # columns of a summary
SKEW_SECONDS = 3_600  # that clocks may differ: a signature never lasts longer than others' clocks allow


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The `plan` of the study in `toml`, which was found to follow from it, to be signed with `key` until the
    Unix time `expires`. `dictionary` is of which the bounds are that the study file does not state."""

    toml: str
    plan: Plan
    key: SigningKey
    expires: int
    dictionary: str = ""

    def sign(self) -> SignedAuthorization:
        """The analyst's statement that this plan runs."""
        return self.key.authorize(self.plan, self.expires)

    @property
    def summary(self) -> str:
        """What a signature says, for whoever is about to give it."""
        study, plan = self.plan.study, self.plan
        chosen = " (chosen by auto)" if study.algorithm is Algorithm.AUTO else ""
        bounds = f"\n  bounds that the file does not state: of {self.dictionary}" if self.dictionary else ""
        return (
            f"You sign {study.name}: {study.components} of {study.dimension} directions by "
            f"{plan.algorithm.value}{chosen}, epsilon {shown(study.epsilon)} at delta {shown(study.delta)} "
            f"({study.neighbours.value})\n"
            f"  trust: {_trust(study)}\n"
            f"  sites: {_sites(study.federation)}\n"
            f"  columns: {_columns(study.columns)}{bounds}\n"
            f"  submission: {plan.submission}, good until {self._ends}. Your key: "
            f"{self.key.card.fingerprint}"
        )

    @property
    def resubmission_message(self) -> str:
        """The id that counts after a signature whose study was refused, or whose reply was lost or wrong."""
        return (
            "You signed it, and that nothing was submitted is the coordinator's word: before "
            f"{self._ends} submit this study only with --submission {self.plan.submission}"
        )

    @property
    def signed_submission(self) -> SignedSubmission:
        """What is stored of it beside the key, before it is sent."""
        digest = study_digest(self.plan.study)
        return SignedSubmission(submission=self.plan.submission, study=digest, expires=self.expires)

    @property
    def _ends(self) -> str:
        return f"{datetime.fromtimestamp(self.expires, UTC):%Y-%m-%d %H:%M} UTC"


def _trust(study: Study) -> str:
    if not study.masked:
        return f"{study.trust.value}, the coordinator sees each site's exact sums"
    tries = f", up to {study.attempts} attempts at each round, each charged in full"
    return (
        f"{study.trust.value}, against the coordinator with up to {study.colluders} colluding sites"
        f"{tries if study.attempts > 1 else ', 1 attempt at each round'}"
    )


def _sites(federation: Federation) -> str:
    """All of them: whoever is asked is part of what is signed."""
    many, least = len(federation.sites), federation.least
    always = f", {', '.join(federation.required)} always" if federation.required else ""
    return f"{', '.join(federation.sites)} (a round needs {least} of {many}{always})"


def _columns(columns: Sequence[Column]) -> str:
    """The first of them with their bounds, and how many more there are."""
    first = [f"{one.name} {range_text(one.lower, one.upper)} {one.unit}".strip() for one in columns[:SHOWN]]
    more = len(columns) - SHOWN
    rest = f", and {more} more: `eigenveil study resolve` shows all" if more > 0 else ""
    return f"{', '.join(first)}{rest}"


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
