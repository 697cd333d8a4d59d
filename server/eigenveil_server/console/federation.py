"""Data of the overview and the operators' pages: sites, budget, warnings, audit log, refusals.

Data of the operators' pages: enrolled participants, audit log, refusals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cryptography import x509

from eigenveil.accounting.budget import Conversion, studies_left
from eigenveil.accounting.formatting import percent_up
from eigenveil.errors import Code, RequestError
from eigenveil.identity import CALLERS, Role
from eigenveil.study.checks import check_readable
from eigenveil_common.files import read
from eigenveil_server.console.page_context import ConsoleData
from eigenveil_server.pki.registry import EnrolledCaller, Registry
from eigenveil_server.recovery.checkpoints import awaited_sites
from eigenveil_server.rpc.directory import SiteDirectory
from eigenveil_server.storage.states import ConsentState, StudyState

DAY = 86400.0
SOON_DAYS = 2.0  # a site renews when a third of its week is left, so before this
AUTHORITY_DAYS = 60.0
LOW_BUDGET_SHARE = 0.1  # of the budget
RECENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOverview:
    """Overview of a site. Times in Unix seconds, None if unknown or hidden; `heard` is exact to the hour."""

    name: str
    online_since: float | None
    heard: float | None
    certificate_ends: float | None
    asks: bool | None
    offers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCost:
    """Cost of a past study, and the number of such studies left in the budget; None for any number."""

    name: str
    epsilon: float
    left: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of the federation, as texts with epsilons and their neighbouring relation, and as shares of the
    total. `failure_probability` is the probability with which the total does not hold."""

    total: str
    left: str
    failure_probability: str
    share_spent: Fraction
    share_reserved: Fraction
    exact: bool
    study_costs: tuple[StudyCost, ...]

    @property
    def summary(self) -> str:
        """Text of the gauge."""
        spent, reserved = percent_up(self.share_spent, 1), percent_up(self.share_reserved, 1)
        return f"{spent} % of the budget is spent, {reserved} % is reserved for running studies"


def budget(data: ConsoleData) -> Budget:
    """Return the current budget of the federation."""
    left, totals = data.left(), data.ledger.totals
    spent, limit, exact = totals.spent.micro_rho, totals.limit.micro_rho, totals.exact
    whole, conversion = max(1, limit), Conversion(delta=data.config.budget_delta, exact=exact)
    recent = data.lists.latest(RECENT, tuple(set(StudyState) - {StudyState.FAILED}))
    plans = [(one.name, data.studies.plan_of(data.studies.get(one.digest))) for one in recent]
    return Budget(
        total=conversion.spent(limit),
        left=conversion.left(left.micro_rho, limit),
        failure_probability=conversion.failure_probability(totals.limit),
        share_spent=Fraction(spent, whole),
        share_reserved=Fraction(totals.committed.micro_rho - spent, whole),
        exact=exact,
        study_costs=tuple(
            StudyCost(name=name, epsilon=plan.study.epsilon, left=studies_left(left, plan.cost))
            for name, plan in plans
        ),
    )


def sites(
    directory: SiteDirectory, registry: Registry, online: Mapping[str, int] | None
) -> tuple[SiteOverview, ...]:
    """Return the admitted sites. `online` is None for visitors who may not see when a site's staff start and
    stop it."""
    enrolled = {one.name: one for one in registry.enrolled() if one.role == Role.SITE.value}
    found = directory.current()
    return tuple(
        _site(name, enrolled.get(name), directory.last_call_hour(name), found.sites[name], online)
        for name in sorted(found.sites)
    )


def _site(
    name: str, enrolled: EnrolledCaller | None, heard: int, stated: object, online: Mapping[str, int] | None
) -> SiteOverview:
    since = None if online is None else online.get(name)
    known = online is not None and enrolled is not None
    offers = getattr(stated, "columns", None)
    return SiteOverview(
        name=name,
        online_since=None if since is None else since / 1000,
        heard=heard / 1000 if heard else None,
        certificate_ends=enrolled.expires_at / 1000 if known and enrolled is not None else None,
        asks=getattr(stated, "needs_approval", None),
        offers=None if offers is None else len(offers),
    )


