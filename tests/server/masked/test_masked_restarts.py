"""Whenever the coordinator ends, an attempt is made again with the very set that it was charged for, or never
was begun."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from eigenveil.identity import Role
from eigenveil.reporting.verify import load_release
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.deadlines import pass_without
from tests.server.masked.sites import MaskedSite, attempts_of, charges_of, masked_toml, serving_sites, site_of
from tests.server.recovery.test_restart import Died
from tests.server.rig import SITES, Credentials, Rig, made, serving


class End:
    """Ends what drives a study at a passage of a failpoint; `here` is set then."""

    def __init__(self, name: str, passage: int, *, raises: bool) -> None:
        self.here, self._passages, self._raises = asyncio.Event(), count(1), raises
        self._passage, self._loop = passage, asyncio.get_running_loop()
        arm(name, self._pass)

    def _pass(self) -> None:
        if next(self._passages) == self._passage:
            self._loop.call_soon_threadsafe(self.here.set)
            if self._raises:
                raise Died


def taken_up(rig: Rig, sites: dict[str, MaskedSite], stored: Mapping[str, Credentials]) -> None:
    """The sites call the coordinator that serves now; what they have sent they hold."""
    for name, site in sites.items():
        site.client = rig.connect(stored[name])


# Before, between and after what decides about an attempt; the others are slow.
QUICK = [
    ("ready-taken", 2),
    *((name, 2) for name in ("set-fixing", "set-fixed")),
    ("answer-taken", 4),
    *((name, 2) for name in ("round-sealing", "round-sealed")),
]
OTHERS = [
    ("round-opening", 1),
    ("round-opened", 1),
    *((name, passage) for name in ("set-fixing", "set-fixed") for passage in (1, 3)),
    *(("answer-taken", passage) for passage in (1, 8)),
    ("answer-stored", 1),
    ("round-closed", 2),
    *((name, 2) for name in ("round-followed", "round-released")),
    ("bundle-built", 1),
    ("study-settling", 1),
]


@pytest.mark.parametrize(
    ("name", "passage"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)]
)
async def test_an_attempt_is_gone_on_with_as_it_was_charged(
    name: str, passage: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carl is lost in the second round's first attempt."""
    config, at_calls = made(tmp_path / "c"), name in ("ready-taken", "answer-taken", "answer-stored")
    toml = masked_toml()
    pass_without(monkeypatch, loses)
    try:
        async with serving(config) as rig:
            stored = {site: await rig.credentials(Role.SITE, site) for site in SITES}
            ada = await rig.credentials(Role.ANALYST, "ada")
            sites = {site: site_of(rig, rig.connect(stored[site]), loses) for site in SITES}
            end = End(name, passage, raises=not at_calls)
            async with serving_sites(sites):
                digest = await rig.connect(ada).submit(toml)
                await asyncio.wait_for(end.here.wait(), 100)
        disarm()
        async with serving(config) as rig:
            before = attempts_of(rig, digest), charges_of(rig, digest)
            taken_up(rig, sites, stored)
            client = rig.connect(ada)
            async with serving_sites(sites):
                await client.submit(toml)
                last = (await asyncio.wait_for(client.events(digest), 100))[-1]
            assert (last.state, last.failure) == (pb.STUDY_STATE_RELEASED, "")
            after, charged = attempts_of(rig, digest), charges_of(rig, digest)
            assert before[0].items() <= after.items()
            assert charged[: len(before[1])] == before[1]
            sealed = rig.repository.studies.sealed_rounds(digest)
            once = {one.release.round: one.release.micro_rho for one in sealed}
            assert charged == [(round, "attempt", once[round]) for round, _ in sorted(after)]
            result = {place: sites for (_, place), sites in sites["anna"].sets.items()}
            assert set(result) == set(after), "no set was told that is not charged, and each that is was told"
            load_release(await client.release(digest))
    finally:
        disarm()


def loses(site: str, place: tuple[int, int]) -> bool:
    return site == "carl" and place == (1, 1)
