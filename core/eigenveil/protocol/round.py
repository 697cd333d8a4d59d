"""The life of one round, as one table of allowed moves. `python -m eigenveil.protocol.round` draws it."""

from __future__ import annotations

from enum import Enum

from eigenveil.errors import Code, InternalError


class RoundState(Enum):
    """PLANNED -> OPEN -> CLOSED -> RELEASED; FAILED from any state before RELEASED. A masked round is FIXED
    before it is CLOSED: the sites of an attempt are, and it is charged."""

    PLANNED = "planned"
    OPEN = "open"
    FIXED = "fixed"
    CLOSED = "closed"
    RELEASED = "released"
    FAILED = "failed"


MOVES: dict[RoundState, tuple[RoundState, ...]] = {
    RoundState.PLANNED: (RoundState.OPEN, RoundState.FAILED),
    RoundState.OPEN: (RoundState.FIXED, RoundState.CLOSED, RoundState.OPEN, RoundState.FAILED),
    RoundState.FIXED: (RoundState.FIXED, RoundState.CLOSED, RoundState.FAILED),
    RoundState.CLOSED: (RoundState.RELEASED, RoundState.FAILED),
    RoundState.RELEASED: (),
    RoundState.FAILED: (),
}
# OPEN -> OPEN: a coordinator that died before the release asks its sites again, and had told of no close.
# FIXED -> FIXED: the next attempt, with fewer sites.


def move(state: RoundState, to: RoundState) -> RoundState:
    """`to`, if the table allows it.

    Raises:
        InternalError: the move is not in the table.
    """
    if to not in MOVES[state]:
        raise InternalError(Code.BUG, f"a round cannot go from {state.value} to {to.value}")
    return to


def diagram() -> str:
    """The table as a Mermaid state diagram, which proto/PROTOCOL.md shows."""
    ends = [state for state, moves in MOVES.items() if not moves]
    lines = ["stateDiagram-v2", f"    [*] --> {RoundState.PLANNED.value}"]
    lines += [f"    {state.value} --> {to.value}" for state, moves in MOVES.items() for to in moves]
    return "\n".join([*lines, *(f"    {state.value} --> [*]" for state in ends)])


if __name__ == "__main__":
    print(diagram())
