"""A study that Python submits is shown before it is signed. [R31]"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eigenveil.planning.choose import make_plan
from eigenveil.study.toml import draft_from_toml, study_to_toml
from eigenveil_client.analyst.python.study import FederatedStudy
from tests.support import a_study

STUDY = a_study()
WHOLE = replace(draft_from_toml(study_to_toml(STUDY)), source="heart, version 7")
NOBODY = {"sites": [], "approval_seconds": 0}


class Client:
    """What is asked of a coordinator, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def propose(self, text: str, submission: str, *, days: int, dictionary: str) -> Any:
        """Nothing is signed by it."""
        self.calls.append(("proposed", dictionary))
        return SimpleNamespace(summary="You sign it")

    async def sign(self, proposal: Any) -> Any:
        """It is."""
        self.calls.append(("signed", proposal.summary))
        return make_plan(STUDY, federation="test", submission="s", analyst="ada"), []


class BlockingCoordinator:
    """A connection to that coordinator."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def call(self, work: Any) -> Any:
        """Without a loop: nothing is waited for."""
        with pytest.raises(StopIteration) as done:
            work(self.client).send(None)
        return done.value.value


def no(summary: str) -> None:
    """A person's answer."""
    raise PermissionError(summary)


def test_a_study_is_shown_before_it_is_signed_and_a_refusal_leaves_it_unsigned() -> None:
    client: Any = Client()
    coordinator: Any = BlockingCoordinator(client)
    study = FederatedStudy(
        coordinator=coordinator, toml=WHOLE.text, resolved=WHOLE, study=STUDY, approval=NOBODY
    )
    with pytest.raises(PermissionError, match="You sign it"):
        study.submit(again=True, submission="s", notify=no)
    assert client.calls == [("proposed", "heart, version 7")]
    shown: list[str] = []
    study.submit(again=True, submission="s", notify=shown.append)
    assert client.calls[1:] == [("proposed", "heart, version 7"), ("signed", "You sign it")]
    assert shown == ["You sign it"]
