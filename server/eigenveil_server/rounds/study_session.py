"""Session of a running study, which continues in a subprocess once a release is wide: decomposing a matrix of
5,000 columns takes many times its memory and a minute, while the coordinator serves all other studies.
`python -m eigenveil_server.rounds.study_session` reads a plan, then releases that are charged and stored
[P27]; each gets an answer: the next query, or the result. It has no access to keys, ledger or database.
Messages go over pipes: a JSON header, and raw bytes."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.accounting.zcdp import NO_COST
from eigenveil.errors import Code, EigenveilError, InternalError, RequestError, error
from eigenveil.numerics.encoding import to_memoryview
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil.reporting.result import MOST_COVARIANCE_COLUMNS, Result, result_of
from eigenveil.session import Session
from eigenveil.study.checks import plain_fields
from eigenveil_common import log
from eigenveil_common.concurrency import kill_process, start_isolated
from eigenveil_common.log import frame_locations, logger
from eigenveil_common.process_limits import forbid_core_dumps
from eigenveil_proto.v1 import eigenveil_pb2 as pb

LENGTHS = struct.Struct(">QQ")  # bytes of header and data
ByteArray = NDArray[np.uint8]
Message = tuple[dict[str, Any], ByteArray]


def write(stream: IO[bytes], header: dict[str, Any], data: bytes | memoryview = b"") -> None:
    """Write a message; `data` is not copied. A dataclass in the header is encoded here, off an event loop."""
    header_bytes = json.dumps(header, default=plain_fields).encode()
    stream.write(LENGTHS.pack(len(header_bytes), len(data)) + header_bytes)
    stream.write(data)
    stream.flush()


def read(stream: IO[bytes]) -> Message | None:
    """Return the next message, with read-only data; None at the end."""
    head = stream.read(LENGTHS.size)
    if len(head) < LENGTHS.size:
        return None
    header, data_bytes = LENGTHS.unpack(head)
    header_bytes, data = stream.read(header), np.empty(data_bytes, dtype=np.uint8)
    if len(header_bytes) < header or stream.readinto(data) < data_bytes:  # type: ignore[attr-defined]
        return None
    data.setflags(write=False)
    return json.loads(header_bytes), data


NICE = 10  # rounds and calls go first
OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_TO_END = "500"  # killed before the coordinator when memory runs out


def parse_release(header: dict[str, Any], data: ByteArray) -> Release:
    """Return the release of a header and its values, as `release_header` made it."""
    return Release(**header | {"present": tuple(header["present"])}, values=data.view("<i8"))


def release_header(release: Release) -> dict[str, Any]:
    """Return all of a release but its values."""
    names = ("round", "query", "sigma", "micro_rho", "atto_delta", "present")
    return {name: getattr(release, name) for name in names}


def feed_release(session: Session, release: Release) -> tuple[dict[str, Any], bytes]:
    """Feed one release; return the next query, the result, or the code and message of an error."""
    try:
        session.feed(release)
        if session.pending is not None:
            return {"asks": True}, query_to_proto(session.pending).SerializeToString()
        return {"result": result_of(session.plan, session.result).published().to_dict()}, b""
    except EigenveilError as problem:
        return {"code": problem.code.value, "why": str(problem)}, b""
    except Exception as unexpected:  # noqa: BLE001 - reported by its type only
        logger.error("defect in %s", frame_locations(unexpected.__traceback__))  # to the coordinator's stderr
        return {"code": Code.BUG.value, "why": type(unexpected).__name__}, b""


def _exit_with_coordinator() -> None:
    """Exit when the coordinator's process ends, also in the middle of a decomposition."""
    stdin_poll = select.poll()
    stdin_poll.register(sys.stdin, 0)
    stdin_poll.poll()
    os._exit(1)


