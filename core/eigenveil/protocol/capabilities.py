"""Versions that a site's program has, of plans and of each algorithm [R33]. A plan is made at the highest
versions that all its sites have, so that a federation is upgraded one site at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil._version import __version__
from eigenveil.errors import Code, PeerError, RequestError, error
from eigenveil.protocol.plan import PLAN_VERSION, PLAN_VERSION_MIN, Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.checks import check_readable, need
from eigenveil.study.study import MAX_NAME_LENGTH, Federation
from eigenveil_proto.v1 import eigenveil_pb2 as pb

MOST_BYTES = 8 * 1024
MOST_VERSION = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Versions of plans that a program reads, from `plan_min` to `plan_max`, and the revisions that it has of
    each algorithm. `software` is its own version, for people. Raises RequestError: code `bad-study`."""

    software: str
    plan_min: int
    plan_max: int
    revisions: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        for name in (self.software, *self.revisions):
            check_readable("a name in the capabilities", name, MAX_NAME_LENGTH)
        numbers = [self.plan_min, self.plan_max, *(one for some in self.revisions.values() for one in some)]
        need(all(1 <= one < MOST_VERSION for one in numbers), "a version in the capabilities is out of range")

    def lacking(self, plan: Plan) -> str:
        """Return why this program cannot run a plan; empty if it can."""
        if not self.plan_min <= plan.version <= self.plan_max:
            return f"reads plans of versions {self.plan_min} to {self.plan_max}, and this is {plan.version}"
        has = plan.revision in self.revisions.get(plan.algorithm.value, ())
        return "" if has else f"has no revision {plan.revision} of {plan.algorithm.value}"

    def to_proto(self) -> pb.Capabilities:
        """Return the protocol message."""
        rows = (pb.AlgorithmRevisions(name=name, revisions=some) for name, some in self.revisions.items())
        return pb.Capabilities(
            software=self.software, plan_min=self.plan_min, plan_max=self.plan_max, algorithms=rows
        )


def capabilities_from_proto(message: pb.Capabilities) -> Capabilities:
    """Return the capabilities in a message. Raises PeerError: code `protocol`, invalid or too long."""
    if message.ByteSize() > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"the capabilities have more than {MOST_BYTES} bytes")
    try:
        return Capabilities(
            software=message.software,
            plan_min=message.plan_min,
            plan_max=message.plan_max,
            revisions={one.name: tuple(one.revisions) for one in message.algorithms},
        )
    except RequestError as problem:
        raise PeerError(Code.PROTOCOL, f"the capabilities are invalid: {problem}") from problem


def capabilities_from_dict(data: Mapping[str, Any]) -> Capabilities:
    """Return the capabilities in plain values, as `plain_fields` gives them."""
    return Capabilities(
        **{**data, "revisions": {key: tuple(some) for key, some in data["revisions"].items()}}
    )


OWN = Capabilities(
    software=f"eigenveil {__version__}",
    plan_min=PLAN_VERSION_MIN,
    plan_max=PLAN_VERSION,
    revisions={one.value: one.properties.revisions for one in Algorithm if one.properties.private},
)


def common_versions(
    algorithm: Algorithm, sites: Iterable[Capabilities], own: Capabilities = OWN, *, least: int = 0
) -> dict[str, int]:
    """Return the highest `version` of plans, `least` or later, and the highest `revision` of the algorithm
    that this program and all `sites` have. Sites that have none in common with it do not count:
    `check_versions` names them."""
    least = max(least, own.plan_min)
    able = [one for one in sites if one.plan_min <= own.plan_max and one.plan_max >= least]
    mine = set(own.revisions.get(algorithm.value, algorithm.properties.revisions))
    shared = mine.copy()
    for one in able:
        if has := mine & set(one.revisions.get(algorithm.value, ())):
            shared &= has  # a site without a common revision does not count
    return {
        "version": min([own.plan_max, *(one.plan_max for one in able)]),
        "revision": max(shared or mine),
    }


def check_versions(plan: Plan, sites: Mapping[str, Capabilities]) -> list[str]:
    """Check that enough sites can run a plan; return a warning that names those that cannot yet. Raises
    PeerError: code `version`: a required site cannot, or the quorum is not reached."""
    federation = plan.study.federation
    reasons = {name: known.lacking(plan) for name in federation.sites if (known := sites.get(name))}
    old = {name: f"{name} ({sites[name].software}) {why}" for name, why in reasons.items() if why}
    if not old:
        return []
    named = "; ".join(old.values())
    if _too_few(federation, old):
        raise error(
            Code.VERSION,
            f"these sites need another version of eigenveil for this study: {named}; nothing was submitted. "
            "Ask their operators to upgrade, or leave them out",
        )
    return [f"these sites are absent until they are upgraded: {named}"]


def _too_few(federation: Federation, old: Mapping[str, str]) -> bool:
    left = len(federation.sites) - len(old)
    return left < federation.least or bool(old.keys() & set(federation.required))
