"""Plan of a study, with algorithm and budget in canonical JSON, and the federation's signature of it [R4]. It
determines all that is computed: the same digest, which is in every message, means the same queries, costs and
releases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eigenveil.accounting.formatting import shown
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.queries import Gram
from eigenveil.queries.limits import SUM_LIMIT, least_row_radius, require, row_norm_limit
from eigenveil.signatures import Keys, check_signature
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.checks import need
from eigenveil.study.composition import (
    MASKED_ATTEMPT_DELTA,
    MAX_MASKED_EPSILON,
    Composition,
    affordable,
    composition,
)
from eigenveil.study.grid import ROW_BITS, S
from eigenveil.study.radius import stated_norm
from eigenveil.study.study import MIN_BATCH_RECORDS, NAME, Choose, Extraction, Scaling, Study
from eigenveil.study.toml import KEYS, least_plan_version, study_from_dict, study_to_dict

PLAN_VERSION_MIN = 7  # of 1.0; it is read for ever, because releases are verified for ever
PLAN_VERSION = 8
PLAN_KEYS: dict[str, Any] = dict.fromkeys(
    (
        *("version", "required", "federation", "submission", "analyst", "algorithm", "revision", "row_bits"),
        *("micro_rho", "atto_delta"),
    )
) | {"study": KEYS}
REQUIRED_PRIOR = "study.prior"  # a site that does not know it would compute other queries
SIMULATION = "simulation"  # name of a simulation's federation and analyst


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study, its algorithm and its budget. `submission` distinguishes two runs of one study; each is
    charged. `analyst` is the certified name of the analyst: empty if the study is only explained,
    `SIMULATION` in a simulation. A plan with a custom algorithm has no federation, and is never read from a
    message. `micro_rho` and `atto_delta` are the budget of its rounds, each attempted once. `unknown` has the
    keys of a later version that this plan does not require: they are part of its digest, and change nothing
    that is computed. `version` is that of its keys, `revision` that of its algorithm (0: the newest). Raises
    RequestError: `auto` is neither resolved nor left to the first releases, a federation would run a custom
    algorithm, the budget is empty, or sums could overflow."""

    study: Study
    federation: str
    submission: str
    algorithm: Algorithm | CustomAlgorithm
    micro_rho: int
    atto_delta: int = 0
    analyst: str = ""
    version: int = PLAN_VERSION
    revision: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.revision == 0:
            object.__setattr__(self, "revision", self.algorithm.properties.revision)
        values = (self.federation, self.submission, self.analyst, self.micro_rho, self.atto_delta)
        need(
            [type(value) for value in values] == [str, str, str, int, int],
            "federation, submission and analyst must be texts, micro_rho and atto_delta whole numbers",
        )
        named = not self.analyst or NAME.fullmatch(self.analyst) is not None
        need(named, f"analyst {self.analyst!r} is not a valid name")
        during = (self.study.algorithm, self.study.choose) == (Algorithm.AUTO, Choose.DURING)
        allowed = self.algorithm is not Algorithm.AUTO or during
        need(allowed, 'a plan must name its algorithm; `auto` is allowed with choose = "during" only')
        if isinstance(self.algorithm, CustomAlgorithm):
            what = f"{self.algorithm.name} is a custom algorithm, which runs in simulations only"
            need(not (self.federation or self.analyst), what)
        most = affordable(self.study, self.algorithm)
        need(
            self.micro_rho >= 1 and self.single_attempt_cost.fits(most),
            f"a plan for epsilon = {shown(self.study.epsilon)} may spend 1 to {most.micro_rho} micro-rho, "
            f"0 to {most.atto_delta} atto-delta, not {self.micro_rho} and {self.atto_delta}",
        )
        least = least_plan_version(self.study)
        need(self.version >= least, f"the study has keys of plans from version {least} on")
        self._check_algorithm()
        self._check_batches()
        self._check_sums()

    def _check_algorithm(self) -> None:
        properties, name = self.algorithm.properties, self.algorithm.value
        need(properties.private, f"{name} is not private; it is a reference for `eigenveil compare` only")
        runs = len(self.study.federation.sites) == 1 or not properties.one_site
        need(runs, f"{name} runs at one site only; choose another algorithm")
        finds_block = self.study.rank is Extraction.BLOCK or properties.deflation
        need(finds_block, f'{name} finds all components at once; leave out rank = "deflation"')
        stated_limit, least = stated_norm(self.study.radius), least_row_radius(self.study.dimension) / S
        clips_rows = properties.clips_rows or math.isinf(stated_limit)
        need(clips_rows, f"{name} clips no rows, so it takes no public norm; leave out radius")
        need(stated_limit >= least, f"radius: norm = {stated_limit:g} is below the minimum of {least:g}")
        need(
            self.study.scaling is not Scaling.STANDARD or not properties.exact_rows,
            f"{name} finds a subspace that contains the records exactly, and scaling by noised standard "
            'deviations would round the records out of it; use scaling = "bounds" or "none"',
        )
        need(
            self.study.prior is None or self.algorithm is Algorithm.REFINED_COV,
            f"{name} takes no prior; leave it out, or use refined-cov with a delta above 0 and no `choose`",
        )
        if self.study.masked:
            self._check_masked()

    def _check_masked(self) -> None:
        """Check that the algorithm needs Gaussian noise on sums only: shares add up to no other [P32]."""
        central, name = 'use trust = "central"', self.algorithm.value
        exact = f"{name} needs exact sums at the coordinator, which secure aggregation hides; {central}"
        need(not self.algorithm.properties.trusted, exact)
        need(
            self.gaussian,
            f"{name} at delta = {shown(self.study.delta)} needs noise that is not Gaussian, which secure "
            f"aggregation cannot add; choose another algorithm and a delta above 0, or {central}",
        )
        need(
            self.study.epsilon <= MAX_MASKED_EPSILON,
            f"under secure aggregation epsilon is at most {shown(MAX_MASKED_EPSILON)}, "
            f"not {shown(self.study.epsilon)}",
        )

    def _check_batches(self) -> None:
        """Check that every batch has enough expected records (core/decisions/0008); sites check their own."""
        properties, study, most = self.algorithm.properties, self.study, self._most_batches
        # Algorithms on single records run on one machine, never in a federation.
        if properties.batches and not properties.single_records and self.batches > most:
            where = f"{self.batches} batches at {len(study.federation.sites)} sites"
            raise RequestError(
                Code.BAD_STUDY,
                f"{self.algorithm.value} would divide {study.expected_records} expected records into "
                f"{where}, fewer than {MIN_BATCH_RECORDS} each; state at most {most} batches, or use another "
                "algorithm",
            )

    def _check_sums(self) -> None:
        d, sites = self.study.dimension, len(self.study.federation.sites)
        widest = Gram(centre=[0] * d, radius=row_norm_limit(d))  # type: ignore[arg-type]
        most = (SUM_LIMIT - 1) // (widest.bound * sites)
        require(
            self.study.max_records <= most,
            f"max_records = {self.study.max_records}: sums of {d} columns over that many records of each of "
            f"{sites} sites could leave the exact range; lower max_records to at most {most}",
        )

    @property
    def most_records(self) -> int:
        """Public upper bound of the records of all invited sites together."""
        return self.study.max_records * len(self.study.federation.sites)

    @property
    def single_attempt_cost(self) -> Cost:
        """Budget of all rounds, each attempted once."""
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)

    @property
    def cost(self) -> Cost:
        """Budget of the study, with the maximum number of attempts at every round."""
        times = self.study.attempts
        return Cost(micro_rho=times * self.micro_rho, atto_delta=times * self.atto_delta)

    @property
    def masked(self) -> bool:
        """True if sites mask their answers and add their share of the noise."""
        return self.study.masked

    @property
    def masked_delta(self) -> int:
        """Atto-delta that each masked query costs in addition [P32]."""
        return MASKED_ATTEMPT_DELTA if self.masked else 0

    @property
    def composition(self) -> Composition:
        return composition(self.study, self.algorithm)

    @property
    def gaussian(self) -> bool:
        """True if all noise of the study is Gaussian."""
        return self.composition is Composition.GAUSSIAN

    @property
    def batches(self) -> int:
        """Number of disjoint batches of a pass over the records; 1 for algorithms without batches."""
        if not self.algorithm.properties.batches:
            return 1
        if self.algorithm is Algorithm.PRIVATE_OJA_SHUFFLED:
            return self.study.expected_records  # one record each
        size, most = (6000, 60) if self.algorithm is Algorithm.DP_PCA_SINGLE_PASS else (256, 48)
        allowed_cost = min(max(self.study.expected_records // size, self.fewest_batches), most)
        return self.study.batches or max(1, min(allowed_cost, self._most_batches))

    @property
    def fewest_batches(self) -> int:
        """Least number of batches that is planned for an algorithm with batches, if its records suffice."""
        # Measured: more steps add more noise than they improve the directions. A step of the single pass
        # takes three batches, each large enough for its histogram to release bins.
        return 15 if self.algorithm is Algorithm.DP_PCA_SINGLE_PASS else 8

    @property
    def _most_batches(self) -> int:
        """Largest number of batches that leaves enough expected records in each at every site."""
        return self.study.expected_records // (MIN_BATCH_RECORDS * len(self.study.federation.sites))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical plan, which identifies the study."""
        return digest_of("plan", self._json)

    def to_json(self) -> bytes:
        """Canonical JSON: the bytes that are hashed, signed and sent."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        return canonical(_merged(plan_to_dict(self), self.unknown))

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Keys of `unknown`, such as "study.records.horizon"."""
        return tuple(_paths(self.unknown, PLAN_KEYS))


def plan_for(
    study: Study,
    algorithm: Algorithm | CustomAlgorithm,
    *,
    federation: str,
    submission: str,
    analyst: str = "",
    version: int = PLAN_VERSION,
    revision: int = 0,
) -> Plan:
    """Return the plan of a study with this algorithm and the study's whole budget. Raises RequestError: see
    `Plan`."""
    cost = affordable(study, algorithm)
    return Plan(
        study=study,
        federation=federation,
        submission=submission,
        analyst=analyst,
        algorithm=algorithm,
        micro_rho=cost.micro_rho,
        atto_delta=cost.atto_delta,
        version=version,
        revision=revision,
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return nested plain values, with every key present. `required` names the keys that a reader must know,
    beyond those of every plan of this version."""
    return {
        "version": plan.version,
        "required": [] if plan.study.prior is None else [REQUIRED_PRIOR],
        "federation": plan.federation,
        "submission": plan.submission,
        "analyst": plan.analyst,
        "algorithm": plan.algorithm.value,
        "revision": plan.revision,
        "row_bits": ROW_BITS,
        "micro_rho": plan.micro_rho,
        "atto_delta": str(plan.atto_delta),  # canonical JSON has no integers beyond 2**53
        "study": study_to_dict(plan.study, plan.version),
    }


def plan_from_json(data: bytes) -> Plan:
    """Return the plan in `data`, which must be canonical JSON.

    1. Its version and its algorithm's revision are known here, and so is every key that it requires.
    2. Keys that are unknown here and not required are kept in `Plan.unknown`.
    3. The plan of all other keys is valid, and both together are the same bytes again.

    Raises PeerError: not canonical, or an unknown version, revision or required key; RequestError: a value is
    invalid."""
    try:
        raw = parse_json(data)
        _check_version(raw)
        known, unknown = _divided(raw, PLAN_KEYS)
        plan = _plan_from_dict(known, unknown)
        written = plan.to_json()
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise PeerError(Code.PROTOCOL, f"the plan cannot be read: {problem}") from problem
    if written != data:
        raise PeerError(Code.PROTOCOL, "the plan is not in canonical form")
    return plan


def _check_version(raw: Mapping[str, Any]) -> None:
    version = raw["version"]
    known = type(version) is int and PLAN_VERSION_MIN <= version <= PLAN_VERSION
    if not known or raw["row_bits"] != ROW_BITS:
        raise PeerError(
            Code.VERSION,
            f"plan version {raw['version']} with {raw['row_bits']}-bit rows is not supported by this "
            f"version, which reads {PLAN_VERSION_MIN} to {PLAN_VERSION} with {ROW_BITS}; upgrade eigenveil",
        )
    if unknown := [name for name in raw["required"] if name != REQUIRED_PRIOR]:
        names = ", ".join(map(str, unknown))
        raise PeerError(
            Code.VERSION, f"the plan requires what this version does not know: {names}. Upgrade eigenveil"
        )


def _divided(data: Mapping[str, Any], keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the part of nested values whose keys are in the tree `keys`, and the rest."""
    known, rest = dict[str, Any](), dict[str, Any]()
    for key, value in data.items():
        if key not in keys:
            rest[key] = value
        elif keys[key] and isinstance(value, dict):
            known[key], inner = _divided(value, keys[key])
            rest |= {key: inner} if inner else {}
        else:
            known[key] = value
    return known, rest


def _merged(known: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inverse of `_divided`."""
    inner = {key: _merged(known[key], value) if key in known else value for key, value in rest.items()}
    return {**known, **inner}


def _paths(rest: Mapping[str, Any], keys: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in rest.items():
        if key in keys:
            yield from _paths(value, keys[key], f"{before}{key}.")
        else:
            yield f"{before}{key}"


def planned_study(plan: Mapping[str, Any]) -> Study:
    """Return the study of a plan in plain values, without the keys that are unknown here. Raises as
    `study_from_dict`."""
    return study_from_dict(_divided(plan["study"], KEYS)[0])


def _plan_from_dict(raw: dict[str, Any], unknown: dict[str, Any]) -> Plan:
    algorithm = Algorithm(raw["algorithm"])
    if raw["revision"] not in algorithm.properties.revisions:
        has = ", ".join(map(str, algorithm.properties.revisions))
        raise PeerError(
            Code.VERSION,
            f"the plan is for revision {raw['revision']} of {algorithm.value}, and this program has {has}",
        )
    return Plan(
        study=study_from_dict(raw["study"]),
        federation=raw["federation"],
        submission=raw["submission"],
        analyst=raw["analyst"],
        algorithm=algorithm,
        micro_rho=raw["micro_rho"],
        atto_delta=int(raw["atto_delta"]),
        version=raw["version"],
        revision=raw["revision"],
        unknown=unknown,
    )


PLAN_SIGNED = b"eigenveil/plan-signature/v1\n"


def verify_plan(plan_json: bytes, signature: bytes, release_keys: Keys) -> Plan:
    """Return the plan, if a release key of the federation signed its exact bytes. Raises
    PeerError: code `identity`, signed by another key or changed; `protocol`, not canonical; RequestError: a
    value of the plan is invalid."""
    check_signature(
        release_keys,
        signature,
        PLAN_SIGNED + plan_json,
        "the plan is not signed by this federation; it was rejected",
    )
    return plan_from_json(plan_json)
