"""Round of a study: its states and their transitions, its signed statements [R21], and its public release.

The coordinator signs first the query, then the release. A site computes the next query from the plan and the
stated releases. To get another query answered, a coordinator must sign a release that was not drawn, which
contradicts the document that it publishes. Run as a module, it prints the state diagram.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, PeerError
from eigenveil.numerics.encoding import IntArray, canonical, digest, frozen, parse_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.signatures import Sign, check_signature


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Noised, charged answer of one round, the only result that is public.

    Shape: values (released(query),). `micro_rho` and `atto_delta` are the charge. `sigma` is the largest
    noise standard deviation in the integer units of the values, or 0 if the mechanism states none. `present`
    are the sites whose records are in the sum.
    """

    round: int
    query: str
    values: IntArray
    sigma: float
    micro_rho: int
    atto_delta: int
    present: tuple[str, ...]
    _digest: str = field(init=False, repr=False)  # computed on first use, which a rehearsal never needs

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @classmethod
    def of(cls, round_query: RoundQuery, values: IntArray, sigma: float, present: tuple[str, ...]) -> Release:
        """Return the release of a query, at the query's charge."""
        return cls(
            round=round_query.round,
            query=round_query.digest,
            values=values,
            sigma=sigma,
            micro_rho=round_query.cost.micro_rho,
            atto_delta=round_query.cost.atto_delta,
            present=present,
        )

    @property
    def cost(self) -> Cost:
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)

    @property
    def digest(self) -> str:
        """SHA-256 over all fields."""
        if not hasattr(self, "_digest"):
            object.__setattr__(self, "_digest", digest("release", self._header(), (self.values,)))
        return self._digest

    def _header(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "query": self.query,
            "sigma": self.sigma,
            "micro_rho": self.micro_rho,
            "atto_delta": str(self.atto_delta),
            "present": list(self.present),
        }


ROUND_SIGNED = b"eigenveil/round-signature/v1\n"
HEX = 64
MOST_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStatement:
    """Digests of a round's query, of the release before it and, once sealed, of its own release.

    `after` is empty in the first round, `release` until the round is sealed. `ledger` is the digest of the
    last row of the coordinator's ledger at that time, `size` the number of its rows.

    Raises:
        PeerError: code `protocol`, a field is invalid.
    """

    plan: str
    round: int
    query: str
    after: str
    release: str
    ledger: str
    size: int

    def __post_init__(self) -> None:
        always, sometimes = (self.plan, self.query, self.ledger), (self.after, self.release)
        texts = all(len(one) == HEX for one in always) and all(len(one) in (0, HEX) for one in sometimes)
        whole = all(type(number) is int and 0 <= number < 2**53 for number in (self.round, self.size))
        if not (texts and whole and self.size >= 1 and bool(self.after) == (self.round > 0)):
            raise PeerError(Code.PROTOCOL, "the statement about a round has an invalid field")

    def signed(self, sign: Sign) -> SignedRound:
        """Return the statement with the signature of the release key."""
        statement_json = canonical(asdict(self))
        return SignedRound(signed_json=statement_json, signature=sign(ROUND_SIGNED + statement_json))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRound:
    """Canonical JSON of a statement, and the Ed25519 signature over it."""

    signed_json: bytes
    signature: bytes

    def check(self, release_key: bytes) -> RoundStatement:
        """Return the statement, if the federation's release key (raw Ed25519) signed its exact bytes.

        Raises:
            PeerError: code `identity`, signed by another key or changed; `protocol`, not a statement.
        """
        if len(self.signed_json) > MOST_BYTES:
            raise PeerError(
                Code.PROTOCOL, f"the statement about a round is too long: {len(self.signed_json)} bytes"
            )
        check_signature(
            release_key,
            self.signature,
            ROUND_SIGNED + self.signed_json,
            "the statement about a round is not signed by this federation; it was rejected",
        )
        return self.read()

    def read(self) -> RoundStatement:
        """Return the statement without a check of its signature.

        Raises:
            PeerError: code `protocol`, it is not a statement.
        """
        try:
            return RoundStatement(**parse_json(self.signed_json))
        except (ValueError, TypeError) as problem:
            raise PeerError(Code.PROTOCOL, "the statement about a round cannot be read") from problem


class RoundState(Enum):
    """PLANNED -> OPEN -> CLOSED -> RELEASED; FAILED from any state before RELEASED.

    A masked round is FIXED before it is CLOSED: the sites of an attempt are fixed, and it is charged.
    """

    PLANNED = "planned"
    OPEN = "open"
    FIXED = "fixed"
    CLOSED = "closed"
    RELEASED = "released"
    FAILED = "failed"


TRANSITIONS: dict[RoundState, tuple[RoundState, ...]] = {
    RoundState.PLANNED: (RoundState.OPEN, RoundState.FAILED),
    RoundState.OPEN: (RoundState.FIXED, RoundState.CLOSED, RoundState.OPEN, RoundState.FAILED),
    RoundState.FIXED: (RoundState.FIXED, RoundState.CLOSED, RoundState.FAILED),
    RoundState.CLOSED: (RoundState.RELEASED, RoundState.FAILED),
    RoundState.RELEASED: (),
    RoundState.FAILED: (),
}
# OPEN -> OPEN: after a restart before the release, the coordinator sends the query again.
# FIXED -> FIXED: the next attempt, with fewer sites.


def check_transition(state: RoundState, target: RoundState) -> RoundState:
    """Return the target state, if the table has the transition.

    Raises:
        InternalError: the transition is not in the table.
    """
    if target not in TRANSITIONS[state]:
        raise InternalError(Code.BUG, f"a round cannot go from {state.value} to {target.value}")
    return target


def diagram() -> str:
    """Return the table as a Mermaid state diagram, which proto/PROTOCOL.md shows."""
    ends = [state for state, targets in TRANSITIONS.items() if not targets]
    lines = ["stateDiagram-v2", f"    [*] --> {RoundState.PLANNED.value}"]
    lines += [
        f"    {state.value} --> {target.value}"
        for state, targets in TRANSITIONS.items()
        for target in targets
    ]
    return "\n".join([*lines, *(f"    {state.value} --> [*]" for state in ends)])


if __name__ == "__main__":
    print(diagram())
