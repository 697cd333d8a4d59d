"""How the federation stands: its sites, its budget, and what somebody should look after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cryptography import x509

from eigenveil.accounting.budget import Conversion, studies_left
from eigenveil.accounting.digits import percent_up
from eigenveil.identity import Role
from eigenveil_common.files import read
from eigenveil_server.console.desk import Books
from eigenveil_server.pki.registry import Enrolled, Registry
from eigenveil_server.recovery.checkpoints import awaited
from eigenveil_server.rpc.directory import SiteDirectory
from eigenveil_server.storage.states import StudyState

DAY = 86400.0
SOON_DAYS = 2.0  # a site renews when a third of its week is left: later than this it has not
AUTHORITY_DAYS = 60.0
LITTLE = 0.1  # of the budget
RECENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStanding:
    """One site; times in Unix seconds, None if not known or not for whoever asks. `heard` is to the hour."""

    name: str
    online_since: float | None
    heard: float | None
    certificate_ends: float | None
    asks: bool | None
    offers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A study that there was, and how many more like it the budget has; None: any number."""

    name: str
    epsilon: float
    left: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """All amounts as epsilons, in words that name the neighbours, and as shares of the whole. `but_for`: the
    probability with which the whole does not hold."""

    total: str
    left: str
    but_for: str
    share_spent: Fraction
    share_reserved: Fraction
    exact: bool
    prices: tuple[Price, ...]

    @property
    def words(self) -> str:
        """What its gauge shows."""
        spent, reserved = percent_up(self.share_spent, 1), percent_up(self.share_reserved, 1)
        return f"{spent} % of the budget is spent, {reserved} % is set aside for studies under way"


def budget(books: Books) -> Budget:
    """The federation's budget now."""
    left, totals = books.left(), books.ledger.totals
    spent, limit, exact = totals.spent.micro_rho, totals.limit.micro_rho, totals.exact
    whole, told = max(1, limit), Conversion(delta=books.config.budget_delta, exact=exact)
    recent = books.lists.latest(RECENT, tuple(set(StudyState) - {StudyState.FAILED}))
    plans = [(one.name, books.studies.plan_of(books.studies.get(one.digest))) for one in recent]
    return Budget(
        total=told.spent(limit),
        left=told.left(left.micro_rho, limit),
        but_for=told.but_for(totals.limit),
        share_spent=Fraction(spent, whole),
        share_reserved=Fraction(totals.committed.micro_rho - spent, whole),
        exact=exact,
        prices=tuple(
            Price(name=name, epsilon=plan.study.epsilon, left=studies_left(left, plan.cost))
            for name, plan in plans
        ),
    )


def sites(
    directory: SiteDirectory, registry: Registry, online: Mapping[str, int] | None
) -> tuple[SiteStanding, ...]:
    """The sites that may call. `online` is None for those who are not told when a site's people start and
    stop it."""
    enrolled = {one.name: one for one in registry.enrolled() if one.role == Role.SITE.value}
    found = directory.current()
    return tuple(
        _site(name, enrolled.get(name), directory.heard_at(name), found.sites[name], online)
        for name in sorted(found.sites)
    )


def _site(
    name: str, enrolled: Enrolled | None, heard: int, stated: object, online: Mapping[str, int] | None
) -> SiteStanding:
    since = None if online is None else online.get(name)
    known = online is not None and enrolled is not None
    offers = getattr(stated, "offers", None)
    return SiteStanding(
        name=name,
        online_since=None if since is None else since / 1000,
        heard=heard / 1000 if heard else None,
        certificate_ends=enrolled.expires_at / 1000 if known and enrolled is not None else None,
        asks=getattr(stated, "asks", None),
        offers=None if offers is None else len(offers),
    )


def warnings(books: Books, standing: tuple[SiteStanding, ...], at: float) -> Iterator[str]:
    """What the operator should look after."""
    if missing := awaited(books.reader):
        yield (
            "The coordinator was restored from a backup, and nothing begins before these sites have shown "
            f"what they have seen: {', '.join(missing)}."
        )
    for one in standing:
        ends = one.certificate_ends
        if ends is not None and ends < at:
            yield f"The certificate of {one.name} has ended: hand it a new join file."
        elif ends is not None and ends - at < SOON_DAYS * DAY:
            yield f"The certificate of {one.name} ends in {SOON_DAYS:g} days or less, and was not renewed."
    for study in books.lists.in_states(StudyState.AWAITING):
        yield (
            f"{study.name} by {study.analyst} waits for your word: eigenveil-coordinator approve, or refuse."
        )
    held = budget(books)
    if 1 - held.share_spent - held.share_reserved < LITTLE:
        yield f"Less than {LITTLE:.0%} of the budget is left: {held.left}."
    for certificate in x509.load_pem_x509_certificates(read(books.config.files.ca)):
        days = (certificate.not_valid_after_utc.timestamp() - at) / DAY
        if days < AUTHORITY_DAYS:
            yield f"A certificate authority ends in {days:.0f} days: see eigenveil-coordinator ca."
