"""Places for large answers: in turn, for nobody who has stalled, and never more bytes than there are [R8]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError
from eigenveil.numerics.encoding import IntArray
from eigenveil_server.studies import uploads
from eigenveil_server.studies.uploads import (
    AWAY_SECONDS,
    GRACE_SECONDS,
    PRESENT_SECONDS,
    Upload,
    UploadQueue,
    Uploads,
)

CHUNK = 16


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(uploads, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(uploads, "SLOT_WAIT_SECONDS", 0.0)


@dataclass
class Hall:
    """Uploads with a clock that stands still unless it is moved."""

    now: float = 0.0
    over: set[int] = field(default_factory=set)
    most: int = 100

    def __post_init__(self) -> None:
        self.turns = UploadQueue(slot_bytes=4 * CHUNK, clock=lambda: self.now)
        self.uploads = Uploads(self.most, lambda study, round, attempt: round not in self.over, self.turns)

    def upload(self, site: str, chunks: int, round: int = 0) -> Upload:
        """An answer of so many chunks that is announced now."""
        return Upload(
            study="s", round=round, site=site, query_digest=b"", contribution_digest=b"",
            total_bytes=chunks * CHUNK,
        )  # fmt: skip

    def queries(self, site: str, chunks: int, round: int = 0) -> Upload | None:
        """Open an upload of so many chunks; None if it has to wait."""
        wanted = self.upload(site, chunks, round)
        try:
            asyncio.run(self.uploads.wait_for_slot(wanted, due_bytes=chunks * CHUNK))
        except RequestError as problem:
            if problem.code is not Code.NOT_READY:
                raise
            return None
        return self.uploads.open(wanted)

    def puts(self, upload: Upload, index: int) -> None:
        upload.put(index, bytes([index]) * CHUNK)
        upload.moved_at = self.now

    def open(self) -> Iterator[str]:
        return (one.site for one in self.uploads._by_id.values() if one.memory_bytes)


def done(hall: Hall, upload: Upload) -> None:
    """Send all of it, and have it taken."""
    for index in range(upload.count):
        hall.puts(upload, index)
    upload.take()
    hall.uploads.commit(upload)


def taken(hall: Hall, site: str, chunks: int) -> Upload:
    upload = hall.queries(site, chunks)
    assert upload is not None
    return upload


def test_small_answers_come_side_by_side_and_a_large_one_alone() -> None:
    hall = Hall()
    first, _ = taken(hall, "a", 2), taken(hall, "b", 2)
    assert hall.queries("c", 9) is None
    done(hall, first)
    assert hall.queries("c", 9) is None
    assert list(hall.open()) == ["b"]


def test_slots_are_given_in_the_order_of_requests() -> None:
    hall = Hall()
    first = taken(hall, "a", 4)
    assert [hall.queries(site, size) for site, size in (("b", 9), ("c", 1), ("b", 9))] == [None, None, None]
    done(hall, first)
    assert hall.queries("c", 1) is None  # it would fit; b was before it
    second = taken(hall, "b", 9)
    assert hall.queries("c", 1) is None
    done(hall, second)
    taken(hall, "c", 1)


def test_a_second_request_of_a_site_takes_no_second_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall()
    first = taken(hall, "a", 4)
    monkeypatch.setattr(uploads, "SLOT_WAIT_SECONDS", 60.0)

    async def asking() -> None:
        wanted = hall.upload("b", 4)
        await hall.uploads.wait_for_slot(wanted, due_bytes=4 * CHUNK)
        hall.uploads.open(wanted)

    async def twice() -> None:
        both = [asyncio.create_task(asking()) for _ in range(2)]
        await asyncio.sleep(0)
        done(hall, first)
        await asyncio.gather(*both)

    asyncio.run(twice())
    assert list(hall.open()) == ["b"]
    assert not len(hall.turns)


def test_a_site_that_leaves_the_queue_blocks_none_and_may_come_back_in_its_turn() -> None:
    hall = Hall()
    first = taken(hall, "a", 4)
    assert [hall.queries(site, 4) for site in "bcd"] == [None, None, None]
    done(hall, first)
    assert hall.queries("c", 4) is None  # b may ask again at once
    hall.now += PRESENT_SECONDS + 0.1
    second = taken(hall, "c", 4)
    hall.now += PRESENT_SECONDS + 0.1
    assert [hall.queries(site, 4) for site in "db"] == [None, None]
    done(hall, second)
    assert hall.queries("d", 4) is None
    done(hall, taken(hall, "b", 4))
    assert hall.queries("e", 4) is None  # d is there
    hall.now += AWAY_SECONDS + 0.1
    third = taken(hall, "e", 4)
    assert [hall.queries(site, 4) for site in "fd"] == [None, None]
    done(hall, third)
    assert hall.queries("d", 4) is None  # it was away too long
    taken(hall, "f", 4)


def test_a_stalled_upload_makes_room_for_other_sites_only() -> None:
    hall = Hall()
    stalled = taken(hall, "a", 4)
    hall.puts(stalled, 0)
    hall.now += 100 * GRACE_SECONDS
    assert taken(hall, "a", 4).received_chunks() == [0]  # nobody waited: what came is still there
    assert hall.queries("b", 4) is not None
    assert list(hall.open()) == ["b"]
    with pytest.raises(RequestError, match="this upload is not open"):
        hall.uploads.get(stalled.id, "a")


@pytest.mark.parametrize("chunks", [4, 400])
def test_a_slot_is_lost_by_sending_too_little(chunks: int) -> None:
    hall = Hall()
    hostile = taken(hall, "a", chunks)
    for index in range(chunks):
        if hall.queries("b", 4) is not None:
            break
        hall.now += GRACE_SECONDS * 0.9
        hall.puts(hostile, index)
        hall.puts(hostile, 0)
    assert list(hall.open()) == ["b"]
    assert hall.now <= 2 * GRACE_SECONDS


def test_an_upload_at_pace_or_without_competitors_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "LEAST_RATE", CHUNK)  # one a second
    hall = Hall()
    steady, idle = taken(hall, "a", 100), Hall()
    for index in range(99):
        hall.now += 1
        hall.puts(steady, index)
        assert hall.queries("b", 4) is None
    taken(idle, "a", 2)
    idle.now += 100 * GRACE_SECONDS
    taken(idle, "b", 2)
    assert list(idle.open()) == ["a", "b"]


def test_the_time_in_which_one_waits_is_not_taken_off_its_turn() -> None:
    hall = Hall()
    first = taken(hall, "a", 4)
    wanted = hall.upload("b", 4)
    hall.now += 100 * GRACE_SECONDS
    done(hall, first)
    hall.uploads.open(wanted)
    assert hall.uploads.is_in_progress(wanted.key)
    assert hall.queries("c", 4) is None


def test_slow_lines_that_wait_for_each_other_get_through_in_the_end() -> None:
    hall, through = Hall(), list[str]()
    pace, stored = 3 * GRACE_SECONDS, dict[str, Upload | None](a=None, b=None)
    for _ in range(300):
        hall.now += pace / 10
        for site in [site for site in stored if site not in through]:
            upload = hall.queries(site, 3)
            if upload is None:
                continue
            if upload is not stored[site]:
                stored[site] = upload
            elif hall.now - upload.moved_at >= pace:
                hall.puts(upload, len(upload.received))
                if len(upload.received) == upload.count:
                    done(hall, upload)
                    through.append(site)
    assert sorted(through) == ["a", "b"]


def test_one_that_is_being_decided_on_is_not_taken_for_stalled() -> None:
    hall = Hall()
    whole = taken(hall, "a", 4)

    async def deciding() -> None:
        async with whole.deciding:
            hall.now += 100 * GRACE_SECONDS
            with pytest.raises(RequestError):
                await hall.uploads.wait_for_slot(hall.upload("b", 4), due_bytes=4 * CHUNK)

    asyncio.run(deciding())
    assert list(hall.open()) == ["a"]


def test_nothing_is_stored_of_a_round_that_is_over() -> None:
    hall = Hall()
    taken(hall, "a", 4)
    assert hall.queries("b", 4) is None
    hall.over.add(0)
    assert hall.queries("c", 4, round=1) is not None
    assert list(hall.open()) == ["c"]
    assert not len(hall.turns)


def test_chunks_come_in_any_order_and_the_first_word_of_each_counts() -> None:
    hall = Hall()
    upload = taken(hall, "a", 3)
    for index in (2, 0, 1):
        upload.put(index, bytes([index + 1]) * CHUNK)
        upload.put(index, b"x" * CHUNK)
    values = upload.take()
    assert values.tobytes() == b"\1" * CHUNK + b"\2" * CHUNK + b"\3" * CHUNK
    assert not values.flags.writeable
    upload.put(1, b"x" * CHUNK)
    assert values.tobytes()[CHUNK : 2 * CHUNK] == b"\2" * CHUNK
    with pytest.raises(InternalError):
        upload.take()


@pytest.mark.parametrize(("index", "size"), [(3, CHUNK), (0, CHUNK - 1), (0, CHUNK + 1), (2**40, CHUNK)])
def test_a_chunk_that_is_none_changes_nothing(index: int, size: int) -> None:
    upload = taken(Hall(), "a", 3)
    with pytest.raises(PeerError):
        upload.put(index, bytes(size))
    with pytest.raises(EigenveilError, match="3 chunks are missing"):
        upload.check_complete()


async def test_the_memory_of_an_answer_is_taken_once_in_a_thread() -> None:
    """Its first use took the event loop up to 9 ms for 2 MiB."""
    hall, given = Hall(), list[IntArray]()
    upload = hall.upload("a", 3)

    async def run(work: Callable[[int], IntArray], size: int) -> IntArray:
        given.append(await asyncio.to_thread(work, size))
        return given[-1]

    await asyncio.gather(upload.reserve(run), upload.reserve(run))
    assert [one.nbytes for one in given] == [3 * CHUNK]
    for index in range(3):
        upload.put(index, bytes([index]) * CHUNK)
    assert upload.take() is given[0]
    await upload.reserve(run)
    assert len(given) == 1
    with pytest.raises(InternalError, match="twice"):
        upload.take()


async def test_a_chunk_that_comes_before_the_memory_is_not_lost() -> None:
    upload, go = Hall().upload("a", 2), asyncio.Event()

    async def late(work: Callable[[int], IntArray], size: int) -> IntArray:
        await go.wait()
        return work(size)

    reserving = asyncio.ensure_future(upload.reserve(late))
    await asyncio.sleep(0)
    upload.put(1, b"1" * CHUNK)
    go.set()
    await reserving
    upload.put(0, b"0" * CHUNK)
    assert upload.take().tobytes() == b"0" * CHUNK + b"1" * CHUNK
