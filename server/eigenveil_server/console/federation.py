"""Data of the overview and the operators' pages: sites, budget, warnings, audit log, refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cryptography import x509

from eigenveil.accounting.budget import Conversion, studies_left
from eigenveil.accounting.formatting import percent_up
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.protocol.plan import Plan
from eigenveil.study.checks import check_readable
from eigenveil_common.files import read
from eigenveil_common.storage.database import Row
from eigenveil_server.console.page_context import ConsoleData
from eigenveil_server.pki.registry import EnrolledCaller, Registry
from eigenveil_server.recovery.checkpoints import awaited_sites
from eigenveil_server.rpc.sites import SiteDirectory
from eigenveil_server.storage.states import ConsentState, StudyState

DAY_MS = 86_400_000
SOON_DAYS = 2.0  # a site renews when a third of its week is left, so before this
AUTHORITY_DAYS = 60.0
LOW_BUDGET_SHARE = 0.1  # of the budget
RECENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOverview:
    """Overview of a site. Unix milliseconds, None if unknown or hidden; `last_call` is exact to the hour."""

    name: str
    statement: SiteStatement | None
    last_call: int | None
    online_since: int | None
    certificate_ends: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of the federation, as texts with epsilons and their neighbouring relation, and as shares of the
    total. `failure_probability` is the probability with which the total does not hold. `past` has the plans
    of past studies, with the number of such studies left in the budget (None for any number)."""

    total: str
    left: str
    failure_probability: str
    share_spent: Fraction
    share_reserved: Fraction
    exact: bool
    past: list[tuple[Plan, int | None]]

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
    plans = [data.studies.plan_of(data.studies.get(one.digest)) for one in recent]
    return Budget(
        total=conversion.spent(limit),
        left=conversion.left(left.micro_rho, limit),
        failure_probability=conversion.failure_probability(totals.limit),
        share_spent=Fraction(spent, whole),
        share_reserved=Fraction(totals.committed.micro_rho - spent, whole),
        exact=exact,
        past=[(plan, studies_left(left, plan.cost)) for plan in plans],
    )


def sites(
    directory: SiteDirectory, registry: Registry, online: Mapping[str, int] | None
) -> tuple[SiteOverview, ...]:
    """Return the admitted sites; `online` is None for visitors who may not see when a site's staff work."""
    found = directory.current().sites
    ends = {one.name: one.expires_at for one in registry.enrolled() if one.role == Role.SITE.value}
    return tuple(
        SiteOverview(
            name=name,
            statement=found[name],
            last_call=directory.last_call_hour(name) or None,
            online_since=None if online is None else online.get(name),
            certificate_ends=None if online is None else ends.get(name),
        )
        for name in sorted(found)
    )


def warnings(data: ConsoleData, overviews: tuple[SiteOverview, ...], now: int) -> Iterator[str]:
    """Yield warnings for the operator; `now` in Unix milliseconds."""
    if missing := awaited_sites(data.reader):
        yield (
            "The coordinator was restored from a backup. No round opens before these sites have shown their "
            f"checkpoints: {', '.join(missing)}."
        )
    for one in overviews:
        ends = one.certificate_ends
        if ends is not None and ends < now:
            yield f"The certificate of {one.name} has expired. Give it a new join file."
        elif ends is not None and ends - now < SOON_DAYS * DAY_MS:
            yield f"The certificate of {one.name} expires in {SOON_DAYS:g} days or less and was not renewed."
    for study in data.lists.in_states(StudyState.AWAITING):
        about = f"{study.name} by {study.analyst}"
        yield f"{about} waits for approval: eigenveil-coordinator approve, or refuse."
    current = budget(data)
    if 1 - current.share_spent - current.share_reserved < LOW_BUDGET_SHARE:
        yield f"Less than {LOW_BUDGET_SHARE:.0%} of the budget is left: {current.left}."
    for certificate in x509.load_pem_x509_certificates(read(data.config.files.ca)):
        days = (1000 * certificate.not_valid_after_utc.timestamp() - now) / DAY_MS
        if days < AUTHORITY_DAYS:
            yield f"A certificate authority expires in {days:.0f} days. See eigenveil-coordinator ca."


PAGE = 50
MAX_REASON_LENGTH = 200
ENDED = ("failed", "cancelled")


def person(registry: Registry, role: str, name: str) -> EnrolledCaller:
    """Return one enrolled participant. Raises RequestError: code `not-found`."""
    for one in registry.enrolled():
        if (one.role, one.name) == (role, name):
            return one
    raise RequestError(Code.NOT_FOUND, "no participant of this role and name has enrolled")


def checked_reason(text: str) -> str:
    """Return the reason of a denial for the audit log. Raises RequestError: empty, too long, unreadable."""
    reason = " ".join(text.split())
    if not reason:
        raise RequestError(Code.BAD_ARGUMENT, "give a reason in a few words; it is stored in the audit log")
    check_readable("the reason", reason, MAX_REASON_LENGTH)
    return reason


def entries(data: ConsoleData, before: int) -> list[Row]:
    """Return a page of the audit log, latest first, below the number `before`."""
    return data.reader.rows(
        "SELECT id, at, kind, subject, detail FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?",
        (before, PAGE),
    )


def declines(data: ConsoleData) -> list[Row]:
    """Return the latest declines of a study (`round` is 0) or of a round, counted from 1, by a site."""
    return data.reader.rows(
        "SELECT d.study, s.name, d.round, d.site, d.reason, d.rule FROM ("
        "SELECT study, round + 1 AS round, site, declined AS reason, '' AS rule "
        "FROM answers WHERE declined IS NOT NULL "
        "UNION ALL SELECT study, 0, site, reason, rule FROM consents WHERE status = ?) d "
        "JOIN studies s ON s.digest = d.study ORDER BY s.submitted_at DESC, d.round DESC, d.site LIMIT ?",
        (ConsentState.DECLINED.value, PAGE),
    )


def ended_studies(data: ConsoleData) -> list[Row]:
    """Return the latest studies that ended without a release."""
    return data.reader.rows(
        "SELECT digest, name, analyst, failure FROM studies WHERE state IN (?, ?) "
        "ORDER BY ended_at DESC LIMIT ?",
        (*ENDED, PAGE),
    )