def warnings(data: ConsoleData, overviews: tuple[SiteOverview, ...], at: float) -> Iterator[str]:
    """Return warnings for the operator."""
    if missing := awaited_sites(data.reader):
        yield (
            "The coordinator was restored from a backup. No round opens before these sites have shown their "
            f"checkpoints: {', '.join(missing)}."
        )
    for one in overviews:
        ends = one.certificate_ends
        if ends is not None and ends < at:
            yield f"The certificate of {one.name} has expired. Give it a new join file."
        elif ends is not None and ends - at < SOON_DAYS * DAY:
            yield f"The certificate of {one.name} expires in {SOON_DAYS:g} days or less and was not renewed."
    for study in data.lists.in_states(StudyState.AWAITING):
        yield (
            f"{study.name} by {study.analyst} waits for approval: eigenveil-coordinator approve, or refuse."
        )
    current = budget(data)
    if 1 - current.share_spent - current.share_reserved < LOW_BUDGET_SHARE:
        yield f"Less than {LOW_BUDGET_SHARE:.0%} of the budget is left: {current.left}."
    for certificate in x509.load_pem_x509_certificates(read(data.config.files.ca)):
        days = (certificate.not_valid_after_utc.timestamp() - at) / DAY
        if days < AUTHORITY_DAYS:
            yield f"A certificate authority expires in {days:.0f} days. See eigenveil-coordinator ca."


PAGE = 50
MAX_REASON_LENGTH = 200
ENDED = ("failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledParty:
    """Enrolled participant: a site, an analyst or an operator."""

    role: str
    name: str
    ends: float
    denied: bool
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Entry of the audit log; `at` in Unix seconds."""

    number: int
    at: float
    kind: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDecline:
    """Decline of a study (`round` is 0) or of one of its rounds, counted from 1, by a site."""

    study: str
    name: str
    round: int
    site: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedStudy:
    """Study that ended without a release."""

    study: str
    name: str
    analyst: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Studies without a release and declines, latest first; number of refused calls by code."""

    ended_studies: tuple[EndedStudy, ...]
    declines: tuple[SiteDecline, ...]
    calls: dict[str, int]


def people(registry: Registry) -> list[EnrolledParty]:
    """Return all enrolled participants."""
    return [
        EnrolledParty(
            role=one.role, name=one.name, ends=one.expires_at / 1000, denied=one.denied, key=one.key
        )
        for one in registry.enrolled()
    ]


def person(registry: Registry, role: str, name: str) -> EnrolledParty:
    """Return one enrolled participant.

    Raises:
        RequestError: code `not-found`.
    """
    for one in people(registry):
        if (one.role, one.name) == (role, name):
            return one
    raise RequestError(Code.NOT_FOUND, "no participant of this role and name has enrolled")


def role_of(text: str) -> Role:
    """Return the role of this name, if it can enrol.

    Raises:
        RequestError: code `not-found`.
    """
    for role in CALLERS:
        if role.value == text:
            return role
    raise RequestError(Code.NOT_FOUND, "there is no such role; use site, analyst or operator")


def checked_reason(text: str) -> str:
    """Return the reason of a denial for the audit log.

    Raises:
        RequestError: it is empty, too long, or not one line of readable text.
    """
    reason = " ".join(text.split())
    if not reason:
        raise RequestError(Code.BAD_ARGUMENT, "give a reason in a few words; it is stored in the audit log")
    check_readable("the reason", reason, MAX_REASON_LENGTH)
    return reason


def entries(data: ConsoleData, before: int) -> list[AuditEntry]:
    """Return a page of the audit log, latest first, below the number `before`."""
    rows = data.reader.rows(
        "SELECT id, at, kind, subject, detail FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?",
        (before, PAGE),
    )
    return [
        AuditEntry(
            number=row["id"],
            at=row["at"] / 1000,
            kind=row["kind"],
            subject=row["subject"],
            detail=row["detail"],
        )
        for row in rows
    ]


def refusals(data: ConsoleData, calls: dict[str, int]) -> Refusals:
    """Return the latest refusals of each kind."""
    declined = data.reader.rows(
        "SELECT d.study, s.name, d.round, d.site, d.reason FROM ("
        "SELECT study, round + 1 AS round, site, declined AS reason FROM answers WHERE declined IS NOT NULL "
        "UNION ALL SELECT study, 0, site, reason FROM consents WHERE standing = ?) d "
        "JOIN studies s ON s.digest = d.study ORDER BY s.submitted_at DESC, d.round DESC, d.site LIMIT ?",
        (ConsentState.DECLINED.value, PAGE),
    )
    ended = data.reader.rows(
        "SELECT digest, name, analyst, failure FROM studies WHERE state IN (?, ?) "
        "ORDER BY ended_at DESC LIMIT ?",
        (*ENDED, PAGE),
    )
    return Refusals(
        ended_studies=tuple(
            EndedStudy(study=row["digest"], name=row["name"], analyst=row["analyst"], why=row["failure"])
            for row in ended
        ),
        declines=tuple(
            SiteDecline(
                study=row["study"],
                name=row["name"],
                round=row["round"],
                site=row["site"],
                reason=row["reason"],
            )
            for row in declined
        ),
        calls=calls,
    )
