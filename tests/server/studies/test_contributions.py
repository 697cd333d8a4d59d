"""Permitted messages of sites, and refusals [R6] [R7] [R8] [R9]."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.rpc import CHUNK_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import Compute
from eigenveil_server.studies import contributions, uploads
from tests.server.rig import SITES, Client, Rig, made, refusal, serving, study_toml

FULL = frozen([60])  # an answer to the first round, which counts records


@asynccontextmanager
async def first_round(
    folder: Path, toml: str | None = None, noise: NoiseSource | None = None
) -> AsyncIterator[tuple[Rig, dict[str, Client], Client, RoundQuery]]:
    """A study whose first round is open: rig, sites, analyst, query."""
    async with serving(made(folder), noise=noise) as rig:
        sites = dict(await rig.sites())
        analyst = await rig.client(Role.ANALYST, "ada")
        await analyst.submit(toml or study_toml())
        queries = await asyncio.gather(*(site.query() for site in sites.values()))
        yield rig, sites, analyst, queries[0]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"values": b"\x00" * 16}, Code.BAD_CONTRIBUTION, "2 numbers instead of 1"),
        ({"values": b"\x00" * 7}, Code.BAD_CONTRIBUTION, "64-bit integers"),
        ({"values": (-1).to_bytes(8, "little", signed=True)}, Code.BAD_CONTRIBUTION, "cannot have"),
        ({"values": (10**6).to_bytes(8, "little")}, Code.BAD_CONTRIBUTION, "cannot have"),
        ({"values": (59).to_bytes(8, "little")}, Code.BAD_CONTRIBUTION, "does not match its digest"),
        ({"query_digest": b"\x01" * 32}, Code.BAD_CONTRIBUTION, "another query"),
        ({"plan_digest": b"\x01" * 32}, Code.NOT_FOUND, "there is no study"),
        ({"plan_digest": b"\x01"}, Code.PROTOCOL, "32 bytes"),
        ({"round": 7}, Code.NOT_FOUND, "round 8 of study"),
        ({"contribution_digest": b""}, Code.PROTOCOL, "32 bytes"),
        ({"values": b"\x00" * (2**20 + 8)}, Code.PROTOCOL, "uploaded in chunks"),
    ],
)
@pytest.mark.parametrize("place", ["loop", "run", "check"])
async def test_a_bad_contribution_is_refused_and_the_right_one_still_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    changes: dict[str, Any],
    code: Code,
    message: str,
) -> None:
    seen = list[str]()

    async def spied(self: Compute, work: Callable[..., Any], *args: Any) -> Any:
        seen.append(place)
        return await asyncio.to_thread(work, *args)

    for name in {"loop": (), "run": ("INLINE_CHECK_BYTES",)}.get(
        place, ("INLINE_CHECK_BYTES", "INLINE_BYTES")
    ):
        monkeypatch.setattr(contributions, name, 0)
    if place == "check":  # an upload
        monkeypatch.setattr(Compute, "check", spied)
    async with first_round(tmp_path / "c") as (_, sites, _, query):
        anna = sites["anna"]
        bad = anna.contribution(query, FULL)
        for key, value in changes.items():
            setattr(bad, key, value)
        refused = await refusal(anna.stub.Contribute(bad))
        assert (refused.code, message in str(refused)) == (code, True), refused
        assert not (await anna.contribute(query, FULL)).repeated
        assert bool(seen) == (place == "check")


async def test_the_same_answer_again_is_fine_and_another_one_is_refused_and_audited(tmp_path: Path) -> None:
    async with first_round(tmp_path / "c") as (rig, sites, _, query):
        anna = sites["anna"]
        assert not (await anna.contribute(query, FULL)).repeated
        assert (await anna.contribute(query, FULL)).repeated
        refused = await refusal(anna.contribute(query, frozen([61])))
        assert refused.code is Code.CONFLICT
        assert "differently before" in str(refused)
        rows = rig.rows("SELECT subject FROM audit WHERE kind = 'different-second-answer'")
        assert [row["subject"] for row in rows] == ["site/anna"]


async def test_sites_that_are_not_invited_see_and_send_nothing(tmp_path: Path) -> None:
    toml = study_toml(sites=("anna", "bert"))
    async with serving(made(tmp_path / "c", long_poll_seconds=0.2)) as rig:
        sites = await rig.sites()
        analyst = await rig.client(Role.ANALYST, "ada")
        digest = await analyst.submit(toml)
        query = await sites["anna"].query()
        carl = sites["carl"]
        assert await carl.work() is None
        for call in (
            carl.contribute(query, FULL),
            carl.stub.Decline(decline(query)),
            carl.open_upload(carl.contribution(query, FULL)),
            carl.release(digest),
        ):
            refused = await refusal(call)
            assert (refused.code, "does not invite" in str(refused)) == (Code.NOT_FOUND, True)


def decline(round_query: RoundQuery, reason: int = pb.DECLINE_REASON_POLICY) -> pb.DeclineRequest:
    return pb.DeclineRequest(
        plan_digest=bytes.fromhex(round_query.plan_digest),
        round=round_query.round,
        reason=reason,  # type: ignore[arg-type]
    )


async def test_a_decline_needs_a_known_reason_and_excludes_an_answer(tmp_path: Path) -> None:
    async with first_round(tmp_path / "c", study_toml(quorum=1)) as (_, sites, _, query):
        anna, bert = sites["anna"], sites["bert"]
        for reason in (0, 99):
            refused = await refusal(anna.stub.Decline(decline(query, reason)))
            assert refused.code is Code.PROTOCOL
        await anna.stub.Decline(decline(query))
        await anna.stub.Decline(decline(query))
        assert "declined round 1" in str(await refusal(anna.contribute(query, FULL)))
        await bert.contribute(query, FULL)
        assert "answered round 1" in str(await refusal(bert.stub.Decline(decline(query))))


WIDE = 900  # columns: a Gram matrix of 405,450 integers, just over one chunk


@asynccontextmanager
async def wide_round(folder: Path) -> AsyncIterator[tuple[Rig, dict[str, Client], RoundQuery]]:
    """A study at a round whose answers need an upload."""
    toml = study_toml(columns=WIDE, components=1)
    # Seeded noise is drawn at once; the exact sampler takes seconds for a vector of this length.
    async with first_round(folder, toml, SeededNoise(1)) as (rig, sites, _, round_query):
        while 8 * round_query.query.length <= CHUNK_BYTES:
            values = np.zeros(round_query.query.length, dtype=np.int64)
            values[0] = 60
            await asyncio.gather(*(site.contribute(round_query, frozen(values)) for site in sites.values()))
            round_query = await sites["anna"].query()
        yield rig, sites, round_query


async def test_an_upload_resumes_with_the_chunks_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, threads = uploads._used_memory, list[threading.Thread]()

    def taken(size: int) -> IntArray:
        threads.append(threading.current_thread())
        return plain(size)

    monkeypatch.setattr(uploads, "_used_memory", taken)
    async with wide_round(tmp_path / "c") as (_, sites, round_query):
        anna = sites["anna"]
        message = anna.contribution(round_query, frozen(np.zeros(round_query.query.length, dtype=np.int64)))
        opened = await anna.open_upload(message)
        assert list(opened.received_chunks) == []
        assert len(threads) == 1
        assert threads[0] is not threading.current_thread()
        chunk = pb.PutChunkRequest(upload=opened.upload, index=0, data=message.values[:CHUNK_BYTES])
        await anna.stub.PutChunk(chunk)
        early = await refusal(anna.stub.Commit(pb.CommitRequest(upload=opened.upload)))
        assert (early.code, "1 chunks are missing" in str(early)) == (Code.PROTOCOL, True)
        assert list((await anna.open_upload(message)).received_chunks) == [0]
        assert not (await anna.upload(message)).repeated
        assert (await anna.upload(message)).repeated


async def test_bad_uploads_are_refused(tmp_path: Path) -> None:
    async with wide_round(tmp_path / "c") as (_, sites, round_query):
        anna, bert = sites["anna"], sites["bert"]
        zeros = frozen(np.zeros(round_query.query.length, dtype=np.int64))
        message = anna.contribution(round_query, zeros)
        short = anna.contribution(round_query, frozen(zeros[1:]))
        assert "bytes instead of" in str(await refusal(anna.open_upload(short)))
        opened = await anna.open_upload(message)
        other = anna.contribution(round_query, frozen(zeros + 1))
        assert (await refusal(anna.open_upload(other))).code is Code.CONFLICT
        for index, size, text in ((9, 8, "does not exist"), (0, 8, "8 bytes instead of")):
            chunk = pb.PutChunkRequest(upload=opened.upload, index=index, data=b"\x00" * size)
            assert text in str(await refusal(anna.stub.PutChunk(chunk)))
        theirs = pb.PutChunkRequest(upload=opened.upload, index=0, data=b"\x00" * CHUNK_BYTES)
        assert (await refusal(bert.stub.PutChunk(theirs))).code is Code.NOT_FOUND
        message.values = other.values
        wrong = await refusal(anna.upload(message))
        assert (wrong.code, "does not match its digest" in str(wrong)) == (Code.BAD_CONTRIBUTION, True)
        assert not (await anna.contribute(round_query, zeros)).repeated


async def test_open_uploads_are_limited(tmp_path: Path) -> None:
    async with wide_round(tmp_path / "c") as (rig, sites, round_query):
        rig.daemon.engine.uploads._limit = 1
        zeros = frozen(np.zeros(round_query.query.length, dtype=np.int64))
        await sites["anna"].open_upload(sites["anna"].contribution(round_query, zeros))
        refused = await refusal(sites["bert"].open_upload(sites["bert"].contribution(round_query, zeros)))
        assert refused.code is Code.NOT_READY


async def test_a_large_answer_that_is_added_makes_room_before_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "SLOT_WAIT_SECONDS", 1.0)
    monkeypatch.setattr(contributions, "GATHER_SECONDS", 10.0)

    async with wide_round(tmp_path / "c") as (rig, sites, round_query):
        rig.daemon.engine.uploads._queue.slot_bytes = 1
        zeros = frozen(np.zeros(round_query.query.length, dtype=np.int64))
        sending = []
        for site in sites.values():
            sending.append(asyncio.create_task(site.upload(site.contribution(round_query, zeros))))
            run = await rig.daemon.engine.run(round_query.plan_digest)
            while run.opened is not None and run.opened.awaits(site.name) and not sending[-1].done():
                await asyncio.sleep(0.01)
        await asyncio.gather(*sending)


async def test_no_value_is_ever_stored(tmp_path: Path) -> None:
    mark = 59_873  # the count of one site, found neither in the database nor in its log

    # Seeded, as a noise of 0, once in some dozen runs, would publish the exact sum.
    async with first_round(tmp_path / "c", noise=SeededNoise(1)) as (_, sites, _, query):
        for site in SITES:
            await sites[site].contribute(query, frozen([mark]))
        await sites["anna"].query()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "c").glob("state.db*"))
    assert mark.to_bytes(8, "little") not in stored
    assert (3 * mark).to_bytes(8, "little") not in stored


async def test_an_answer_that_contradicts_its_own_count_is_refused_and_alarmed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")

    async with first_round(tmp_path / "c") as (rig, sites, _, query):
        for site in sites.values():
            await site.contribute(query, FULL)
        anna = sites["anna"]
        second = await anna.query()
        histogram = frozen([61] + [0] * (second.query.length - 1))
        refused = await refusal(anna.contribute(second, histogram))
        assert refused.code is Code.BAD_CONTRIBUTION
        # a whole word: the log also shows digests and ports, which may hold the figures
        assert re.search(r"\b61\b", f"{refused} {caplog.text}") is None
        assert f"answer-refused study={second.plan_digest[:12]} round=1 site=anna" in caplog.text
        result = rig.rows("SELECT kind, subject FROM audit")
        assert ("answer-refused", "site/anna") in [tuple(row) for row in result]
        await anna.contribute(second, frozen([60] + [0] * (second.query.length - 1)))
