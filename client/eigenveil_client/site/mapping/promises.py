"""Proposed promises about a site's records, from the noised number of its persons: how few and how many they
may ever be, and the memory that a study of its columns takes. All follows from that number and public
settings, so it may be stated to others [P34]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.budget import NoiseRule
from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Study
from eigenveil_client.site.config import EngineConfig
from eigenveil_client.site.policy import Policy
from eigenveil_common.config import keys

EPSILON = 0.1
FAR = 3.0  # standard deviations of the noise that a promise allows for
VALUE_BYTES = 2  # of a stored value
MIB = 2**20
STEPS = (1, 2, 5)
USUAL = cast(int, keys(Study)["max_records"].default)  # of a study: with a larger promise it is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePromises:
    """Keys of site.toml that state a size: of the policy, and `memory_mib` of the engine."""

    minimum_records: int
    maximum_records: int
    memory_mib: int


def count_cost(policy: Policy) -> int:
    """Return the cost of the number of persons in micro-rho: `EPSILON` at the budget's delta."""
    if policy.noise is NoiseRule.GAUSSIAN:
        return gaussian.micro_rho_for(EPSILON, policy.budget_delta)
    return zcdp.micro_rho_for(EPSILON, policy.budget_delta)


def size_promises(
    noised: int,
    sigma: float,
    columns: int,
    policy: Policy | None = None,
    own: Mapping[str, int] | None = None,
) -> SizePromises:
    """Return the promises for a noised number of persons: half and twice of it, with room for the noise,
    rounded outwards to 1, 2 or 5 times a power of ten; those of a small site have a least width, and a site
    that the usual studies suit promises no more than they allow. The memory is for as many of the
    dictionary's `columns` as the policy and these promises allow. `own`: a key that the site states instead.
    Raises RequestError: code `bad-config`, it contradicts the number."""
    policy, own = Policy() if policy is None else policy, own or {}
    least, most = Policy().minimum_records, 10 * Policy().minimum_records
    few, many = max(0.0, noised - FAR * sigma) / 2, max(0.0, noised + FAR * sigma) * 2
    minimum, maximum = max(least, rounded_down(few)), max(most, rounded_up(many))
    if many / 2 <= USUAL:
        maximum = min(maximum, USUAL)
    found = {"minimum_records": minimum, "maximum_records": maximum}
    minimum, maximum = (own.get(key, value) for key, value in found.items())
    if minimum > maximum:
        stated = ", ".join(f"{key} = {value}" for key, value in own.items())
        other = ", ".join(f"{key} = {value}" for key, value in found.items() if key not in own)
        what = f"{stated} of site.toml contradicts {other}, which follows from the number of persons"
        raise RequestError(Code.BAD_CONFIG, f"{what}. Correct it, or state both")
    allowed = policy.max_columns_per_record * max(minimum, policy.minimum_records)
    need = maximum * max(1, min(columns, allowed)) * VALUE_BYTES / MIB
    return SizePromises(
        minimum_records=minimum,
        maximum_records=maximum,
        memory_mib=max(EngineConfig().memory_mib, rounded_up(need)),
    )


def rounded_down(value: float) -> int:
    """Return the largest of 1, 2 or 5 times a power of ten that is at most `value`; 0 below 1."""
    if value < 1:
        return 0
    power = 10 ** math.floor(math.log10(value))
    return int(max(step * power for step in STEPS if step * power <= value))


def rounded_up(value: float) -> int:
    """Return the least of 1, 2 or 5 times a power of ten that is at least `value`."""
    if value <= 1:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return int(min(step * power for step in (*STEPS, 10) if step * power >= value))
