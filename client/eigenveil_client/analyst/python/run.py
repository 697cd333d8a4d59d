"""A study at the coordinator: to wait for, look at, cancel, and read the result of."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eigenveil.accounting.digits import percent_up
from eigenveil.errors import Code, RequestError
from eigenveil.released import ReleasedResult, load_release
from eigenveil.reporting.notebook import card, lines
from eigenveil_client.analyst.display import consent_line, rounds_line, site_words, state_word, time_of
from eigenveil_client.analyst.python.progress import watching
from eigenveil_client.analyst.study_text import event_value
from eigenveil_client.analyst.talk import Talk
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How a run stands: `state` is running, awaiting approval, released, failed or cancelled; so many
    `rounds` are done and such a share of its price is `spent`; `failure` says why it failed. Before anything
    is asked, `consent` is what is known of each site's word, and `waits` for what the run waits."""

    state: str
    rounds: int
    spent: float
    submitted: datetime
    failure: str
    consent: Mapping[str, str]
    waits: str

    @property
    def ended(self) -> bool:
        return self.state in ("released", "failed", "cancelled")

    def __str__(self) -> str:
        return self.state


class Run:
    """A study that was submitted: `digest` names it, `name` is what it was called, `submission` under what id
    it was sent, and `warnings` is what the coordinator said then.

    Every method and property but these raises:
        EigenveilError: the coordinator's own error, or code `unreachable`.
    """

    def __init__(
        self, talk: Talk, digest: str, name: str, *, submission: str = "", warnings: tuple[str, ...] = (),
        stood: RunStatus | None = None,
    ) -> None:  # fmt: skip
        self._talk = talk
        self.digest = digest
        self.name = name
        self.submission = submission
        self.warnings = warnings
        self._stood = stood
        self._seen: pb.StudyEvent | None = None
        self._release: ReleasedResult | None = None

    @property
    def _plan(self) -> bytes:
        return bytes.fromhex(self.digest)

    @property
    def status(self) -> RunStatus:
        """How it stands now."""
        return status_of(self._talk.ask(lambda analyst: analyst.find(self.digest)))

    def messages(self) -> Iterator[pb.StudyEvent | str | None]:
        """Its events up to its end, as they come, sentences about the connection, and None when nothing came
        for a moment."""
        told: list[str] = []
        events = self._talk.each(lambda analyst: analyst.watch(self._plan, told.append))
        for event in events:
            while told:
                yield told.pop(0)
            self._seen = event or self._seen
            yield event

    def events(self) -> Iterator[dict[str, Any]]:
        """What happens up to its end, as it happens, as plain values."""
        for message in self.messages():
            if isinstance(message, pb.StudyEvent):
                yield event_value(message)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has released its result, and show how far it is.

        Ctrl-C (in a notebook: interrupt) ends the wait and leaves the study going on.

        Raises:
            RequestError: it failed, was cancelled, or (code `not-ready`) goes on after `timeout` seconds.
            EigenveilError: the coordinator cannot be reached any more.
        """
        until = None if timeout is None else time.monotonic() + timeout
        try:
            with watching(self) as display:
                for message in self.messages():
                    display.take(message)
                    if until is not None and time.monotonic() > until and not self._ended:
                        raise RequestError(
                            Code.NOT_READY, f"{self.name} ({self.short}) goes on after {timeout:g} seconds"
                        )
        except KeyboardInterrupt as asked:
            asked.add_note(f"the study goes on: wait again, or cancel() it; it is {self.short}")
            print(f"Stopped waiting; the study goes on: it is {self.short}.")
            raise
        self.check_released()

    def check_released(self) -> None:
        """Whether the last event that was seen says that it released.

        Raises:
            RequestError: it did not.
        """
        last = self._seen
        if last is not None and last.state == pb.STUDY_STATE_CANCELLED:
            raise RequestError(Code.CANCELLED, "the study was cancelled; what was charged stays charged")
        if last is None or last.state != pb.STUDY_STATE_RELEASED:
            failure = "" if last is None else last.failure
            raise RequestError(Code.STUDY_FAILED, failure or "the study failed")

    @property
    def _ended(self) -> bool:
        return self._seen is not None and self._seen.state != pb.STUDY_STATE_RUNNING

    @property
    def short(self) -> str:
        """What to type for it."""
        return self.digest[:SHORT]

    def cancel(self) -> None:
        """End it now. What was charged stays charged; the rest of its price is free again."""
        self._talk.ask(lambda analyst: analyst.cancel(self._plan))

    def fetch(self) -> bytes:
        """Its release.json, to the byte, once the federation is seen to have signed it.

        Raises:
            RequestError: code `not-ready`, it goes on; or why it has none; or it is not what was signed.
        """
        return self._talk.ask(lambda analyst: analyst.release(self._plan))

    @property
    def result(self) -> ReleasedResult:
        """What it released, as `eigenveil.load_release` reads it, under the federation's release key. Raises
        as `fetch`."""
        if self._release is None:
            self._release = load_release(self.fetch())
        return self._release

    def _rows(self) -> list[tuple[str, str]]:
        seen = self._seen
        rows = [("run", self.short)]
        if seen is None:
            if self._stood is None:
                return [*rows, ("state", "submitted; wait() for it")]
            stood = self._stood
            return [*rows, ("state", stood.waits or stood.state), *stood.consent.items()]
        rows.append(("state", state_word(seen.state)))
        if not self._ended:
            rows.append(("now", rounds_line(seen)))
        rows.append(("spent", f"{percent_up(seen.spent_micro_rho, max(seen.micro_rho, 1))} % of its price"))
        rows += site_words(seen.consent or seen.sites)
        return [*rows, ("why", seen.failure)] if seen.failure else rows

    def __repr__(self) -> str:
        return lines(f"run of {self.name}", self._rows(), note=" ".join(self.warnings))

    def _repr_html_(self) -> str:
        return card(f"Run of {self.name}", self._rows(), note=" ".join(self.warnings))


def run_of(talk: Talk, row: pb.StudyRow) -> Run:
    """The run of a row in the list of studies."""
    digest = row.plan_digest.hex()
    return Run(talk, digest, row.name, submission=row.submission, stood=status_of(row))


def status_of(row: pb.StudyRow) -> RunStatus:
    return RunStatus(
        state=state_word(row.state),
        rounds=row.rounds,
        spent=row.spent_micro_rho / max(row.micro_rho, 1),
        submitted=time_of(row.submitted_unix_ms),
        failure=row.failure,
        consent=dict(site_words(row.consent)),
        waits=consent_line(row) if row.consent else "",
    )
