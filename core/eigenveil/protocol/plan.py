"""A plan: a study made concrete, canonical and hashed. Its digest is in every message.

The plan holds everything that decides what is computed; two processes that hold the same digest
ask, answer, price and release the same thing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eigenveil.accounting.digits import shown
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.protocol.query import check_no_overflow
from eigenveil.queries import Gram
from eigenveil.queries.limits import least_row_radius, row_norm_limit
from eigenveil.study.algorithm import PROPERTIES, Algorithm, OwnAlgorithm
from eigenveil.study.checks import need
from eigenveil.study.grid import ROW_BITS, S
from eigenveil.study.price import ALIASING, MAX_MASKED_EPSILON, Composition, affordable, composition
from eigenveil.study.radius import longest
from eigenveil.study.study import FEWEST_IN_BATCH, NAME, Choose, Extraction, Scaling, Study
from eigenveil.study.toml import study_from_dict, study_to_dict

PLAN_VERSION = 6
SIMULATION = "simulation"  # what a simulation calls its federation and its analyst


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What runs. `submission` tells two runs of one study apart (each has its own price); `analyst` is the
    certified name of who asked, empty where nobody did (a study that is only explained) and `SIMULATION` in a
    simulation. An algorithm of the user's own has no federation, and no plan that was sent can name one.
    `micro_rho` and `atto_delta` are what its rounds may spend, each tried once.

    Raises:
        RequestError: `auto` was neither resolved nor left to the first releases, a federation would run an
            algorithm of the user's own, the budget is empty, or sums could overflow.
    """

    study: Study
    federation: str
    submission: str
    algorithm: Algorithm | OwnAlgorithm
    micro_rho: int
    atto_delta: int = 0
    analyst: str = ""

    def __post_init__(self) -> None:
        values = (self.federation, self.submission, self.analyst, self.micro_rho, self.atto_delta)
        need(
            [type(value) for value in values] == [str, str, str, int, int],
            "federation, submission and analyst must be texts, micro_rho and atto_delta whole",
        )
        named = not self.analyst or NAME.fullmatch(self.analyst) is not None
        need(named, f"analyst {self.analyst!r} is no certified name")
        during = self.algorithm is Algorithm.AUTO
        allowed = not during or (self.study.algorithm, self.study.choose) == (Algorithm.AUTO, Choose.DURING)
        need(allowed, 'a plan names its algorithm; `auto` is one where the study says choose = "during"')
        if isinstance(self.algorithm, OwnAlgorithm):
            what = f"{self.algorithm.name} is your own and runs in simulations only: no code travels"
            need(not (self.federation or self.analyst), what)
        wanted = affordable(self.study, self.algorithm)
        need(
            self.micro_rho >= 1 and self.once.fits(wanted),
            f"a plan for epsilon = {shown(self.study.epsilon)} may spend 1 to {wanted.micro_rho} micro-rho, "
            f"0 to {wanted.atto_delta} atto-delta, not {self.micro_rho} and {self.atto_delta}",
        )
        self._check_algorithm()
        self._check_batches()
        self._check_sums()

    def _check_algorithm(self) -> None:
        traits, name = self.algorithm.properties, self.algorithm.value
        need(traits.private, f"{name} is not private: it is a reference for `eigenveil compare` only")
        runs = len(self.study.federation.sites) == 1 or not traits.one_site
        need(runs, f"{name} runs at one site only; choose another algorithm")
        together = self.study.rank is Extraction.BLOCK or traits.deflation
        need(together, f'{name} finds its components together; leave out rank = "deflation"')
        stated, least = longest(self.study.radius), least_row_radius(self.study.dimension) / S
        shortens = traits.shortens or math.isinf(stated)
        need(shortens, f"{name} shortens no row, so it takes no public norm; leave out radius")
        need(stated >= least, f"radius: norm = {stated:g} is below the public floor of {least:g}")
        moves = self.study.scaling is not Scaling.STANDARD or not traits.exact_rows
        need(
            moves,
            f"{name} finds a subspace that records lie in, or nearly, and columns that are scaled by noised "
            'standard deviations and rounded again leave it; use scaling = "bounds" or "none"',
        )
        if self.study.masked:
            self._check_masked()

    def _check_masked(self) -> None:
        """Shares of noise add up to Gaussian noise alone, on sums that nobody looks at [P32]."""
        central, name = 'use trust = "central"', self.algorithm.value
        exact = (
            f"{name} needs exact sums at the coordinator, which secure aggregation shows nobody; {central}"
        )
        need(not self.algorithm.properties.trusted, exact)
        need(
            self.gaussian,
            f"{name} at delta = {shown(self.study.delta)} needs noise that is not Gaussian, and shares of "
            f"noise add up to no other; choose another algorithm and a delta above 0, or {central}",
        )
        need(
            self.study.epsilon <= MAX_MASKED_EPSILON,
            f"under secure aggregation epsilon is at most {shown(MAX_MASKED_EPSILON)}, "
            f"not {shown(self.study.epsilon)}",
        )

    def _check_batches(self) -> None:
        """One record is never a sum (core/decisions/0008); what a site can be sure of is its own policy."""
        traits, study, most = self.algorithm.properties, self.study, self._most_batches
        # Single records run where all of them are on one machine, and in no federation.
        if traits.batches and not traits.single_records and self.batches > most:
            where = f"{self.batches} batches at {len(study.federation.sites)} sites"
            raise RequestError(
                Code.BAD_STUDY,
                f"{self.algorithm.value} would deal {study.expected_records} expected records into {where}, "
                f"fewer than {FEWEST_IN_BATCH} each: ask for at most {most} batches, or another algorithm",
            )

    def _check_sums(self) -> None:
        d = self.study.dimension
        widest = Gram(centre=[0] * d, radius=row_norm_limit(d))  # type: ignore[arg-type]
        check_no_overflow(widest, self.most_records)

    @property
    def most_records(self) -> int:
        """Public upper bound on the records of all invited sites together."""
        return self.study.max_records * len(self.study.federation.sites)

    @property
    def once(self) -> Cost:
        """What its rounds may spend together, each tried once."""
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)

    @property
    def cost(self) -> Cost:
        """All that the study may ever spend: with every round tried as often as it may be."""
        times = self.study.attempts
        return Cost(micro_rho=times * self.micro_rho, atto_delta=times * self.atto_delta)

    @property
    def masked(self) -> bool:
        """Whether answers leave a site masked, with its share of the noise inside."""
        return self.study.masked

    @property
    def aliasing(self) -> int:
        """Atto-delta that each question pays beside its own [P32]."""
        return ALIASING if self.masked else 0

    @property
    def composition(self) -> Composition:
        return composition(self.study, self.algorithm)

    @property
    def gaussian(self) -> bool:
        """Whether all noise of the study is Gaussian."""
        return self.composition is Composition.GAUSSIAN

    @property
    def batches(self) -> int:
        """Into how many disjoint batches a pass deals the records; 1 unless the algorithm does so."""
        if not self.algorithm.properties.batches:
            return 1
        if self.algorithm is Algorithm.PRIVATE_OJA_SHUFFLED:
            return self.study.expected_records  # a place for each
        # Measured: more steps cost more noise than they turn the directions; and a step of the single
        # pass spends three batches, each of which must be large enough for its histogram to speak.
        single = self.algorithm is Algorithm.DP_PCA_SINGLE_PASS
        size, least, most = (6000, 15, 60) if single else (256, 8, 48)
        wanted = min(max(self.study.expected_records // size, least), most)
        return self.study.batches or max(1, min(wanted, self._most_batches))

    @property
    def _most_batches(self) -> int:
        """Batches that leave enough of the expected records in each at every site."""
        return self.study.expected_records // (FEWEST_IN_BATCH * len(self.study.federation.sites))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical plan: the study's identity everywhere."""
        return digest_of("plan", self._json)

    def to_json(self) -> bytes:
        """Canonical JSON: the bytes that are hashed, signed and sent."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        return canonical(plan_to_dict(self))


def plan_for(
    study: Study, algorithm: Algorithm | OwnAlgorithm, *, federation: str, submission: str, analyst: str = ""
) -> Plan:
    """The plan of a study that runs this algorithm, whatever it names, and spends all that it may.

    Raises:
        RequestError: see `Plan`.
    """
    cost = affordable(study, algorithm)
    return Plan(
        study=study,
        federation=federation,
        submission=submission,
        analyst=analyst,
        algorithm=algorithm,
        micro_rho=cost.micro_rho,
        atto_delta=cost.atto_delta,
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plain nested values with every key present."""
    return {
        "version": PLAN_VERSION,
        "federation": plan.federation,
        "submission": plan.submission,
        "analyst": plan.analyst,
        "algorithm": plan.algorithm.value,
        "revision": plan.algorithm.properties.revision,
        "row_bits": ROW_BITS,
        "micro_rho": plan.micro_rho,
        "atto_delta": str(plan.atto_delta),  # canonical JSON has no integers beyond 2**53
        "study": study_to_dict(plan.study),
    }


def plan_from_json(data: bytes) -> Plan:
    """Read a plan and insist that it is canonical (its bytes hash to its digest).

    Raises:
        PeerError: not canonical, an unknown version or key.
        RequestError: a value is refused.
    """
    try:
        raw = parse_json(data)
        plan = _plan_from_dict(raw)
        written = plan.to_json()
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise PeerError(Code.PROTOCOL, f"the plan cannot be read: {problem}") from problem
    if written != data:
        raise PeerError(Code.PROTOCOL, "the plan is not in canonical form or has unknown keys")
    return plan


def _plan_from_dict(raw: dict[str, Any]) -> Plan:
    if (raw["version"], raw["row_bits"]) != (PLAN_VERSION, ROW_BITS):
        raise PeerError(
            Code.VERSION,
            f"plan version {raw['version']} with {raw['row_bits']}-bit rows is not supported here",
        )
    algorithm = Algorithm(raw["algorithm"])
    traits = PROPERTIES[algorithm]
    if raw["revision"] != traits.revision:
        raise PeerError(
            Code.VERSION,
            f"the plan is for revision {raw['revision']} of {algorithm.value}, and this is revision "
            f"{traits.revision}: coordinator and sites need the same version of eigenveil from a "
            "study's first round to its last",
        )
    return Plan(
        study=study_from_dict(raw["study"]),
        federation=raw["federation"],
        submission=raw["submission"],
        analyst=raw["analyst"],
        algorithm=algorithm,
        micro_rho=raw["micro_rho"],
        atto_delta=int(raw["atto_delta"]),
    )
