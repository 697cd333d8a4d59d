"""The table of a round's moves is total, and nothing undoes a seal."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.protocol.rounds import TRANSITIONS, RoundState, check_transition, diagram
from tests.support import refused

PROTOCOL = Path(__file__).parents[3] / "proto" / "PROTOCOL.md"


def reachable(start: RoundState) -> set[RoundState]:
    """Every state that some sequence of moves leads to."""
    found, border = {start}, [start]
    while border:
        fresh = set(TRANSITIONS[border.pop()]) - found
        found |= fresh
        border += fresh
    return found


@pytest.mark.parametrize(("state", "to"), list(product(RoundState, RoundState)))
def test_a_move_is_allowed_exactly_if_the_table_says_so(state: RoundState, to: RoundState) -> None:
    if to in TRANSITIONS[state]:
        assert check_transition(state, to) is to
    else:
        with refused(Code.BUG, state.value, to.value):
            check_transition(state, to)


def test_every_state_can_be_reached_and_every_round_can_end() -> None:
    assert reachable(RoundState.PLANNED) == set(RoundState)
    ends = {state for state in RoundState if not TRANSITIONS[state]}
    assert ends == {RoundState.RELEASED, RoundState.FAILED}
    assert all(reachable(state) & ends for state in RoundState)


def test_nothing_is_released_before_the_sites_are_frozen() -> None:
    assert [state for state in RoundState if RoundState.RELEASED in TRANSITIONS[state]] == [RoundState.CLOSED]


def test_the_protocol_shows_the_table_as_it_is() -> None:
    _, _, rest = PROTOCOL.read_text().partition("<!-- round: python -m eigenveil.protocol.rounds -->\n")
    shown, _, _ = rest.partition("<!-- end of round -->")
    assert shown == f"```mermaid\n{diagram()}\n```\n"
