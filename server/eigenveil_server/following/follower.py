"""A study's session in a process of its own: told releases, it says what the study asks then, or its result.

`python -m eigenveil_server.following.follower` first reads a plan, then releases, which are charged and
stored [P27]; each is answered. Nothing here knows a key, a ledger or a database.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, EigenveilError
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.release import Release
from eigenveil.protocol.wire import query_to_proto
from eigenveil.reporting.result import result_of
from eigenveil.session import Session
from eigenveil_common.log import logger, places
from eigenveil_common.process import forbid_core_dumps
from eigenveil_server.following.messages import Octets, read, write

NICE = 10  # rounds and calls go first
OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_TO_END = "500"  # where memory runs out, rather than the coordinator


def release_of(words: dict[str, Any], data: Octets) -> Release:
    """As `words_of` said it."""
    return Release(**words | {"present": tuple(words["present"])}, values=data.view("<i8"))


def words_of(release: Release) -> dict[str, Any]:
    """All of a release but its values."""
    names = ("round", "query", "sigma", "micro_rho", "atto_delta", "present")
    return {name: getattr(release, name) for name in names}


def fed(session: Session, release: Release) -> tuple[dict[str, Any], bytes]:
    """What follows: a question, the result, or the code and the sentence of an error."""
    try:
        session.feed(release)
        if session.pending is not None:
            return {"asks": True}, query_to_proto(session.pending).SerializeToString()
        return {"result": result_of(session.plan, session.result).to_dict()}, b""
    except EigenveilError as problem:
        return {"code": problem.code.value, "why": str(problem)}, b""
    except Exception as surprise:  # noqa: BLE001 - told by its type, as everywhere
        logger.error("defect in %s", places(surprise.__traceback__))  # to the coordinator's standard error
        return {"code": Code.BUG.value, "why": type(surprise).__name__}, b""


def _end_with_the_coordinator() -> None:
    """Also in the middle of a decomposition, and however that process ended."""
    gone = select.poll()
    gone.register(sys.stdin, 0)
    gone.poll()
    os._exit(1)


def main() -> int:
    """Answer until nobody says any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever asks
    forbid_core_dumps()
    threading.Thread(target=_end_with_the_coordinator, daemon=True).start()
    with suppress(OSError):
        OOM_SCORE.write_text(FIRST_TO_END)
    with suppress(OSError):  # a hardened unit forbids it
        os.nice(NICE)
    first = read(sys.stdin.buffer)
    if first is None:
        return 0
    _, plan = first
    session = Session(plan_from_json(plan.tobytes()))
    while (said := read(sys.stdin.buffer)) is not None:
        write(sys.stdout.buffer, *fed(session, release_of(*said)))
        del said
    return 0


if __name__ == "__main__":
    sys.exit(main())
