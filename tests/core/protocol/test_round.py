"""The transition table of a round is total, and no transition leaves a sealed release."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical, frozen
from eigenveil.protocol.rounds import (
    MOST_BYTES,
    ROUND_SIGNED,
    TRANSITIONS,
    Release,
    RoundEvent,
    RoundState,
    RoundStatement,
    SignedRound,
    diagram,
    next_state,
)
from eigenveil.protocol.wire import round_from_proto, round_to_proto
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import refused

PROTOCOL = Path(__file__).parents[3] / "proto" / "PROTOCOL.md"


def reachable(start: RoundState) -> set[RoundState]:
    """Every state that some sequence of events leads to."""
    found, border = {start}, [start]
    while border:
        fresh = set(TRANSITIONS[border.pop()].values()) - found
        found |= fresh
        border += fresh
    return found


@pytest.mark.parametrize(("state", "event"), list(product(RoundState, RoundEvent)))
def test_an_event_is_allowed_exactly_if_the_table_has_it(state: RoundState, event: RoundEvent) -> None:
    if event in TRANSITIONS[state]:
        assert next_state(state, event) is TRANSITIONS[state][event]
    else:
        with refused(Code.BUG, state.value, event.value):
            next_state(state, event)


def test_every_state_can_be_reached_and_every_round_can_end() -> None:
    assert reachable(RoundState.PLANNED) == set(RoundState)
    ends = {state for state in RoundState if not TRANSITIONS[state]}
    assert ends == {RoundState.RELEASED, RoundState.FAILED}
    assert all(reachable(state) & ends for state in RoundState)


def test_a_round_is_released_from_the_closed_state_only() -> None:
    before = [state for state in RoundState if RoundState.RELEASED in TRANSITIONS[state].values()]
    assert before == [RoundState.CLOSED]


def test_a_masked_answer_counts_for_a_charged_set_only() -> None:
    assert [state for state in RoundState if RoundEvent.COMPLETE in TRANSITIONS[state]] == [RoundState.FIXED]
    assert RoundEvent.CLOSE not in TRANSITIONS[RoundState.FIXED]


def test_the_protocol_shows_the_table_as_it_is() -> None:
    _, _, rest = PROTOCOL.read_text().partition("<!-- round: python -m eigenveil.protocol.rounds -->\n")
    shown, _, _ = rest.partition("<!-- end of round -->")
    assert shown == f"```mermaid\n{diagram()}\n```\n"


# [R21] Signed statements of a round.


KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
STATED = RoundStatement(
    plan="a" * 64, round=2, query="b" * 64, after="c" * 64, release="", ledger="d" * 64, size=3
)


def signed(text: bytes) -> SignedRound:
    return SignedRound(signed_json=text, signature=KEY.sign(ROUND_SIGNED + text))


def test_a_statement_is_read_back_as_it_was_signed() -> None:
    assert STATED.signed(KEY.sign).check(PUBLIC) == STATED


@pytest.mark.parametrize(
    "change",
    [
        {"after": ""}, {"round": 0}, {"size": 0}, {"round": -1},
        {"release": "e" * 63}, {"query": ""}, {"plan": "a" * 65}, {"ledger": ""},
    ],
)  # fmt: skip
def test_a_statement_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with refused(Code.PROTOCOL, "has an invalid field"):
        signed(canonical(json.loads(STATED.signed_json) | change)).check(PUBLIC)


def test_a_signature_of_another_kind_or_over_too_many_bytes_is_refused() -> None:
    text = STATED.signed_json
    with refused(Code.IDENTITY, "not signed by this federation"):
        SignedRound(signed_json=text, signature=KEY.sign(text)).check(PUBLIC)
    with refused(Code.PROTOCOL, "too long"):
        signed(text + b" " * MOST_BYTES).check(PUBLIC)


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": 3.0}, {"micro_rho": 10}, {"atto_delta": 1}, {"values": bytes(24)}, {"present": ["a"]},
        {"micro_rho": 2**63}, {"sigma": math.inf}, {"sigma": math.nan},  # of which there is no canonical JSON
    ],
)  # fmt: skip
def test_a_release_that_differs_from_its_signed_statement_is_refused(change: dict[str, Any]) -> None:
    release = Release(
        round=2, query="b" * 64, values=frozen([1, -2, 3]), sigma=2.5, micro_rho=9, atto_delta=0,
        present=("a", "b"),
    )  # fmt: skip
    stated = replace(STATED, release=release.digest)
    message = round_to_proto(release, stated.signed(KEY.sign))
    assert round_from_proto(message, stated).digest == release.digest
    fields = {one.name: getattr(message, one.name) for one, _ in message.ListFields()}
    with refused(Code.PROTOCOL, "does not match its signed statement"):
        round_from_proto(pb.SealedRound(**fields | change), stated)
