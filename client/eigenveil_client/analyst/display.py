"""A running study for the eye: sites, rounds and budget; one line a change when nobody looks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eigenveil.accounting.digits import percent_up
from eigenveil.errors import Code, PeerError, spoken
from eigenveil.protocol.round import RoundState
from eigenveil.reporting.notebook import one_line
from eigenveil.reporting.questions import called
from eigenveil_common.command import errors
from eigenveil_proto.v1 import eigenveil_pb2 as pb

STATES = {
    pb.STUDY_STATE_RUNNING: "running",
    pb.STUDY_STATE_RELEASED: "released",
    pb.STUDY_STATE_FAILED: "failed",
    pb.STUDY_STATE_CANCELLED: "cancelled",
    pb.STUDY_STATE_AWAITING_APPROVAL: "awaiting approval",
}
MARKS = {
    "waiting": ("○", "yellow"),
    "waiting for approval": ("○", "yellow"),
    "waiting for a person": ("○", "yellow"),
    "not heard of": ("○", "yellow"),
    "ready": ("◐", "cyan"),
    "agreed": ("●", "green"),
    "answered": ("●", "green"),
    "absent": ("×", "red"),
}
ROUND_STATES = {RoundState.FIXED.value: "paid, and waits for the masked answers of its sites"}
WIDTH = 36


def state_word(state: int) -> str:
    """running, released, failed, cancelled or awaiting approval."""
    return STATES.get(state, "unknown")  # type: ignore[call-overload, no-any-return]


def time_of(milliseconds: int) -> datetime:
    """A time that the coordinator said, in Unix milliseconds.

    Raises:
        PeerError: code `protocol`: no calendar has it.
    """
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError) as problem:
        raise PeerError(
            Code.PROTOCOL, f"the coordinator said a time that is none: {milliseconds} ms"
        ) from problem


def moment(milliseconds: int) -> str:
    """A time to the minute. Raises as `time_of`."""
    return f"{time_of(milliseconds):%Y-%m-%d %H:%M} (UTC)"


def consent_line(message: pb.StudyEvent | pb.StudyRow) -> str:
    """What a study that has asked nothing yet waits for."""
    if message.consent_ends_unix_ms:
        return f"waits for every site to agree, until {moment(message.consent_ends_unix_ms)}"
    if message.starts_unix_ms:
        return f"every site has said its word; asks nothing before {moment(message.starts_unix_ms)}"
    return "every site has said its word"


def site_words(sites: Iterable[pb.SiteStatus]) -> list[tuple[str, str]]:
    """Each site and what is known of it, without what a terminal would obey: all of it is others' words."""
    return [
        (one_line(one.site), one_line(f'{one.status} ("{one.text}")' if one.text else one.status))
        for one in sites
    ]


def rounds_line(event: pb.StudyEvent) -> str:
    """Which round of about how many, and what it asks."""
    if event.state != pb.STUDY_STATE_RUNNING:
        return state_word(event.state)
    if event.consent:
        return consent_line(event)
    kind = f": {called(event.query_kind)}" if event.query_kind else ""
    tried = f", attempt {event.attempt}" if event.attempt else ""
    state = f", {ROUND_STATES.get(event.round_state, event.round_state)}" if event.round_state else ""
    return f"{spoken(event.round)} of {max(event.expected_rounds, event.round + 1)}{kind}{tried}{state}"


def panel(event: pb.StudyEvent, title: str) -> RenderableType:
    """The live picture of one event."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_column()
    done = event.state == pb.STUDY_STATE_RELEASED
    total = max(event.expected_rounds, event.round + 1)
    completed = total if done else event.round
    bar = ProgressBar(total=total, completed=completed, width=WIDTH, complete_style="cyan")
    grid.add_row("rounds", bar, rounds_line(event))
    spent = ProgressBar(
        total=max(event.micro_rho, 1), completed=event.spent_micro_rho, width=WIDTH, complete_style="magenta"
    )
    share = percent_up(event.spent_micro_rho, max(event.micro_rho, 1))
    grid.add_row("budget", spent, f"{share} % of this study's")
    sites = Text()
    for site, words in site_words(event.consent or event.sites):
        mark, style = MARKS.get(words.split(":")[0], ("×", "red"))
        sites.append(f"{mark} {site} ", style=style)
        sites.append(f"{words}   ", style="dim")
    return Group(Text(title, style="bold"), grid, sites)


def plain(event: pb.StudyEvent) -> str:
    """One line for a log."""
    sites = "; ".join(f"{site}: {words}" for site, words in site_words(event.consent)) or " ".join(
        f"{site}={words}" for site, words in site_words(event.sites)
    )
    share = percent_up(event.spent_micro_rho, max(event.micro_rho, 1))
    return f"{rounds_line(event)}; budget {share} %; {sites}".rstrip("; ")


class Display:
    """Shows events as they come: a live picture on a terminal, lines elsewhere, nothing if `quiet`."""

    def __init__(self, console: Console, title: str, *, quiet: bool = False) -> None:
        self._console = console
        self._title = title
        self._quiet = quiet
        self._last = ""
        self._live = (
            Live(console=console, refresh_per_second=8) if console.is_terminal and not quiet else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, sentence: str) -> None:
        """Say something about the connection: above the live picture, or else on standard error."""
        console = errors if self._live is None else self._console
        console.print(sentence, style="yellow", markup=False, soft_wrap=True)

    def take(self, message: pb.StudyEvent | str | None) -> None:
        """An event, a sentence about the connection, or nothing new."""
        if isinstance(message, str):
            self.tell(message)
        elif message is not None:
            self.show(message)

    def show(self, event: pb.StudyEvent) -> None:
        if self._live is not None:
            self._live.update(panel(event, self._title))
        elif not self._quiet:
            # One line for each state of a round; where a person is waited for, for each answer as well.
            waits = event.consent or any(site.status == "waiting for approval" for site in event.sites)
            state = plain(event) if waits else rounds_line(event)
            if state != self._last:
                self._console.print(plain(event), markup=False, soft_wrap=True)
            self._last = state
