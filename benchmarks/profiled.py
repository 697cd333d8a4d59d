"""One of our commands under a profiler of its threads' CPU time, for `benchmarks.federation --profile`.

`python -m benchmarks.profiled OUT PROGRAM ARGUMENT ...` writes into OUT, as JSON, what the rounds from FIRST
to LAST cost: milliseconds of CPU a round for every part, without the parts that it calls. A profiler slows
Python down and not what is compiled, so the figures rank parts and do not add up to a round."""

from __future__ import annotations

import cProfile
import json
import sys
import threading
import time
from collections import Counter
from functools import cache
from itertools import count
from pathlib import Path

from eigenveil_client.site.commands import main as site
from eigenveil_common.files import arm
from eigenveil_server import cli as coordinator

FIRST, LAST = 14, 44
COMPILED = ("apsw", "cryptography", "_ssl", "_socket", "epoll", "numpy", "Context")
PASSED = ("noise-drawn", "answer-computed")  # once a round, at the coordinator and at a site
PROGRAMS = {"eigenveil-coordinator": coordinator.main, "eigenveil-site": site.main}

_profiles: list[cProfile.Profile] = []
_run = threading.Thread.run


def watch() -> None:
    """Profile the calling thread from here on."""
    profile = cProfile.Profile(time.thread_time)
    _profiles.append(profile)
    profile.enable()


def _watched(thread: threading.Thread) -> None:
    watch()
    _run(thread)


def so_far() -> Counter[str]:
    """CPU seconds of each part, of all threads; what it calls of the interpreter is its own."""
    spent: Counter[str] = Counter()
    for profile in tuple(_profiles):
        for entry in profile.getstats():
            if isinstance(entry.code, str):
                continue  # counted with whoever called it
            part = _part(entry.code.co_filename)
            spent[part] += entry.inlinetime  # type: ignore[assignment]
            for called in entry.calls or ():
                if isinstance(called.code, str):
                    spent[_compiled(called.code) or part] += called.inlinetime  # type: ignore[assignment]
    del spent["benchmarks"]
    return spent


@cache
def _part(file: str) -> str:
    """A library, or a folder of ours."""
    path = file.split("/")
    for place in ("site-packages", f"python3.{sys.version_info.minor}"):
        if place in path:
            return path[path.index(place) + 1].removesuffix(".py")
    return "benchmarks" if "benchmarks" in path else "/".join(path[-3:-1]) or file


def _compiled(name: str) -> str | None:
    """Library of a compiled function; None if not named."""
    return next((library for library in COMPILED if library in name), None)


def main() -> int:
    """Be the command, and write down what its rounds cost."""
    out, program, *arguments = sys.argv[1:]
    passages, before = count(), Counter[str]()

    def passed() -> None:
        round = next(passages)
        if round == FIRST:
            before.update(so_far())
        elif round == LAST:
            spent = so_far()
            spent.subtract(before)
            each = {part: 1e3 * seconds / (LAST - FIRST) for part, seconds in spent.items()}
            Path(out).write_text(json.dumps(each))

    for name in PASSED:
        arm(name, passed)
    threading.Thread.run = _watched  # type: ignore[assignment, method-assign]
    watch()
    sys.argv = [program, *arguments]
    return PROGRAMS[program]()


if __name__ == "__main__":
    sys.exit(main())
