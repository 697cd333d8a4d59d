"""Whose word a study's name is, by the key that signed it and what people here have done about it. [R31]"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eigenveil_client.site.commands.console.labels import SIGNATURE_LABELS
from eigenveil_client.site.roster.analysts import (
    ANALYSTS,
    SIGNATURE_LABEL,
    SIGNATURE_TEXT,
    SignatureStatus,
    analyst_text,
    analyst_view,
)
from eigenveil_client.site.roster.roster import Roster
from tests.client.site.support import FEDERATION, Stage, a_plan, a_stage
from tests.support import analyst_card, analyst_key, signed_by_analyst

NOW = 1_800_000_000
PLAN = a_plan(submission="one")
NEW = analyst_key("ada's new key")


def roster(stage: Stage) -> Roster:  # type: ignore[type-arg]
    return Roster(ANALYSTS, stage.config.identity)


def as_it_was(stage: Stage) -> None: ...


def removed(stage: Stage) -> None:
    roster(stage).remove("ada")


def replaced(stage: Stage) -> None:
    roster(stage).import_cards([analyst_card("ada", FEDERATION, NEW)], FEDERATION, replacing=True)


def contradicted(stage: Stage) -> None:
    roster(stage).mark_changed("ada", "00" * 32)


@pytest.mark.parametrize(
    ("change", "with_first", "with_new"),
    [
        (as_it_was, SignatureStatus.CONFIRMED, SignatureStatus.CHANGED),
        (contradicted, SignatureStatus.CHANGED, SignatureStatus.CHANGED),
        (removed, SignatureStatus.REMOVED, SignatureStatus.NOT_COMPARED),
        (replaced, SignatureStatus.REMOVED, SignatureStatus.NOT_COMPARED),
    ],
)
def test_a_key_is_told_as_compared_changed_or_put_aside_as_people_here_left_it(
    tmp_path: Path, change: Callable[[Stage], None], with_first: SignatureStatus, with_new: SignatureStatus
) -> None:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    change(stage)
    for key, expected in ((None, with_first), (NEW, with_new)):
        signed = signed_by_analyst(PLAN, key, expires=NOW + 3600)
        told = analyst_view(stage.config.identity, PLAN, signed, NOW)
        assert told["signature"] == expected.value
        assert SIGNATURE_TEXT[expected] in analyst_text(told)


def test_a_card_that_was_never_confirmed_is_not_compared_also_once_it_is_gone(tmp_path: Path) -> None:
    stage = a_stage(tmp_path)
    for change in (replaced, removed):
        change(stage)
        told = analyst_view(
            stage.config.identity, PLAN, signed_by_analyst(PLAN, NEW, expires=NOW + 3600), NOW
        )
        assert told["signature"] == "not-compared"


