"""A plan: a study made concrete, canonical and hashed. Its digest is in every message.

The plan holds everything that decides what is computed; two processes that hold the same digest
ask, answer, price and release the same thing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eigenveil.accounting import Cost, micro_rho_for
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.ints import canonical, digest
from eigenveil.planner import choose
from eigenveil.query import ROW_BITS, Gram, check_no_overflow, row_norm_limit
from eigenveil.study import Algorithm, Study
from eigenveil.study_toml import study_from_dict, study_to_dict

PLAN_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What runs. `submission` tells two runs of one study apart (each has its own price).

    Raises:
        RequestError: `auto` was not resolved, the budget is empty, or sums could overflow.
    """

    study: Study
    federation: str
    submission: str
    algorithm: Algorithm
    micro_rho: int

    def __post_init__(self) -> None:
        kinds = [type(value) for value in (self.federation, self.submission, self.micro_rho)]
        if kinds != [str, str, int]:
            raise RequestError(
                Code.BAD_STUDY, "federation and submission must be texts, micro_rho a whole number"
            )
        if self.algorithm is Algorithm.AUTO:
            raise RequestError(Code.BAD_STUDY, "a plan names its algorithm; `auto` is for studies")
        wanted = micro_rho_for(self.study.epsilon, self.study.delta)
        if not 1 <= self.micro_rho <= wanted:
            raise RequestError(
                Code.BAD_STUDY,
                f"a plan for epsilon = {self.study.epsilon:g} may spend 1 to {wanted} micro-rho, "
                f"not {self.micro_rho}",
            )
        self._check_sums()

    def _check_sums(self) -> None:
        d = self.study.dimension
        widest = Gram(centre=[0] * d, radius=row_norm_limit(d))  # type: ignore[arg-type]
        check_no_overflow(widest, self.most_records)

    @property
    def most_records(self) -> int:
        """Public upper bound on the records of all invited sites together."""
        return self.study.max_records * len(self.study.federation.sites)

    @property
    def cost(self) -> Cost:
        """All that the study may ever spend."""
        return Cost(micro_rho=self.micro_rho)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical plan: the study's identity everywhere."""
        return digest("plan", plan_to_dict(self))

    def to_json(self) -> bytes:
        """Canonical JSON: the bytes that are hashed, signed and sent."""
        return canonical(plan_to_dict(self))


def make_plan(study: Study, *, federation: str, submission: str) -> Plan:
    """Resolve a study into a plan (chooses the algorithm if the study says `auto`).

    Raises:
        RequestError: see `Plan`.
    """
    return Plan(
        study=study,
        federation=federation,
        submission=submission,
        algorithm=choose(study),
        micro_rho=micro_rho_for(study.epsilon, study.delta),
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plain nested values with every key present."""
    return {
        "version": PLAN_VERSION,
        "federation": plan.federation,
        "submission": plan.submission,
        "algorithm": plan.algorithm.value,
        "row_bits": ROW_BITS,
        "micro_rho": plan.micro_rho,
        "study": study_to_dict(plan.study),
    }


def plan_from_json(data: bytes) -> Plan:
    """Read a plan and insist that it is canonical (its bytes hash to its digest).

    Raises:
        PeerError: not canonical, an unknown version or key.
        RequestError: a value is refused.
    """
    try:
        raw = json.loads(data)
        plan = _plan_from_dict(raw)
        written = plan.to_json()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
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
    return Plan(
        study=study_from_dict(raw["study"]),
        federation=raw["federation"],
        submission=raw["submission"],
        algorithm=Algorithm(raw["algorithm"]),
        micro_rho=raw["micro_rho"],
    )
