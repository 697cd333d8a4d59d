"""A study at the coordinator: its status, events, progress and result."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.released import ReleasedResult, load_release
from eigenveil_client.analyst.coordinator import BlockingCoordinator
from eigenveil_client.analyst.display import (
    Display,
    RunState,
    awaited_line,
    consent_line,
    event_value,
    round_counts,
    rounds_line,
    share,
    site_statuses,
    state_name,
    time_of,
)
from eigenveil_client.analyst.python.plan import Summary
from eigenveil_common.command import console
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def watching(run: Run, progress: bool | None) -> AbstractContextManager[Display | _NotebookDisplay]:
    """Return a display of a run, as a context; `progress`: as `Run.wait`."""
    if in_notebook() and progress is not False:
        return nullcontext(_NotebookDisplay(run))
    return Display(console, f"{run.name} ({run.short})", progress=progress)


def in_notebook() -> bool:
    """Return True in the kernel of a notebook, without an import of IPython."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class _NotebookDisplay:
    """Summary of a run below a notebook's cell, updated at each event."""

    def __init__(self, run: Run) -> None:
        from IPython.display import display

        self._run = run
        self._handle: Any = display(run, display_id=True)  # type: ignore[no-untyped-call]

    def take(self, message: pb.StudyEvent | str | None) -> None:
        if isinstance(message, str):
            print(message)
        elif message is not None:
            self._handle.update(self._run)


SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunStatus:
    """Status of a run.

    `state`: running, awaiting approval, released, failed or cancelled. `rounds`: the number of completed
    rounds. `spent`: the spent share of its cost. `failure`: the reason of a failure.
    Before the first query, `consent` is each site's consent status, and `waits` what the run waits for.
    Its text is the state with `failure` or `waits`.
    Compared with a text it is its state: `run.status == "released"` is `run.status.state == "released"`."""

    state: RunState
    rounds: int
    spent: float
    submitted: datetime
    failure: str
    consent: Mapping[str, str]
    waits: str

    @property
    def ended(self) -> bool:
        return self.state in (RunState.RELEASED, RunState.FAILED, RunState.CANCELLED)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.state == other
        return isinstance(other, RunStatus) and asdict(self) == asdict(other)

    def __str__(self) -> str:
        more = self.failure or self.waits
        return f"{self.state}: {more}" if more else self.state


