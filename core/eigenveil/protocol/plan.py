"""Plan of a study, with algorithm and budget in canonical JSON, and the federation's signature of it [R4]. It
determines all that is computed: the same digest, which is in every message, means the same queries, costs and
releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eigenveil.accounting.formatting import shown
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.protocol.plan_checks import check_algorithm, check_batches, check_sums
from eigenveil.signatures import Keys, check_signature
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.checks import need
from eigenveil.study.composition import (
    MASKED_ATTEMPT_DELTA,
    Composition,
    affordable,
    composition,
)
from eigenveil.study.grid import ROW_BITS
from eigenveil.study.study import (
    MAX_ATTEMPTS,
    MIN_BATCH_RECORDS,
    NAME,
    Choose,
    Study,
)
from eigenveil.study.toml import (
    ATTEMPTS,
    KEYS,
    SPARE_SINCE,
    least_plan_version,
    study_from_dict,
    study_to_dict,
)

PLAN_VERSION_MIN = 7  # of 1.0; it is read for ever, because releases are verified for ever
PLAN_VERSION = 8
PLAN_KEYS: dict[str, Any] = dict.fromkeys(
    (
        *("version", "required", "federation", "submission", "analyst", "algorithm", "revision", "row_bits"),
        *("micro_rho", "atto_delta", "spare_micro_rho"),
    )
) | {"study": KEYS}
REQUIRED_PRIOR = "study.prior"  # a site that does not know it would compute other queries
SIMULATION = "simulation"  # name of a simulation's federation and analyst


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study, its algorithm and its budget. `submission` distinguishes two runs of one study; each is
    charged. `analyst` is the certified name of the analyst: empty if the study is only explained,
    `SIMULATION` in a simulation. A plan with a custom algorithm has no federation, and is never read from a
    message. `micro_rho` and `atto_delta` are the budget of its rounds, each attempted once, and
    `spare_micro_rho` is set aside for repeated attempts at masked rounds [P35]. `attempts` is 1, but for
    plans before version 8: these allow as many at each round, each at the full cost. `unknown` has the keys
    of a later version that this plan does not require: they are part of its digest, and change nothing that
    is computed. `version` is that of its keys, `revision` that of its algorithm (0: the newest). Raises
    RequestError: `auto` is neither resolved nor left to the first releases, a federation would run a custom
    algorithm, the budget is empty, or sums could overflow."""

    study: Study
    federation: str
    submission: str
    algorithm: Algorithm | CustomAlgorithm
    micro_rho: int
    atto_delta: int = 0
    spare_micro_rho: int = 0
    attempts: int = 1
    analyst: str = ""
    version: int = PLAN_VERSION
    revision: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.revision == 0:
            object.__setattr__(self, "revision", self.algorithm.properties.revision)
        costs = (self.micro_rho, self.atto_delta, self.spare_micro_rho, self.attempts)
        values = (self.federation, self.submission, self.analyst, *costs)
        need(
            [type(value) for value in values] == [str, str, str, int, int, int, int],
            "federation, submission and analyst must be texts, micro_rho, atto_delta, spare_micro_rho and "
            "attempts whole numbers",
        )
        named = not self.analyst or NAME.fullmatch(self.analyst) is not None
        need(named, f"analyst {self.analyst!r} is not a valid name")
        during = (self.study.algorithm, self.study.choose) == (Algorithm.AUTO, Choose.DURING)
        allowed = self.algorithm is not Algorithm.AUTO or during
        need(allowed, 'a plan must name its algorithm; `auto` is allowed with choose = "during" only')
        if isinstance(self.algorithm, CustomAlgorithm):
            what = f"{self.algorithm.name} is a custom algorithm, which runs in simulations only"
            need(not (self.federation or self.analyst), what)
        self._check_attempts()
        most = affordable(self.study, self.algorithm, self._deltas)
        need(
            self.micro_rho >= 1 and self.cost.fits(most),
            f"a plan for epsilon = {shown(self.study.epsilon)} may spend 1 to {most.micro_rho} micro-rho, "
            f"0 to {most.atto_delta} atto-delta, not {self.micro_rho + self.spare_micro_rho} and "
            f"{self._deltas * self.atto_delta}",
        )
        least = least_plan_version(self.study)
        need(self.version >= least, f"the study has keys of plans from version {least} on")
        check_algorithm(self.study, self.algorithm)
        check_batches(self.study, self.algorithm, self.batches, self._most_batches)
        check_sums(self.study)

    def _check_attempts(self) -> None:
        """Check the pool of repeated attempts: each costs at most what all rounds cost."""
        most = MAX_ATTEMPTS if self.version < SPARE_SINCE and self.study.masked else 1
        need(1 <= self.attempts <= most, f"a plan's attempts must lie between 1 and {most}")
        pool = (self._deltas - 1) * self.micro_rho
        least = pool if self.attempts > 1 else 0
        need(
            least <= self.spare_micro_rho <= pool,
            f"spare_micro_rho = {self.spare_micro_rho} must lie between {least} and {pool}",
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
        """Budget of the study: of its rounds, and of repeated attempts at them."""
        return self.single_attempt_cost + self.spare_cost

    @property
    def spare_cost(self) -> Cost:
        """Pool that is set aside for repeated attempts at masked rounds [P35]."""
        return Cost(micro_rho=self.spare_micro_rho, atto_delta=(self._deltas - 1) * self.atto_delta)

    @property
    def _deltas(self) -> int:
        """Number of times that the delta of all rounds is reserved."""
        return max(self.attempts, 1 + self.study.spare_attempts)

    @property
    def most_attempts(self) -> int:
        """Largest number of an attempt at one round, if the pool pays for it."""
        return MAX_ATTEMPTS if self.study.spare_attempts else self.attempts

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
    """Return the plan of a study with this algorithm and the study's whole budget. Each spare attempt could
    pay for all rounds: only a rehearsal tells what a query costs (`planning.choose.with_pool`). Raises
    RequestError: see `Plan`."""
    cost, times = affordable(study, algorithm), 1 + study.spare_attempts
    return Plan(
        study=study,
        federation=federation,
        submission=submission,
        analyst=analyst,
        algorithm=algorithm,
        micro_rho=cost.micro_rho // times,
        atto_delta=cost.atto_delta // times,
        spare_micro_rho=study.spare_attempts * (cost.micro_rho // times),
        version=version,
        revision=revision,
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return nested plain values, with every key present. `required` names the keys that a reader must know,
    beyond those of every plan of this version."""
    study = study_to_dict(plan.study, plan.version)
    spare = {"spare_micro_rho": plan.spare_micro_rho}
    if plan.version < SPARE_SINCE:
        study["privacy"][ATTEMPTS], spare = plan.attempts, {}
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
        **spare,
        "study": study,
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
    study, _ = _divided(plan["study"], KEYS)
    privacy = {key: value for key, value in study["privacy"].items() if key != ATTEMPTS}
    return study_from_dict({**study, "privacy": privacy})


def attempt_limits(plan: Mapping[str, Any]) -> tuple[int, int]:
    """Return the most attempts at one round and the pool of repeated ones, in micro-rho, of a plan in plain
    values."""
    privacy, micro_rho = plan["study"]["privacy"], int(plan["micro_rho"])
    if plan["version"] < SPARE_SINCE:
        attempts = int(privacy.get(ATTEMPTS, 1))
        return attempts, (attempts - 1) * micro_rho
    return MAX_ATTEMPTS if privacy["spare_attempts"] else 1, int(plan["spare_micro_rho"])


def _plan_from_dict(raw: dict[str, Any], unknown: dict[str, Any]) -> Plan:
    algorithm = Algorithm(raw["algorithm"])
    if raw["revision"] not in algorithm.properties.revisions:
        has = ", ".join(map(str, algorithm.properties.revisions))
        raise PeerError(
            Code.VERSION,
            f"the plan is for revision {raw['revision']} of {algorithm.value}, and this program has {has}",
        )
    early = raw["version"] < SPARE_SINCE
    return Plan(
        study=planned_study(raw),
        federation=raw["federation"],
        submission=raw["submission"],
        analyst=raw["analyst"],
        algorithm=algorithm,
        micro_rho=raw["micro_rho"],
        atto_delta=int(raw["atto_delta"]),
        spare_micro_rho=attempt_limits(raw)[1] if early else raw["spare_micro_rho"],
        attempts=raw["study"]["privacy"][ATTEMPTS] if early else 1,
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
