"""Feed mutated inputs to real code and sort what comes back.

Every input ends in one of three ways: it is accepted, it is refused by a declared error (a message that
cannot be decoded, or one of our errors with a code that a peer may see), or it is a find: any other
exception, a defect that a daemon caught and logged, or an accepted message whose meaning is not kept.
A find is written to tests/fuzz/found, and tests/fuzz/test_found.py tries it from then on."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from eigenveil.errors import Code, EigenveilError
from eigenveil_common.process_limits import release_free_memory

FOUND = Path(__file__).parent / "found"
HIDDEN = frozenset({Code.BUG, Code.STORAGE})  # codes that say "our fault": no input may lead there
M_ARENA_MAX = -8  # of glibc's <malloc.h>
WARM_UP = 0.1  # of a run; what is allocated once is allocated by then

Mutate = Callable[[bytes, random.Random], bytes]


@contextmanager
def memory_folder() -> Iterator[Path]:
    """An empty folder, in memory where the machine has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of input: what it starts from, how it is changed, where it goes, how often it is tried."""

    seeds: tuple[bytes, ...]
    mutate: Mutate
    feed: Callable[[bytes], Awaitable[None]]
    weight: float = 1.0


@dataclass(slots=True, kw_only=True)
class Tally:
    """Outcomes of the inputs by kind, finds by file name, and growth in bytes."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    finds: dict[str, str] = field(default_factory=dict)
    growth: int = 0

    @property
    def inputs(self) -> int:
        return sum(counts.total() for counts in self.outcomes.values())

    @property
    def accepted(self) -> int:
        return sum(counts["accepted"] for counts in self.outcomes.values())


class ChangedMeaning(Exception):
    """An accepted message does not say, when it is written again, what it said."""


def resident_bytes(pid: int | str = "self") -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def share_one_arena() -> None:
    """Have all threads to come allocate from one arena. Of a thread's own the allocator gives the free end
    back to nobody, so that one large message in a thread looks like a leak: 5 MiB, again for each thread."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def used_bytes() -> int:
    """Memory of this process that is in use, as long as its threads share an arena: what is free goes back to
    the system first."""
    gc.collect()
    release_free_memory()
    return resident_bytes()


async def outcome(kind: Kind, data: bytes) -> tuple[str, str]:
    """Outcome of one input: a word, and for a find its error."""
    try:
        await kind.feed(data)
    except DecodeError:
        return "undecodable", ""
    except EigenveilError as problem:
        if problem.code in HIDDEN:
            return "find", str(problem)
        return problem.code.value, ""
    except Exception as surprise:  # noqa: BLE001 - this is what is looked for
        return "find", repr(surprise)
    return "accepted", ""


async def hunt(kinds: Mapping[str, Kind], inputs: int, seed: int, found: Path = FOUND) -> Tally:
    """Try `inputs` mutated inputs, each kind by its weight."""
    rng = random.Random(seed)
    tally = Tally(outcomes={name: Counter() for name in kinds})
    names = rng.choices(list(kinds), [kind.weight for kind in kinds.values()], k=inputs)
    settled = int(inputs * WARM_UP)
    for number, name in enumerate(names):
        if number == settled:
            before = used_bytes()
        kind = kinds[name]
        data = kind.mutate(rng.choice(kind.seeds), rng)
        word, seen = await outcome(kind, data)
        tally.outcomes[name][word] += 1
        if word == "find":
            tally.finds[_store(name, data, found)] = seen
    tally.growth = max(0, used_bytes() - before)
    return tally


def _store(name: str, data: bytes, found: Path) -> str:
    file = found / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    found.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file.name
