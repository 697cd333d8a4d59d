"""The life of one round, as one table of allowed moves."""

from __future__ import annotations

from enum import Enum

from eigenveil.errors import Code, InternalError


class RoundState(Enum):
    """PLANNED -> RESERVED -> OPEN -> CLOSED -> SEALED -> RELEASED; FAILED from any state before SEALED."""

    PLANNED = "planned"
    RESERVED = "reserved"
    OPEN = "open"
    CLOSED = "closed"
    SEALED = "sealed"
    RELEASED = "released"
    FAILED = "failed"


MOVES: dict[RoundState, frozenset[RoundState]] = {
    RoundState.PLANNED: frozenset({RoundState.RESERVED, RoundState.FAILED}),
    RoundState.RESERVED: frozenset({RoundState.OPEN, RoundState.FAILED}),
    RoundState.OPEN: frozenset({RoundState.CLOSED, RoundState.FAILED}),
    RoundState.CLOSED: frozenset({RoundState.SEALED, RoundState.OPEN, RoundState.FAILED}),
    RoundState.SEALED: frozenset({RoundState.RELEASED}),
    RoundState.RELEASED: frozenset(),
    RoundState.FAILED: frozenset(),
}  # CLOSED -> OPEN: a coordinator that died before the seal asks its sites again.


def move(state: RoundState, to: RoundState) -> RoundState:
    """`to`, if the table allows it.

    Raises:
        InternalError: the move is not in the table.
    """
    if to not in MOVES[state]:
        raise InternalError(Code.BUG, f"a round cannot go from {state.value} to {to.value}")
    return to
