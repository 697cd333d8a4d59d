"""Proposals: a study and the coordinator's plan of it, and the ids of signed submissions [R31]. Ids are
stored until their signatures expire: a study under a second id could run beside the first, whatever the
coordinator answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from eigenveil.accounting.formatting import percent_up, shown
from eigenveil.dictionary.dictionary import number_text, range_text
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Study
from eigenveil.study.toml import study_digest, study_to_dict
from eigenveil.study_authorization import MAX_AUTHORIZATION_SECONDS, SignedAuthorization, authorize
from eigenveil_client.analyst.profile import SigningKey
from eigenveil_common.concurrency import locked
from eigenveil_common.files import check_owner, path_exists, read_secret, write_secret

SUBMISSIONS_FILE = "submissions.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSubmission:
    """The id of a submission, the digest of its `study`, and the Unix time at which its signature expires."""

    submission: str
    study: str
    expires: int


def signed_submissions(folder: Path, now: float) -> tuple[SignedSubmission, ...]:
    """Return the submissions in an identity's `folder` that are valid at the Unix time `now`, oldest
    first."""
    path = folder / SUBMISSIONS_FILE
    if not path_exists(path):
        return ()
    try:
        stored = [_submission(row) for row in parse_json(read_secret(path))["submissions"]]
    except (ValueError, KeyError, TypeError) as problem:
        why = "it holds the ids of studies that you signed, which may still run. Restore a copy"
        todo = "or move it away, and submit a study that you signed only with its --submission"
        raise RequestError(Code.BAD_CONFIG, f"{path} is damaged: {why}; {todo}") from problem
    return tuple(one for one in stored if one.expires > now)


def store_submission(folder: Path, signed: SignedSubmission, now: float) -> None:
    """Add a submission, durable on return, and drop expired ones; of a repeated one the later expiry
    counts."""
    check_owner(folder)
    with locked(folder):
        stored = {(one.submission, one.study): one for one in signed_submissions(folder, now)}
        before = stored.pop((signed.submission, signed.study), signed)
        latest = max(before, signed, key=lambda one: one.expires)
        rows = [asdict(one) for one in (*stored.values(), latest)]
        write_secret(folder / SUBMISSIONS_FILE, canonical({"submissions": rows}))


def _submission(row: dict[str, object]) -> SignedSubmission:
    one = SignedSubmission(**row)  # type: ignore[arg-type]
    if [type(one.submission), type(one.study), type(one.expires)] != [str, str, int]:
        raise TypeError
    return one


DAY_SECONDS = 86_400
DEFAULT_DAYS = 7  # for which a signature is valid
MOST_DAYS = MAX_AUTHORIZATION_SECONDS // DAY_SECONDS
# keys of a study file that a summary states in sentences
IN_SENTENCES = (
    "name", "purpose", "algorithm", "components", "columns", "epsilon", "delta", "neighbours", "trust",
    "colluding", "spare_attempts", "sites", "quorum", "required", "applicant",
)  # fmt: skip
SKEW_SECONDS = 3_600  # by which clocks may differ: no clock should see too long a validity


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The checked `plan` of the study in `toml`, to be signed with `key` until the Unix time `expires`.
    `dictionary`: the source of the bounds that the study file does not state."""

    toml: str
    plan: Plan
    key: SigningKey
    expires: int
    dictionary: str = ""

    def sign(self) -> SignedAuthorization:
        """Return the analyst's signed authorization of this plan. Raises RequestError: code `authorization`,
        the plan names another analyst."""
        return authorize(self.plan, self.key.signed, self.expires, self.key.signing.sign)

    @property
    def summary(self) -> str:
        """Every value of the study that a signature binds, as text. Columns are first, so that the rest is
        next to the prompt."""
        study, plan = self.plan.study, self.plan
        chosen = " (chosen by auto)" if study.algorithm is Algorithm.AUTO else ""
        bounds = f"bounds not in the file: of {self.dictionary}\n  " if self.dictionary else ""
        return (
            f"Columns of {study.name}:\n{_columns(study.columns)}\n"
            f"You sign {study.name}: {study.components} of {study.dimension} directions by "
            f"{plan.algorithm.value}{chosen}, epsilon {shown(study.epsilon)} at delta {shown(study.delta)} "
            f"({study.neighbours.value})\n"
            f"  purpose: {_one_line(study.purpose) or 'none stated'}\n"
            f"  applicant: {study.applicant.text or 'not stated'}\n"
            f"  trust: {_trust(plan)}\n"
            f"  sites: {_sites(study.federation)}\n"
            f"  settings: {_settings(study)}\n"
            f"  {bounds}submission: {plan.submission}, good until {self._ends}. Your key: "
            f"{self.key.key_card.fingerprint}"
        )

    @property
    def resubmission_message(self) -> str:
        """Advice after a signature whose study was refused, or whose reply was lost or wrong."""
        return (
            "You signed it, and the coordinator may still run it: before "
            f"{self._ends} submit this study only with --submission {self.plan.submission}"
        )

    @property
    def signed_submission(self) -> SignedSubmission:
        """The entry that is stored beside the key before the study is sent."""
        digest = study_digest(self.plan.study)
        return SignedSubmission(submission=self.plan.submission, study=digest, expires=self.expires)

    @property
    def _ends(self) -> str:
        return f"{datetime.fromtimestamp(self.expires, UTC):%Y-%m-%d %H:%M} UTC"


def _trust(plan: Plan) -> str:
    study = plan.study
    if not study.masked:
        return f"{study.trust.value}, the coordinator sees each site's exact sums"
    tries = "1 attempt at each round"
    if plan.most_attempts > 1:
        share = percent_up(plan.spare_micro_rho, plan.cost.micro_rho)
        tries = f"spare_attempts = {study.spare_attempts}, which take {share} % of the budget"
    against = f"against the coordinator with up to {study.colluders} colluding sites"
    return f"{study.trust.value}, {against}, {tries}"


def _sites(federation: Federation) -> str:
    """Return all sites, as they are part of what is signed."""
    many, least = len(federation.sites), federation.least
    always = f", {', '.join(federation.required)} always" if federation.required else ""
    return f"{', '.join(federation.sites)} (a round needs {least} of {many}{always})"


def _columns(columns: Sequence[Column]) -> str:
    """Return one line for each column, with its bounds."""
    return "\n".join(f"  {_column(one)}" for one in columns)


def _column(column: Column) -> str:
    bounds = f"{column.name} {range_text(column.lower, column.upper)} {column.unit}".strip()
    return bounds if column.fill is None else f"{bounds}, fill {number_text(column.fill)}"


def _settings(study: Study) -> str:
    """Return the keys of a study file that are in no sentence of a summary, with their values."""
    written = study_to_dict(study)
    sections = [written.pop(name) for name in ("privacy", "records", "federation")]
    flat = {key: value for section in (written, *sections) for key, value in section.items()}
    return ", ".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in flat.items()
        if key not in IN_SENTENCES and value is not None
    )


def _one_line(text: str) -> str:
    """Return a text in one line, so that it cannot imitate a line of a summary."""
    return " ".join(text.split())


def expiry(now: float, days: int) -> int:
    """Return the Unix time at which a signature of time `now` expires."""
    return int(now) + min(days * DAY_SECONDS, MAX_AUTHORIZATION_SECONDS - SKEW_SECONDS)


def check_days(days: int) -> None:
    """Raise an error if a signature cannot be valid for this many days."""
    if not 1 <= days <= MOST_DAYS:
        why = f"a signature is valid for 1 to {MOST_DAYS} days, not {days} (expires_days)"
        raise RequestError(Code.BAD_ARGUMENT, why)