def main() -> int:
    """Answer releases until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator handles interrupts
    forbid_core_dumps()
    threading.Thread(target=_exit_with_coordinator, daemon=True).start()
    with suppress(OSError):
        OOM_SCORE.write_text(FIRST_TO_END)
    with suppress(OSError):  # a hardened unit forbids it
        os.nice(NICE)
    first = read(sys.stdin.buffer)
    if first is None:
        return 0
    _, plan = first
    session = Session(plan_from_json(plan.tobytes()))
    while (message := read(sys.stdin.buffer)) is not None:
        write(sys.stdout.buffer, *feed_release(session, parse_release(*message)))
        del message
    return 0


# Numbers of a release. The document of a study omits a wider matrix, so what follows from it is short.
WIDE_RELEASE_NUMBERS = MOST_COVARIANCE_COLUMNS * (MOST_COVARIANCE_COLUMNS + 1) // 2
ATTEMPTS = 2


class StudySession:
    """`eigenveil.session.Session`, in this process until a release is wide, and from then on in a subprocess.
    Code, number of BLAS threads and results are the same, to the bit. One thread at a time uses it, except
    for `close`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.releases: list[Release] = []
        self.spent = NO_COST
        self._local_session: Session | None = Session(plan)
        self.pending: RoundQuery | None = self._local_session.pending
        self._result: Result | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._using = threading.Lock()
        self._starting = threading.Lock()
        self._closed = False

    @property
    def after(self) -> str:
        """Return the digest of the last release; empty before the first."""
        return self.releases[-1].digest if self.releases else ""

    def uses_subprocess(self, numbers: int) -> bool:
        """True if a release of so many numbers is processed in the subprocess."""
        return self._local_session is None or numbers > WIDE_RELEASE_NUMBERS

    def replay(self, releases: Iterable[Release]) -> None:
        """Feed all of them, in order."""
        for release in releases:
            self.feed(release)

    def feed(self, release: Release) -> None:
        """Pass on the release of the pending query. Raises as `Session.feed`, and InternalError if the
        subprocess was ended more than once."""
        if self.uses_subprocess(release.values.size):
            self._local_session = None
        if self._local_session is not None:
            self._local_session.feed(release)
            self.pending = self._local_session.pending
        else:
            header, data = self._feed_subprocess(release)
            if "code" in header:
                raise error(Code(header["code"]), header["why"])
            self.pending = query_from_proto(pb.Query.FromString(data.tobytes())) if "asks" in header else None
            if "result" in header:
                self._result = Result.from_dict(header["result"])
        self.spent = self.spent + release.cost
        self.releases.append(release)

    def _feed_subprocess(self, release: Release) -> Message:
        """Return the subprocess's answer; a subprocess that was ended is started again, once."""
        with self._using:
            for _ in range(ATTEMPTS):
                answer = self._answer(release)
                if answer is None or "asks" not in answer[0]:
                    self._end()  # it has nothing more to send
                if answer is not None:
                    return answer
                if not self._closed:
                    log.event("follower-ended", logging.WARNING, study=self.plan.digest)
        raise InternalError(
            Code.BUG,
            "the subprocess that computes the next query was ended, possibly for lack of memory; the "
            "release is stored",
        )

    def _answer(self, release: Release) -> Message | None:
        """Return the answer; None if the subprocess was ended."""
        answer, fresh = None, self._process is None
        with suppress(BrokenPipeError):
            stdin, stdout = self._pipes()
            for one in (*self.releases, release) if fresh else (release,):
                answer = None
                write(stdin, release_header(one), to_memoryview(one.values))
                answer = read(stdout)
        return answer

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        with self._starting:
            if self._closed:
                raise InternalError(Code.BUG, "the session of this study is closed in this process")
            new = self._process is None
            process = self._process = self._process or start_isolated("eigenveil_server.rounds.study_session")
        assert process.stdin is not None
        assert process.stdout is not None
        if new:
            write(process.stdin, {}, self.plan.to_json())
        return process.stdin, process.stdout

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill_process(process)

    @property
    def result(self) -> Result:
        """Return the result, in the units of the study. Raises RequestError: code `not-ready`, while a query
        is pending."""
        if self._local_session is not None:
            return result_of(self.plan, self._local_session.result)
        if self._result is None:
            raise RequestError(Code.NOT_READY, "the study has not finished")
        return self._result

    def close(self) -> None:
        """End the session in this process, and the subprocess."""
        with self._starting:
            self._closed, process = True, self._process  # another thread may drop it at any time
            if process is not None:
                process.kill()  # the thread that waits for its answer goes on
        with self._using:
            self._end()


if __name__ == "__main__":
    sys.exit(main())
