"""The first query waits for sites that load their records, as long as the study states [R24]."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.states import LOADING
from tests.server.studies.test_consent import LOADS, MINUTE, REFUSED, RULES, Life, lived, poll_of, receive
from tests.support import refused


def shown(life: Life) -> dict[str, str]:
    row = pb.StudyRow()
    life.phase.add_consent_status(row)
    return {one.site: one.status for one in row.consent}


def test_the_first_query_waits_for_records_and_nobody_learns_when_a_site_had_loaded_them(
    tmp_path: Path,
) -> None:
    async def script(life: Life) -> float:
        started = asyncio.create_task(life.started())
        await receive(life, anna=LOADS, bert=LOADS, carl=RULES)
        await asyncio.sleep(5 * MINUTE)
        before = shown(life)
        assert before == {"anna": LOADING, "bert": LOADING, "carl": "agreed"}
        assert [one.status for one in life.events()[-1].consent] == [LOADING, LOADING, "agreed"]
        events = len(life.events())
        await receive(life, anna=RULES)
        await asyncio.sleep(1)
        assert not started.done(), "bert still loads"
        assert (shown(life), len(life.events())) == (before, events)
        await receive(life, bert=RULES)
        return await started

    assert lived(tmp_path, script) == [pytest.approx(5 * MINUTE + 1, abs=0.1)]


@pytest.mark.parametrize(
    ("stated", "limit"), [({}, 600), ({"loading_seconds": 45.0}, 45), ({"loading_seconds": 0.0}, 0)]
)
def test_records_are_awaited_no_longer_than_the_study_states(
    tmp_path: Path, stated: dict[str, float], limit: float
) -> None:
    async def script(life: Life) -> float:
        await receive(life, anna=LOADS, bert=RULES, carl=RULES)
        return await life.started()

    assert lived(tmp_path, script, **stated) == [pytest.approx(limit, abs=0.1)]


def test_a_site_that_declines_while_it_loads_is_not_awaited(tmp_path: Path) -> None:
    async def script(life: Life) -> float:
        started = asyncio.create_task(life.started())
        await receive(life, anna=LOADS, bert=RULES, carl=RULES)
        await asyncio.sleep(7)
        await life.phase.note("anna", REFUSED)
        return await started

    assert lived(tmp_path, script, quorum=2) == [pytest.approx(7, abs=0.1)]


def test_a_restarted_coordinator_hears_the_sites_before_it_takes_them_for_loaded(tmp_path: Path) -> None:
    async def agreed(life: Life) -> None:
        await receive(life, anna=LOADS, bert=RULES, carl=RULES)

    async def restarted(life: Life) -> float:
        began = life.loop.time()
        started = asyncio.create_task(life.started())
        await asyncio.sleep(3)
        await receive(life, anna=LOADS, bert=RULES, carl=RULES)
        await asyncio.sleep(2 * MINUTE)
        await receive(life, anna=RULES)
        return await started - began

    assert lived(tmp_path / "one", agreed, restarted)[1] == pytest.approx(2 * MINUTE + 3, abs=0.1)

    async def unheard(life: Life) -> float:
        began = life.loop.time()
        return await life.started() - began

    assert lived(tmp_path / "two", agreed, unheard)[1] == pytest.approx(MINUTE, abs=0.1)


def test_only_a_site_that_agrees_may_load() -> None:
    with refused(Code.PROTOCOL, "does not agree"):
        poll_of(loading=True)
