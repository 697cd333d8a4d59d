"""An answer that comes after its round was closed is refused and audited, and its site goes on [R4] [R7]."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.states import ConsentState
from eigenveil_server.studies.runtime import Poll
from tests.server.deadlines import Place, Tick, pass_when, pass_without
from tests.server.rig import DEADLINE, Client, Rig, Sites, made, refusal, serving, study_toml

MARK = 59_873  # a count that is found nowhere else


def late_rows(rig: Rig) -> list[tuple[str, str]]:
    """Subject and detail of every late answer in the audit."""
    rows = rig.rows("SELECT subject, detail FROM audit WHERE kind = 'late-answer' ORDER BY id")
    return [(row["subject"], row["detail"]) for row in rows]


class Busy:
    """A transaction that lasts until `go` is set: what is written meanwhile waits."""

    def __init__(self) -> None:
        self.writes, self.go = threading.Event(), threading.Event()

    def __call__(self, _: Connection) -> None:
        self.writes.set()
        assert self.go.wait(60)


def mac_of(rig: Rig, client: Client, round_query: RoundQuery, count: int) -> str:
    digest = client.contribution(round_query, frozen([count])).contribution_digest
    return rig.daemon.runtime.keys.mac(digest.hex()).hex()


def misses_the_first(site: str, place: Place) -> bool:
    return (site, place[0]) == ("carl", 0)


@asynccontextmanager
async def second_round(folder: Path) -> AsyncIterator[tuple[Rig, dict[str, Client], Client, str, RoundQuery]]:
    """A study whose first round was closed without carl: its digest, and the query that he missed."""
    async with serving(made(folder)) as rig:
        sites = dict(await rig.sites())
        ada = await rig.client(Role.ANALYST, "ada")
        digest = await ada.submit(study_toml(quorum=2))
        missed = await sites["carl"].query()
        for name in ("anna", "bert"):
            await sites[name].contribute(await sites[name].query(), frozen([60]))
        while (await sites["anna"].query()).round == 0:
            pass
        yield rig, sites, ada, digest, missed


async def test_a_late_answer_is_refused_audited_once_and_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_without(monkeypatch, misses_the_first)

    async with second_round(tmp_path / "c") as (rig, sites, _, digest, missed):
        carl = sites["carl"]
        for _ in range(2):
            refused = await refusal(carl.contribute(missed, frozen([MARK])))
            assert (refused.code, "was closed before" in str(refused)) == (Code.CONFLICT, True)
        await refusal(carl.contribute(missed, frozen([MARK + 1])))
        mac = mac_of(rig, carl, missed, MARK)
        assert late_rows(rig) == [("site/carl", f"study {digest} round 0 mac {mac}")]
        sealed = rig.repository.studies.sealed(digest, 0)
        assert sealed is not None
        assert sealed.release.present == ("anna", "bert")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "c").glob("state.db*"))
    assert MARK.to_bytes(8, "little") not in stored


async def test_an_answer_between_the_close_and_the_seal_is_late(
    rig: Rig, sites: Sites, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = Tick(monkeypatch)
    pass_without(monkeypatch, misses_the_first)

    digest = await ada.submit(study_toml(quorum=2))
    queries = {name: await site.query() for name, site in sites.items()}
    for name in ("anna", "bert"):
        await sites[name].contribute(queries[name], frozen([60]))
    await tick.due()
    assert rig.repository.studies.sealed(digest, 0) is None
    refused = await refusal(sites["carl"].contribute(queries["carl"], frozen([60])))
    assert "was closed before" in str(refused)
    assert (await sites["anna"].contribute(queries["anna"], frozen([60]))).repeated
    assert [subject for subject, _ in late_rows(rig)] == ["site/carl"]
    tick.go.set()


async def test_after_the_end_a_late_answer_is_audited_and_a_lost_reply_repeated(
    rig: Rig, sites: Sites, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_without(monkeypatch, lambda site, place: site != "anna")

    digest = await ada.submit(study_toml(required=["carl"], quorum=1))
    queries = {name: await site.query() for name, site in sites.items()}
    await sites["anna"].contribute(queries["anna"], frozen([60]))
    assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_FAILED
    assert (await sites["anna"].contribute(queries["anna"], frozen([60]))).repeated
    changed = await refusal(sites["anna"].contribute(queries["anna"], frozen([61])))
    assert "differently before" in str(changed)
    late = await refusal(sites["carl"].contribute(queries["carl"], frozen([60])))
    assert (late.code, "was closed before" in str(late)) == (Code.CONFLICT, True)
    mac = mac_of(rig, sites["carl"], queries["carl"], 60)
    assert late_rows(rig) == [("site/carl", f"study {digest} round 0 mac {mac}")]
    dora = await rig.client(Role.SITE, "dora")
    refused = await refusal(dora.contribute(queries["carl"], frozen([60])))
    assert (refused.code, len(late_rows(rig))) == (Code.NOT_FOUND, 1), "dora is not invited"
    wrong = sites["carl"].contribution(queries["carl"], frozen([60]))
    wrong.round = 7
    assert (await refusal(sites["carl"].stub.Contribute(wrong))).code is Code.NOT_FOUND


async def test_an_agreement_stored_after_the_close_does_not_reveal_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carl agrees while the round is open; that is written once it is closed, and not released [P27]."""
    tick, busy, late = Tick(monkeypatch), Busy(), threading.Event()
    pass_when(monkeypatch, lambda opened: late.is_set())
    ahead = [0]

    async with serving(made(tmp_path / "c"), clock=lambda: unix_ms() + ahead[0]) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        digest = await ada.submit(study_toml(quorum=2), agreed=False)
        engine, repository = rig.daemon.engine, rig.repository
        agrees = Poll(
            known={digest: 0}, answered=frozenset(), awaiting_approval=frozenset(), agreed={digest: False}
        )
        for name in ("anna", "bert"):
            await engine.receive(name, agrees)
        ahead[0] = int(2000 * DEADLINE)  # nobody waits for carl's word any longer
        run = await engine.run(digest)
        run.consent.wake()
        for name in ("anna", "bert"):
            await sites[name].contribute(await sites[name].query(), frozen([60]))
        opened = run.opened
        assert opened is not None
        holding = asyncio.create_task(repository.writer.write(busy))
        assert await asyncio.to_thread(busy.writes.wait, 60)
        hearing = asyncio.create_task(engine.receive("carl", agrees))
        while run.consent.consent_of_site("carl").state is not ConsentState.AGREED:
            await asyncio.sleep(0)
        assert not opened.frozen, "he agrees in time"
        late.set()
        await tick.due()
        busy.go.set()
        await asyncio.gather(holding, hearing)
        assert repository.studies.sealed(digest, 0) is None
        *_, last = repository.studies.events(digest, 0)
        assert last.round_state == "open"
        assert {one.site: one.status for one in last.sites}["carl"] == "waiting"
        tick.go.set()
