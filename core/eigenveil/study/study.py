"""Study, its columns and its federation: frozen, validated values. All bounds are public, not from data."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any

from eigenveil.accounting.formatting import shown
from eigenveil.accounting.zcdp import MAX_EPSILON, Neighbours
from eigenveil.errors import Code, RequestError
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import NOT_STATED, Applicant
from eigenveil.study.checks import check_bounds, check_readable, check_unique, coerce_fields, is_date, need
from eigenveil.study.prior import Prior
from eigenveil.study.radius import PublicNorm, Radius, check_radius, unused_norm_warning
from eigenveil.study.scaling import NO_SPREADS, Spreads, default_scaling, width_warnings
from eigenveil.study.scaling import Scaling as Scaling

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DAY_SECONDS, WEEK = 86_400, 604_800
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MAX_COLUMNS = 20_000
MAX_SITES = 1000
MAX_RECORDS = 2**31
FINEST_STEPS: int = 2**12  # on either side of a column's middle
MAX_MULTIPLICITY = 1000
MAX_ATTEMPTS = 8  # at one round; each is charged in full
LIMITS = {
    "batches": 2**20,
    "max_records": MAX_RECORDS,
    "expected_records": MAX_RECORDS,
    "max_sites_per_person": MAX_MULTIPLICITY,
}
# Expected records in each batch at a site: of batches of 20, 1 in 23 million has fewer than 2.
MIN_BATCH_RECORDS = 20
MAX_NAME_LENGTH, MAX_PURPOSE_LENGTH = 200, 4000


def check_name(what: str, name: str) -> None:
    """Check the name of a study, a site or a dictionary."""
    fits = NAME.fullmatch(name) is not None
    need(fits, f"{what} {name!r}: use at most 63 lower-case letters, digits and hyphens")


def check_range(values: Any, field: str, most: int) -> None:
    """Check that a whole number lies between 1 and `most`, unless it is None."""
    value = getattr(values, field)
    need(value is None or 1 <= value <= most, f"{field} must lie between 1 and {most}, got {value}")


class Extraction(Enum):
    """Method for several components: `block` at once, with QR between rounds; `deflation` one by one."""

    BLOCK = "block"
    DEFLATION = "deflation"


class Choose(Enum):
    """Time at which `auto` chooses: `before` the first round, by public numbers; `during`, by releases."""

    BEFORE = "before"
    DURING = "during"


class Trust(Enum):
    """Trust model: the coordinator sees exact sums (`central`), or no party does (`secure-aggregation`)."""

    CENTRAL = "central"
    SECURE_AGGREGATION = "secure-aggregation"


class Missing(Enum):
    """Rule for a record with a missing value."""

    DROP = "drop"
    FILL = "fill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Measurement with a `name`, a `unit` and public bounds `lower` and `upper` (never taken from the data).

    `fill` replaces a missing value if the study's rule is `fill`; it must lie within the bounds. All three
    are in the column's unit.

    Raises:
        RequestError: code `bad-study`: the bounds are not finite and rising, or the name or unit is invalid.

    >>> age = Column(name="age", unit="year", lower=0, upper=120)
    >>> age.middle, age.half_range
    (60.0, 60.0)"""

    name: str
    unit: str
    lower: float
    upper: float
    fill: float | None = None

    def __post_init__(self) -> None:
        coerce_fields(self)  # and * would allow every column of a site
        need(self.name.strip() not in ("", "*"), f"a column needs a name, and {self.name!r} is none")
        check_readable("a column's name", self.name, MAX_NAME_LENGTH)
        check_readable("a unit", self.unit, MAX_NAME_LENGTH)
        where = f"column {self.name!r}"
        check_bounds(where, self.lower, self.upper, self.half_range)
        inside = self.fill is None or self.lower <= self.fill <= self.upper
        need(inside, f"{where}: fill value {self.fill} must lie within [{self.lower}, {self.upper}]")

    @property
    def middle(self) -> float:
        """The middle of the public bounds, in the column's unit."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def half_range(self) -> float:
        """Half the distance between the public bounds, in the column's unit."""
        return (self.upper - self.lower) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """Invited sites, and the conditions of a round.

    `sites` are all invited sites. The sites in `required`, and at least `quorum` sites (all, if None), must
    answer every round. A round waits `deadline_seconds` for answers. The first waits up to `loading_seconds`
    before that, for sites that load their records. A site with fewer than `minimum_cohort` declines. People
    decide until the end of the day `decide_by` (UTC, such as "2027-01-31"), or as long as the coordinator
    lets them, if that is earlier or nothing is stated.

    Raises:
        RequestError: code `bad-study`: a name is invalid or repeated, or a number is out of range.

    >>> Federation(sites=("north", "south", "west"), required=("north",), quorum=2).least
    2"""

    sites: tuple[str, ...]
    required: tuple[str, ...] = ()
    quorum: int | None = None
    deadline_seconds: float = 60.0
    minimum_cohort: int = 20
    decide_by: str = ""
    loading_seconds: float = 600.0

    def __post_init__(self) -> None:
        coerce_fields(self)
        day = not self.decide_by or (DATE.fullmatch(self.decide_by) is not None and is_date(self.decide_by))
        need(day, f'decide_by must be a day such as "2027-01-31", got {self.decide_by!r}')
        invited, many = set(self.sites), len(self.sites)
        need(1 <= many <= MAX_SITES, f"a study must invite 1 to {MAX_SITES} sites")
        for name in self.sites:
            check_name("site name", name)
        need(len(invited) == many, "a site is invited twice")
        for name in self.required:
            need(name in invited, f"required site {name!r} is not among the invited sites")
        quorum, seconds = self.quorum, self.deadline_seconds
        need(1 <= self.least <= many, f"quorum {quorum} must lie between 1 and the {many} invited sites")
        need(0 < seconds <= WEEK, f"deadline_seconds must lie between 0 and a week, got {seconds}")
        need(0 <= self.loading_seconds <= WEEK, "loading_seconds must lie between 0 and a week")
        check_range(self, "minimum_cohort", MAX_RECORDS)

    @property
    def decision_deadline(self) -> float:
        """Unix time before which people decide: the end of `decide_by`, or infinity."""
        if not self.decide_by:
            return math.inf
        day = datetime.combine(date.fromisoformat(self.decide_by), time(0), UTC)
        return day.timestamp() + DAY_SECONDS

    def seconds_to_decide(self, allowed: float, now: float) -> float:
        """Return the seconds that people have at the Unix time `now`, where the coordinator's operator lets
        them have `allowed` seconds."""
        return max(0.0, min(max(allowed, self.deadline_seconds), self.decision_deadline - now))

    @property
    def least(self) -> int:
        """Number of sites that must answer a round: the quorum, or all sites."""
        return len(self.sites) if self.quorum is None else self.quorum

    @property
    def further_attempts(self) -> str:
        """Advice for a study whose round should be attempted again without an unavailable site."""
        fewer = "" if self.least < len(self.sites) else f"a quorum below {len(self.sites)} and "
        return f"state {fewer}more spare_attempts, whose cost is set aside before the first round"

    def lacking(self, present: Collection[str]) -> str:
        """Return the reason why the sites `present` are too few for a round; empty if they suffice."""
        if missing := [name for name in self.required if name not in present]:
            return f"required sites did not answer: {', '.join(missing)}"
        few = len(present) < self.least
        return f"{len(present)} of the {self.least} sites needed answered" if few else ""

    def check_present(self, present: Collection[str], tried: int = 0) -> None:
        """Check that the sites `present` suffice for a round, after `tried` attempts that were charged.
        Raises RequestError: code `study-failed`: a required site or the quorum is missing."""
        if reason := self.lacking(present):
            attempts_text = f"{tried} attempts remain" if tried > 1 else "1 attempt remains"
            charged = f"{attempts_text} charged" if tried else "nothing was charged for this round"
            raise RequestError(Code.STUDY_FAILED, f"{reason}; {charged}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Study of a federation. Every field is a key of deploy/config/study.example.toml.

    Lists, numbers of numpy and the values of enumerations (`scaling="none"`) are accepted too.

    - `name`, `purpose`, `applicant`: for people. `components`: the number of components of `columns`.
    - `epsilon`, `delta`: differential privacy of each person, at up to `max_sites_per_person` sites, under
      the neighbouring relation `neighbours`.
    - `federation`: the sites. `algorithm` runs there; `choose` is the time at which `auto` chooses one, and
      `rank` the method for several components.
    - `trust`: under secure aggregation no party sees exact sums, not even the coordinator with `colluding`
      of the sites (1, if None). A round that loses a site may be attempted again: the cost of
      `spare_attempts` such attempts is set aside.
    - `missing`: rule for missing values. `person_column`: identifies the person of a row.
    - `centring`: subtract the private mean. `scaling`: units of the columns (None: `default_scaling`). Values
      are rounded to `grid_steps` steps on either side of a column's middle.
    - `radius`: "balance" (None), a quantile such as 0.8 (share of records left unclipped), "none" (1.0: the
      public bounds alone limit a record) or a `PublicNorm`.
    - `prior`: public or earlier axes, which refined-cov starts from where its releases agree with them.
    - `batches`: disjoint batches, for algorithms that read the records once.
    - `max_records`: public upper bound of a site's records; exact sums do not overflow below it.
    - `expected_records`: public estimate of all records. It is used for planning and limits the number of
      batches; the guarantee does not depend on it.

    Raises:
        RequestError: code `bad-study`: a field is invalid; the message has the valid values.

    >>> from eigenveil import Column, Federation, Study
    >>> study = Study(
    ...     name="pilot",
    ...     columns=[Column(name="age", unit="year", lower=0, upper=120),
    ...              Column(name="weight", unit="kg", lower=20, upper=250)],
    ...     epsilon=1.0,
    ...     delta=1e-6,
    ...     components=1,
    ...     federation=Federation(sites=["north", "south"], minimum_cohort=50),
    ...     scaling="bounds",
    ... )
    >>> study.dimension, study.algorithm.value, len(study.warnings())
    (2, 'auto', 1)"""

    name: str
    columns: tuple[Column, ...]
    epsilon: float
    delta: float
    components: int
    federation: Federation
    purpose: str = ""
    applicant: Applicant = NOT_STATED
    algorithm: Algorithm = Algorithm.AUTO
    choose: Choose = Choose.BEFORE
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    max_sites_per_person: int = 1
    missing: Missing = Missing.DROP
    person_column: str | None = None
    centring: bool = True
    scaling: Scaling | None = None
    grid_steps: int = FINEST_STEPS
    radius: Radius = None
    max_records: int = 2**24
    expected_records: int = 10_000
    rank: Extraction = Extraction.BLOCK
    batches: int | None = None
    trust: Trust = Trust.CENTRAL
    colluding: int | None = None
    spare_attempts: int = 0
    prior: Prior | None = None

    def __post_init__(self) -> None:
        coerce_fields(self)
        self._check_columns()
        self._set_scaling()
        self._check_privacy()
        self._check_trust()
        for name, most in LIMITS.items():
            check_range(self, name, most)
        need(
            self.choose is Choose.BEFORE or self.algorithm is Algorithm.AUTO,
            f'choose = "during" is for algorithm = "auto", and this study names {self.algorithm.value}: '
            "leave out one of the two",
        )
        check_radius(self.radius)
        standard = self.scaling is Scaling.STANDARD
        need(
            not (standard and isinstance(self.radius, PublicNorm)),
            'radius: a norm cannot be stated with scaling = "standard"; '
            'leave out radius, or state "balance", "none" or a quantile',
        )
        need(not standard or self.centring, 'scaling = "standard" needs the mean; leave out centring = false')
        need(
            1 <= self.grid_steps <= FINEST_STEPS and self.grid_steps.bit_count() == 1,
            f"grid_steps must be a power of two from 1 to {FINEST_STEPS}, got {self.grid_steps}",
        )
        if self.prior is not None:
            self.prior.check(self.dimension, self.components, self.scaling, self.federation.sites)

    def _check_columns(self) -> None:
        check_name("study name", self.name)
        check_readable("the purpose", self.purpose.replace("\n", " "), MAX_PURPOSE_LENGTH)
        check_readable("person_column", self.person_column or "", MAX_NAME_LENGTH)
        d, person, names = self.dimension, self.person_column, [column.name for column in self.columns]
        need(1 <= d <= MAX_COLUMNS, f"a study must have 1 to {MAX_COLUMNS} columns, got {d}")
        check_unique("columns", names)
        need(person not in names, f"person_column {person!r} cannot also be a measurement")
        fits = 1 <= self.components <= d
        need(fits, f"components = {self.components} must lie between 1 and the {d} columns")
        for column in self.columns if self.missing is Missing.FILL else ():
            filled = column.fill is not None
            need(filled, f'column {column.name!r}: missing = "fill" needs a public fill value')

    def _set_scaling(self) -> None:
        if self.scaling is None:
            found = default_scaling(
                self.columns, algorithm=self.algorithm, centring=self.centring, radius=self.radius
            )
            object.__setattr__(self, "scaling", found)

    def _check_privacy(self) -> None:
        epsilon, delta, most = self.epsilon, self.delta, shown(MAX_EPSILON)
        fits = 0 < epsilon <= MAX_EPSILON
        need(fits, f"epsilon must be a finite number above 0 and at most {most}, got {epsilon}")
        fits = math.isfinite(delta) and 0 <= delta < 1
        need(fits, f"delta must be 0 (pure differential privacy) or between 0 and 1, got {delta}")

    def _check_trust(self) -> None:
        if not self.masked:
            plain = self.colluding is None and self.spare_attempts == 0
            need(plain, 'colluding and spare_attempts need trust = "secure-aggregation"; leave them out')
            return
        spares, least = self.spare_attempts, self.federation.least
        fits = 0 <= spares < MAX_ATTEMPTS
        need(fits, f"spare_attempts must lie between 0 and {MAX_ATTEMPTS - 1}, got {spares}")
        remedy = "raise quorum above 1" if len(self.federation.sites) > 1 else "invite more"
        need(least >= 2, f"secure aggregation needs at least two sites: {remedy}")
        need(self.colluders >= 1, "colluding must be at least 1, because a site may help the coordinator")
        need(
            self.colluders < least,
            f"colluding = {self.colluders} is too large: one of the {least} sites that a round needs must be "
            f"honest; state at most {least - 1}, or raise quorum",
        )

    @property
    def changed_records(self) -> int:
        """Number of records in which neighbours differ, at all of a person's sites together."""
        return self.max_sites_per_person * self.neighbours.records

    @property
    def masked(self) -> bool:
        """True if sites mask their answers and add their share of the noise."""
        return self.trust is Trust.SECURE_AGGREGATION

    @property
    def colluders(self) -> int:
        """Number of sites that may collude with the coordinator under secure aggregation."""
        return 1 if self.colluding is None else self.colluding

    def with_algorithm(self, algorithm: Algorithm) -> Study:
        """Return the study with this algorithm; with `auto`, it chooses during the rounds. Only refined-cov
        keeps a prior."""
        choose = Choose.DURING if algorithm is Algorithm.AUTO else Choose.BEFORE
        prior = self.prior if algorithm is Algorithm.REFINED_COV else None
        return replace(self, algorithm=algorithm, choose=choose, prior=prior)

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @property
    def reach(self) -> float:
        """Largest norm of a record within the public bounds, in scaled units."""
        if self.scaling is not Scaling.NONE:
            return math.sqrt(self.dimension)
        widest = max(column.half_range for column in self.columns)
        return math.hypot(*(column.half_range / widest for column in self.columns))

    def warnings(self, spreads: Spreads = NO_SPREADS) -> tuple[str, ...]:
        """Return warnings for the analyst; none of them stops the study. `spreads`: as `width_warnings`."""
        found, sites = list[str](), len(self.federation.sites)
        if not self.algorithm.properties.exact_rows:
            found += width_warnings(self.columns, spreads, self.scaling, self.grid_steps)
        if self.delta * self.expected_records >= 0.1:
            found.append(
                f"delta = {shown(self.delta)} is not far below 1/n for about {self.expected_records} "
                f"records; choose delta below {0.1 / self.expected_records:.1e}"
            )
        if self.spare_attempts and self.federation.least == sites:
            found.append(
                f"spare_attempts = {self.spare_attempts} has no effect, because a further attempt omits the "
                f"unavailable site and a round needs all {sites} sites; state a lower quorum"
            )
        if self.prior is not None:
            found.append(self.prior.warning)
        return (*found, *unused_norm_warning(self.radius, self.reach))