class Run(Summary):
    """A submitted study.

    `digest`: its id. `name`: its name. `submission`: the id of its submission. `warnings`: the coordinator's
    warnings at submission.

    Every method and property but these raises:
        EigenveilError: the coordinator's own error, or code `unreachable`."""

    _inner = ("messages", "check_released")

    def __init__(
        self, coordinator: BlockingCoordinator, digest: str, name: str, *,
        submission: str = "", warnings: tuple[str, ...] = (), initial_status: RunStatus | None = None,
    ) -> None:  # fmt: skip
        self._coordinator, self._initial_status = coordinator, initial_status
        self.digest, self.name = digest, name
        self.submission, self.warnings = submission, warnings
        self._seen: pb.StudyEvent | None = None
        self._release: ReleasedResult | None = None

    @property
    def _plan(self) -> bytes:
        return bytes.fromhex(self.digest)

    @property
    def status(self) -> RunStatus:
        """Its present status."""
        return status_of(self._coordinator.call(lambda analyst: analyst.find(self.digest)))

    def messages(self) -> Iterator[pb.StudyEvent | str | None]:
        """Yield its events up to its end, notices on the connection, and None while no event arrives."""
        sentences: list[str] = []
        for event in self._coordinator.each(lambda analyst: analyst.watch(self._plan, sentences.append)):
            while sentences:
                yield sentences.pop(0)
            self._seen = event or self._seen
            yield event

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield its events up to its end, as plain values."""
        for message in self.messages():
            if isinstance(message, pb.StudyEvent):
                yield event_value(message)

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> ReleasedResult:
        """Wait until it has released its result, and return that.

        At a terminal and in a notebook it shows a bar, the sites that are awaited and until when; elsewhere
        nothing, or with `progress=True` a line for each round. `progress=False` shows nothing anywhere.

        Ctrl-C (in a notebook: interrupt) ends the wait; the study continues.

        Raises:
            RequestError: it failed, was cancelled, or (code `not-ready`) is not released after `timeout`
            seconds.
            EigenveilError: the coordinator cannot be reached."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            with watching(self, progress) as display:
                for message in self.messages():
                    display.take(message)
                    if until is not None and time.monotonic() > until and not self._ended:
                        raise RequestError(
                            Code.NOT_READY, f"{self.name} ({self.short}) still runs after {timeout:g} seconds"
                        )
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"the study {self.short} continues: wait again, or cancel() it")
            print(f"Stopped waiting. The study {self.short} continues.")
            raise
        self.check_released()
        return self.result

    def check_released(self) -> None:
        """Raise an error if the last event is not a release. Raises RequestError: the study failed or was
        cancelled."""
        last = self._seen
        if last is not None and last.state == pb.STUDY_STATE_CANCELLED:
            raise RequestError(Code.CANCELLED, "the study was cancelled; its charges remain")
        if last is None or last.state != pb.STUDY_STATE_RELEASED:
            raise RequestError(Code.STUDY_FAILED, (last and last.failure) or "the study failed")

    @property
    def _ended(self) -> bool:
        return self._seen is not None and self._seen.state != pb.STUDY_STATE_RUNNING

    @property
    def short(self) -> str:
        """The start of its digest, for commands."""
        return self.digest[:SHORT]

    def cancel(self) -> None:
        """Cancel it now. Charges remain; the rest of its cost is available again."""
        self._coordinator.call(lambda analyst: analyst.cancel(self._plan))

    def fetch(self) -> bytes:
        """Return the bytes of its release.zip, after a check of the federation's signature. Raises
        RequestError: code `not-ready`, it still runs; or it has no release, or one with a bad signature."""
        return self._coordinator.call(lambda analyst: analyst.release(self._plan))

    @property
    def result(self) -> ReleasedResult:
        """Its result, as `eigenveil.load_release` returns it. Raises as `fetch`."""
        if self._release is None:
            self._release = load_release(self.fetch())
        return self._release

    @property
    def title(self) -> str:
        return f"run of {self.name}"

    @property
    def note(self) -> str:
        return "\n".join(self.warnings)

    def rows(self) -> list[tuple[str, str]]:
        seen, first = self._seen, self._initial_status
        rows = [("run", self.short)]
        if seen is None:
            state = "submitted; wait() for it" if first is None else str(first)
            return [*rows, ("state", state), *([] if first is None else first.consent.items())]
        now = [] if self._ended else [("now", rounds_line(seen))]
        now += [("awaited", awaited)] if (awaited := awaited_line(seen)) else []
        rows += [("state", state_name(seen.state)), *now, ("spent", f"{share(seen)} of its cost")]
        rows += site_statuses(seen.consent or seen.sites)
        return [*rows, ("why", seen.failure)] if seen.failure else rows

    @property
    def picture(self) -> str:
        """A bar of the rounds, as HTML."""
        if self._seen is None:
            return ""
        completed, most = round_counts(self._seen)
        return f'<progress value="{completed}" max="{most}" style="width:100%"></progress>'


def run_of(coordinator: BlockingCoordinator, row: pb.StudyRow) -> Run:
    """Return the run of a row in the list of studies."""
    digest = row.plan_digest.hex()
    return Run(coordinator, digest, row.name, submission=row.submission, initial_status=status_of(row))


def status_of(row: pb.StudyRow) -> RunStatus:
    return RunStatus(
        state=state_name(row.state),
        rounds=row.rounds,
        spent=row.spent_micro_rho / max(row.micro_rho, 1),
        submitted=time_of(row.submitted_unix_ms),
        failure=row.failure,
        consent=dict(site_statuses(row.consent)),
        waits=consent_line(row) if row.consent else "",
    )
