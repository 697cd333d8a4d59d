"""A few walks; and that a site which forgets is found."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from eigenveil.accounting.zcdp import NO_COST
from eigenveil_client.site.daemon.round_checks import PeerSecrets, SessionReplica
from eigenveil_client.site.state.outgoing import AnsweredRounds
from tests.torture.masked.walk import walk


@pytest.mark.slow
def test_a_few_walks() -> None:
    walk(6, 20)


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (AnsweredRounds, "cost", lambda *_: NO_COST),
        pytest.param(PeerSecrets, "_check_set", lambda *_: None, marks=pytest.mark.slow),
        pytest.param(SessionReplica, "expect", lambda *_: None, marks=pytest.mark.slow),
    ],
)
def test_a_site_with_a_fault_is_found(
    owner: object, name: str, instead: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(AssertionError):
        walk(20, 20, (Phase.generate,))


@pytest.mark.slow
def test_a_site_that_pays_a_pass_once_however_often_its_batches_are_tried_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AnsweredRounds, "_next_attempt", lambda *_: 1)
    with pytest.raises(AssertionError):
        walk(80, 30, (Phase.generate,))
