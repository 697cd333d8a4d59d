"""`python -m tests.torture.masked.process PROGRAM ...`: one of our commands, which a test can look into.

A site's share of the noise is known. A coordinator writes down all of its memory, if EIGENVEIL_DUMPS names a
folder: after each of the answers to the round in EIGENVEIL_DUMP_ROUND, and once that is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np

from eigenveil_client.site.commands import main as site_cli
from eigenveil_client.site.daemon import answers
from eigenveil_common.files import arm
from eigenveil_server import cli as coordinator_cli
from tests.torture.masked.known import KnownShare

DUMPS, DUMP_ROUND = "EIGENVEIL_DUMPS", "EIGENVEIL_DUMP_ROUND"
PAGE = 4096
LARGEST = 2**28  # bytes of a region that is read
MOST = 12  # dumps


def memory() -> Iterator[bytes]:
    """Memory that this process wrote: its heap, its stacks, its arrays."""
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as all_of_it:
        for line in maps.readlines():
            place, rights, *_ = line.split()
            start, end = (int(edge, 16) for edge in place.split("-"))
            if rights.startswith("rw") and end - start <= LARGEST and "[v" not in line:
                try:
                    all_of_it.seek(start)
                    pages = np.frombuffer(all_of_it.read(end - start), dtype=np.uint8).reshape(-1, PAGE)
                except OSError:
                    continue
                yield pages[pages.any(axis=1)].tobytes()


def dumping(folder: Path, round: int) -> Callable[[str], Callable[[], None]]:
    """Function that writes one file at a passage of a failpoint, once so many rounds were closed."""
    numbers, closed = count(), [0]

    def at(name: str) -> Callable[[], None]:
        def action() -> None:
            if closed[0] == round and (number := next(numbers)) < MOST:
                with (folder / f"{name}-{number}.mem").open("wb") as file:
                    for piece in memory():
                        file.write(piece)
            closed[0] += name == "round-closed"

        return action

    return at


def main() -> int:
    program = sys.argv.pop(1)
    if program == "eigenveil-site":
        mock.patch.object(answers, "OsNoise", KnownShare).start()
        return site_cli.main()
    if DUMPS in os.environ:
        at = dumping(Path(os.environ[DUMPS]), int(os.environ[DUMP_ROUND]))
        for name in ("answer-taken", "round-closed"):
            arm(name, at(name))
    return coordinator_cli.main()


if __name__ == "__main__":
    sys.exit(main())
