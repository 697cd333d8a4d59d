"""One of our commands under a profiler of its threads' CPU time, for `benchmarks.federation --profile`.

`python -m benchmarks.profiled OUT PROGRAM ARGUMENT ...` writes into OUT, as JSON, what the rounds from FIRST
to LAST cost: milliseconds of CPU a round for every part, without what it calls. A profiler slows Python down
and not what is compiled, so the figures rank parts and do not add up to a round.
"""

from __future__ import annotations

import cProfile
import json
import sys
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path

from eigenveil_client.site.commands import main as site
from eigenveil_common.failpoints import arm
from eigenveil_server import cli as coordinator

FIRST, LAST = 8, 38
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


def so_far() -> Counter[object]:
    """CPU seconds of each function, of all threads."""
    spent: Counter[object] = Counter()
    for profile in tuple(_profiles):
        for entry in profile.getstats():
            spent[entry.code] += entry.inlinetime
    return spent


def _part(code: object) -> str:
    """A module in Python, or one function that is compiled."""
    if isinstance(code, str):
        return code.strip("<>")
    path = Path(code.co_filename)  # type: ignore[attr-defined]
    return f"{path.parent.name}/{path.name}"


def main() -> int:
    """Be the command, and write down what its rounds cost."""
    out, program, *arguments = sys.argv[1:]
    passages, before = count(), Counter[object]()

    def passed() -> None:
        round = next(passages)
        if round == FIRST:
            before.update(so_far())
        elif round == LAST:
            now = so_far()
            now.subtract(before)
            each: Counter[str] = Counter()
            for code, spent in now.items():
                each[_part(code)] += 1e3 * spent / (LAST - FIRST)
            Path(out).write_text(json.dumps(each))

    for name in PASSED:
        arm(name, passed)
    threading.Thread.run = _watched  # type: ignore[method-assign]
    watch()
    sys.argv = [program, *arguments]
    return PROGRAMS[program]()


if __name__ == "__main__":
    sys.exit(main())
