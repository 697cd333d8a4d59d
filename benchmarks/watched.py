"""One of our commands, which writes down when its failpoints are passed and how much memory it holds then,
for `benchmarks.wide`.

`python -m benchmarks.watched OUT PROGRAM ARGUMENT ...` appends a JSON line to OUT at each passage: the place,
seconds of a clock that all processes share, seconds of processor time, bytes resident, and the most that were
since the last passage of a place in `ANEW`."""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TextIO

from benchmarks.profiled import PROGRAMS
from eigenveil_common.files import arm

COORDINATOR = (
    *("round-opened", "round-offered", "upload-opened", "chunk-taken", "upload-committing", "answer-taken"),
    *("round-closed", "noise-drawn", "round-sealed", "round-released", "round-followed"),
    *("bundle-built", "study-settled"),
)
SITE = (
    *("records-loaded", "answer-computed", "answer-charged"),
    *("share-drawn", "answer-masked", "attempt-storing", "attempt-stored"),
    *("reply-sending", "chunk-sent", "reply-sent"),
)
ANEW = {
    *("round-offered", "noise-drawn", "round-sealed", "round-followed", "bundle-built"),
    *("records-loaded", "answer-computed"),
}
MEMORY = Path("/proc/self/status")
FORGET = Path("/proc/self/clear_refs")  # a 5 sets the peak back to what is resident now


def memory() -> dict[str, int]:
    """Bytes resident, and their peak."""
    lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
    return {name: 1024 * int(lines[name].split()[0]) for name in ("VmRSS", "VmHWM")}


def passed(name: str, out: TextIO, lock: threading.Lock) -> None:
    """Write down a passage."""
    with lock:
        times = {"at": time.monotonic(), "processor": time.process_time()}
        print(json.dumps({"place": name, **times, **memory()}), file=out, flush=True)
        if name in ANEW:
            FORGET.write_text("5")


def main() -> int:
    """Be the command."""
    path, program, *arguments = sys.argv[1:]
    lock = threading.Lock()
    with Path(path).open("a") as out:
        passed("begun", out, lock)
        for name in (*COORDINATOR, *SITE):
            arm(name, partial(passed, name, out, lock))
        sys.argv = [program, *arguments]
        return PROGRAMS[program]()


if __name__ == "__main__":
    sys.exit(main())
