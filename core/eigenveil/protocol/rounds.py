"""Round of a study: its states and their transitions, its signed statements [R21], and its public release.
The coordinator signs first the query, then the release. A site computes the next query from the plan and the
stated releases. To get another query answered, a coordinator must sign a release that was not drawn, which
contradicts the document that it publishes. Run as a module, it prints the state diagram."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, PeerError
from eigenveil.numerics.encoding import IntArray, digest, frozen, is_digest
from eigenveil.protocol.query import RoundQuery
from eigenveil.signatures import Extensible, Sign, SignedStatement


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """Noised, charged answer of one round, the only result that is public.
    Shape: values (released(query),). `micro_rho` and `atto_delta` are the charge. `sigma` is the largest
    noise standard deviation in the integer units of the values, or 0 if the mechanism states none. `present`
    are the sites whose records are in the sum."""

    round: int
    query: str
    values: IntArray
    sigma: float
    micro_rho: int
    atto_delta: int
    present: tuple[str, ...]

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

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all fields; a rehearsal never needs it."""
        header = {
            "round": self.round,
            "query": self.query,
            "sigma": self.sigma,
            "micro_rho": self.micro_rho,
            "atto_delta": str(self.atto_delta),
            "present": list(self.present),
        }
        return digest("release", header, (self.values,))


ROUND_SIGNED = b"eigenveil/round-signature/v1\n"
MOST_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class RoundStatement(Extensible):
    """Digests of a round's query, of the release before it and, once sealed, of its own release. `after` is
    empty in the first round, `release` until the round is sealed. `ledger` is the digest of the last row of
    the coordinator's ledger at that time, `size` the number of its rows. Raises PeerError: code `protocol`, a
    field is invalid."""

    format, noun = "eigenveil-round/1", "the statement about a round"

    plan: str
    round: int
    query: str
    after: str
    release: str
    ledger: str
    size: int

    def __post_init__(self) -> None:
        always, sometimes = (self.plan, self.query, self.ledger), (self.after, self.release)
        texts = all(map(is_digest, always)) and all(one == "" or is_digest(one) for one in sometimes)
        whole = all(type(number) is int and 0 <= number < 2**53 for number in (self.round, self.size))
        if not (texts and whole and self.size >= 1 and bool(self.after) == (self.round > 0)):
            raise PeerError(Code.PROTOCOL, "the statement about a round has an invalid field")

    def signed(self, sign: Sign) -> SignedRound:
        """Return the statement with the signature of the release key."""
        statement_json = self.signed_json
        return SignedRound(signed_json=statement_json, signature=sign(ROUND_SIGNED + statement_json))


class SignedRound(SignedStatement[RoundStatement]):
    """Signed statement about a round."""

    __slots__ = ()
    kind, prefix, most_bytes = RoundStatement, ROUND_SIGNED, MOST_BYTES


class RoundState(Enum):
    """State of a round, as watchers read it."""

    PLANNED = "planned"
    OPEN = "open"
    FIXED = "fixed"
    CLOSED = "closed"
    RELEASED = "released"
    FAILED = "failed"


class RoundEvent(Enum):
    """Event that moves a round to its next state; `TRANSITIONS` has the order."""

    DISPATCH = "query sent"
    FIX = "set fixed, attempt charged"
    CLOSE = "all answered, or deadline"
    COMPLETE = "all members answered"
    RELEASE = "noised, charged, sealed"
    FAIL = "study ended"


# A central round: DISPATCH, CLOSE, RELEASE. A masked one: DISPATCH, FIX (once or more), COMPLETE, RELEASE.
TRANSITIONS: dict[RoundState, dict[RoundEvent, RoundState]] = {
    RoundState.PLANNED: {RoundEvent.DISPATCH: RoundState.OPEN, RoundEvent.FAIL: RoundState.FAILED},
    RoundState.OPEN: {
        RoundEvent.DISPATCH: RoundState.OPEN,  # again, after a restart before the release
        RoundEvent.FIX: RoundState.FIXED,
        RoundEvent.CLOSE: RoundState.CLOSED,
        RoundEvent.FAIL: RoundState.FAILED,
    },
    RoundState.FIXED: {
        RoundEvent.FIX: RoundState.FIXED,  # the next attempt
        RoundEvent.COMPLETE: RoundState.CLOSED,
        RoundEvent.FAIL: RoundState.FAILED,
    },
    RoundState.CLOSED: {RoundEvent.RELEASE: RoundState.RELEASED, RoundEvent.FAIL: RoundState.FAILED},
    RoundState.RELEASED: {},
    RoundState.FAILED: {},
}


def next_state(state: RoundState, event: RoundEvent) -> RoundState:
    """Return the state after `event`. Raises InternalError: the table has no such event in this state."""
    if event not in TRANSITIONS[state]:
        raise InternalError(Code.BUG, f"a round that is {state.value} cannot go on with: {event.value}")
    return TRANSITIONS[state][event]


def diagram() -> str:
    """Return the table as a Mermaid state diagram, which proto/PROTOCOL.md shows."""
    lines = ["stateDiagram-v2", f"    [*] --> {RoundState.PLANNED.value}"]
    for state, events in TRANSITIONS.items():
        arrows = [f"{target.value}: {event.value}" for event, target in events.items()] or ["[*]"]
        lines += [f"    {state.value} --> {arrow}" for arrow in arrows]
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())
