"""The session of a study that the coordinator runs; what follows from a wide release is computed apart.

A matrix of 5,000 columns is decomposed in many times its own memory and for a minute, while the coordinator
serves all other studies.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

from eigenveil.accounting.zcdp import NOTHING
from eigenveil.errors import Code, InternalError, RequestError, error
from eigenveil.numerics.encoding import octets
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.protocol.wire import query_from_proto
from eigenveil.reporting.result import MOST_WRITTEN, Result, result_of
from eigenveil.session import Session
from eigenveil_common import log
from eigenveil_common.apart import apart, ended
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.following.follower import words_of
from eigenveil_server.following.messages import Message, read, write

# Numbers of a release. A wider matrix is not in the document, so that what follows is short.
WIDE = MOST_WRITTEN * (MOST_WRITTEN + 1) // 2
TRIES = 2


class StudySession:
    """`eigenveil.session.Session`, here until a release is wide, and from then on in a process of its own:
    the same code, on one thread of BLAS, to the same bits. Used by one thread at a time, but for `close`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.releases: list[Release] = []
        self.spent = NOTHING
        self._here: Session | None = Session(plan)
        self.pending: RoundQuery | None = self._here.pending
        self._found: Result | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._using = threading.Lock()
        self._starting = threading.Lock()
        self._closed = False

    def apart(self, numbers: int) -> bool:
        """Whether what follows from a release of so many numbers is computed in the process of its own."""
        return self._here is None or numbers > WIDE

    def replay(self, releases: Iterable[Release]) -> None:
        """Feed all of them, in order."""
        for release in releases:
            self.feed(release)

    def feed(self, release: Release) -> None:
        """Hand on the pending query's release. Raises as `Session.feed`, and InternalError where the process
        of its own was ended, more than once."""
        if self.apart(release.values.size):
            self._here = None
        if self._here is not None:
            self._here.feed(release)
            self.pending = self._here.pending
        else:
            self._take(self._followed(release))
        self.spent = self.spent + release.cost
        self.releases.append(release)

    def _take(self, answer: Message) -> None:
        words, data = answer
        if "code" in words:
            raise error(Code(words["code"]), words["why"])
        self.pending = query_from_proto(pb.Query.FromString(data.tobytes())) if "asks" in words else None
        if "result" in words:
            self._found = Result.from_dict(words["result"])

    def _followed(self, release: Release) -> Message:
        """The process's answer; one that was ended is started again, once."""
        with self._using:
            for _ in range(TRIES):
                answer = self._answer(release)
                if answer is None or "asks" not in answer[0]:
                    self._end()  # it has said all that there is, or never will
                if answer is not None:
                    return answer
                if not self._closed:
                    log.event("follower-ended", logging.WARNING, study=self.plan.digest)
        raise InternalError(
            Code.BUG,
            "the process that computes what follows from a wide release was ended, maybe for want of "
            "memory; the release is stored",
        )

    def _answer(self, release: Release) -> Message | None:
        """None: the process was ended."""
        answer, fresh = None, self._process is None
        with suppress(BrokenPipeError):
            stdin, stdout = self._pipes()
            for one in (*self.releases, release) if fresh else (release,):
                answer = None
                write(stdin, words_of(one), octets(one.values))
                answer = read(stdout)
        return answer

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        with self._starting:
            if self._closed:
                raise InternalError(Code.BUG, "the study goes on no more in this process")
            new = self._process is None
            process = self._process = self._process or apart("eigenveil_server.following.follower")
        assert process.stdin is not None
        assert process.stdout is not None
        if new:
            write(process.stdin, {}, self.plan.to_json())
        return process.stdin, process.stdout

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            ended(process)

    @property
    def result(self) -> Result:
        """In the units of the study.

        Raises:
            RequestError: code `not-ready`, while a query is pending.
        """
        if self._here is not None:
            return result_of(self.plan, self._here.result)
        if self._found is None:
            raise RequestError(Code.NOT_READY, "the study has not finished")
        return self._found

    def close(self) -> None:
        """The study goes on no more in this process; whatever is computed for it elsewhere ends."""
        with self._starting:
            self._closed, process = True, self._process  # whoever uses it may let it go at any time
            if process is not None:
                process.kill()  # then whoever waits for its answer waits no more
        with self._using:
            self._end()
