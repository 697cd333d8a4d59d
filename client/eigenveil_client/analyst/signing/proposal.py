"""A study on its way to a signature: what was written, and the plan that the coordinator makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from eigenveil.accounting.digits import shown
from eigenveil.analyst_signature.authorization import MAX_AUTHORIZATION_SECONDS, SignedAuthorization
from eigenveil.dictionary.dictionary import number, range_text
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Study
from eigenveil.study.toml import study_digest, study_to_dict
from eigenveil_client.analyst.signing.signed_submissions import SignedSubmission
from eigenveil_client.analyst.signing.signing_key import SigningKey

DAY_SECONDS = 86_400
USUAL_DAYS = 7  # for which a signature is good
MOST_DAYS = MAX_AUTHORIZATION_SECONDS // DAY_SECONDS
# Keys of a study file that a summary states in words.
IN_SENTENCES = (
    "name", "purpose", "algorithm", "components", "columns", "epsilon", "delta", "neighbours", "trust",
    "colluding", "attempts", "sites", "quorum", "required",
)  # fmt: skip
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
        """All that a signature binds, for a person: the study's every value, with the columns first, so that
        the rest stands next to the question."""
        study, plan = self.plan.study, self.plan
        chosen = " (chosen by auto)" if study.algorithm is Algorithm.AUTO else ""
        bounds = f"bounds that the file does not state: of {self.dictionary}\n  " if self.dictionary else ""
        return (
            f"Columns of {study.name}:\n{_columns(study.columns)}\n"
            f"You sign {study.name}: {study.components} of {study.dimension} directions by "
            f"{plan.algorithm.value}{chosen}, epsilon {shown(study.epsilon)} at delta {shown(study.delta)} "
            f"({study.neighbours.value})\n"
            f"  purpose: {_one_line(study.purpose) or 'none stated'}\n"
            f"  trust: {_trust(study)}\n"
            f"  sites: {_sites(study.federation)}\n"
            f"  settings: {_settings(study)}\n"
            f"  {bounds}submission: {plan.submission}, good until {self._ends}. Your key: "
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
    """Each of them in a line, with its bounds."""
    return "\n".join(f"  {_column(one)}" for one in columns)


def _column(column: Column) -> str:
    bounds = f"{column.name} {range_text(column.lower, column.upper)} {column.unit}".strip()
    return bounds if column.fill is None else f"{bounds}, fill {number(column.fill)}"


def _settings(study: Study) -> str:
    """The keys of a study file that stand in no sentence of a summary, each with its value."""
    written = study_to_dict(study)
    sections = [written.pop(name) for name in ("privacy", "records", "federation")]
    flat = {key: value for section in (written, *sections) for key, value in section.items()}
    return ", ".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in flat.items()
        if key not in IN_SENTENCES and value is not None
    )


def _one_line(text: str) -> str:
    """A text that cannot pass for another line of a summary."""
    return " ".join(text.split())


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
