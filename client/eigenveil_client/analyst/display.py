"""Display of studies: a live view of a running one, and studies and explanations as text and plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from eigenveil.accounting.formatting import percent_up
from eigenveil.errors import Code, PeerError, round_label
from eigenveil.protocol.rounds import RoundState
from eigenveil.reporting.presentation import kind_label, one_line, sent_kind_label
from eigenveil.study.study import Trust
from eigenveil_common.command import errors
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class RunState(StrEnum):
    """State of a study at its coordinator."""

    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting approval"
    RELEASED = "released"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


STATES = {
    pb.STUDY_STATE_RUNNING: RunState.RUNNING,
    pb.STUDY_STATE_RELEASED: RunState.RELEASED,
    pb.STUDY_STATE_FAILED: RunState.FAILED,
    pb.STUDY_STATE_CANCELLED: RunState.CANCELLED,
    pb.STUDY_STATE_AWAITING_APPROVAL: RunState.AWAITING_APPROVAL,
}
LOADING = "loading its records"
AWAITED = ("waiting", "waiting for approval", "waiting for a person", "no answer yet", LOADING)
ROUND_STATES = {RoundState.FIXED.value: "charged, and waits for the masked answers of its sites"}


WIDTH = 36  # of the bar


def state_name(state: int) -> RunState:
    """Return the state of a study."""
    return STATES.get(state, RunState.UNKNOWN)  # type: ignore[call-overload, no-any-return]


def time_of(milliseconds: int) -> datetime:
    """Return a time that the coordinator sent, in Unix milliseconds. Raises PeerError: code `protocol`, it is
    not a valid time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError) as problem:
        why = f"the coordinator sent an invalid time: {milliseconds} ms"
        raise PeerError(Code.PROTOCOL, why) from problem


def consent_line(message: pb.StudyEvent | pb.StudyRow) -> str:
    """Return the consent status of a study before its first query."""
    if message.consent_ends_unix_ms:
        ends = time_of(message.consent_ends_unix_ms)
        return f"waits for every site to agree, until {ends:%Y-%m-%d %H:%M} (UTC)"
    starts = message.starts_unix_ms
    after = f"; starts after {time_of(starts):%Y-%m-%d %H:%M} (UTC)" if starts else ""
    if any(one.status == LOADING for one in message.consent):
        return "every site has decided; sites load their records"
    return f"every site has decided{after}"


def site_statuses(sites: Iterable[pb.SiteStatus]) -> list[tuple[str, str]]:
    """Return each site and its status, without control characters, as other parties wrote them."""
    stated = [(one, f'"{one.text}"' if one.text else one.rule) for one in sites]
    return [
        (one_line(one.site), one_line(f"{one.status} ({more})" if more else one.status))
        for one, more in stated
    ]


def awaited_line(event: pb.StudyEvent) -> str:
    """Return the sites that a study waits for, and until when; empty if it waits for none."""
    statuses = site_statuses(event.consent or event.sites)
    names = [site for site, status in statuses if status.split(" (")[0] in AWAITED]
    ends = event.consent_ends_unix_ms if event.consent else event.round_ends_unix_ms
    until = f" until {time_of(ends):%Y-%m-%d %H:%M} (UTC)" if ends else ""
    running = event.state == pb.STUDY_STATE_RUNNING
    return f"waits for {', '.join(names)}{until}" if names and running else ""


def rounds_line(event: pb.StudyEvent) -> str:
    """Return the round, the largest number of rounds, and the kind of query."""
    if event.state != pb.STUDY_STATE_RUNNING:
        return state_name(event.state)
    if event.consent:
        return consent_line(event)
    kind = f": {kind_label(event.query_kind)}" if event.query_kind else ""
    tried = f", attempt {event.attempt}" if event.attempt else ""
    state = f", {ROUND_STATES.get(event.round_state, event.round_state)}" if event.round_state else ""
    # A coordinator of version 1.0 states the expected rounds, which a run may exceed.
    most = f" of at most {event.expected_rounds}" if event.round < event.expected_rounds else ""
    return f"{round_label(event.round)}{most}{kind}{tried}{state}"


def round_counts(event: pb.StudyEvent) -> tuple[int, int]:
    """Return the completed rounds and the largest number of rounds, for a bar."""
    most = max(event.expected_rounds, event.round + 1)
    return (most if event.state == pb.STUDY_STATE_RELEASED else event.round), most


def event_text(event: pb.StudyEvent) -> str:
    """Return an event as one line for a log."""
    sites = "; ".join(f"{site}: {status}" for site, status in site_statuses(event.consent)) or " ".join(
        f"{site}={status}" for site, status in site_statuses(event.sites)
    )
    return f"{rounds_line(event)}; budget {share(event)}; {sites}".rstrip("; ")


class Display:
    """Display of events as they arrive: a bar on a terminal, and nothing elsewhere. With `progress` a line
    for each round and decision elsewhere; nothing at all if it is False."""

    def __init__(self, console: Console, title: str, *, progress: bool | None = None) -> None:
        self._console = console
        self._last: tuple[object, ...] = ()
        self._prints = bool(progress) and not console.is_terminal
        self._bar: Progress | None = None
        if console.is_terminal and progress is not False:
            texts = (TextColumn("{task.description}", markup=False), BarColumn(WIDTH))
            self._bar = Progress(*texts, TextColumn("{task.fields[now]}", markup=False), console=console)
            self._task = self._bar.add_task(one_line(title), total=None, visible=False, now="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def take(self, message: pb.StudyEvent | str | None) -> None:
        """Show an event, or a notice on the connection, above the bar or on standard error."""
        if isinstance(message, str):
            console = errors if self._bar is None else self._console
            console.print(message, style="yellow", markup=False, soft_wrap=True)
        elif message is not None and self._bar is not None:
            completed, most = round_counts(message)
            now = "; ".join(filter(None, [rounds_line(message), awaited_line(message)]))
            self._bar.update(self._task, completed=completed, total=most, visible=True, now=now)
        elif message is not None and self._prints:
            consent = event_text(message) if message.consent else ""
            seen = message.state, message.round, message.attempt, consent
            if seen != self._last:
                self._console.print(event_text(message), markup=False, soft_wrap=True)
            self._last = seen


def row_value(row: pb.StudyRow) -> dict[str, Any]:
    return {
        "study": row.plan_digest.hex(),
        "name": row.name,
        "state": state_name(row.state),
        "analyst": row.analyst,
        "rounds": row.rounds,
        "micro_rho": row.micro_rho,
        "spent_micro_rho": row.spent_micro_rho,
        "submitted": time_of(row.submitted_unix_ms).isoformat(),
        "failure": row.failure,
    } | consent_value(row)


def consent_value(message: pb.StudyEvent | pb.StudyRow) -> dict[str, Any]:
    """Return the consent status of each site, and the times that a study waits for; empty if none."""
    times = {"consent_ends": message.consent_ends_unix_ms, "starts": message.starts_unix_ms}
    return {"consent": dict(site_statuses(message.consent))} | {
        name: time_of(at).isoformat() if at else "" for name, at in times.items()
    }


def row_lines(row: pb.StudyRow) -> str:
    """Return the status of a study as text."""
    value = row_value(row)
    value |= {"spent": f"{share(row)} of its cost", "rounds": f"{row.rounds} started"}
    value["consent"] = "; ".join(f"{site}: {status}" for site, status in value["consent"].items())
    hidden = ("micro_rho", "spent_micro_rho")
    return "\n".join(f"{key}: {one}" for key, one in value.items() if one != "" and key not in hidden)


def share(row: pb.StudyRow | pb.StudyEvent) -> str:
    """Return the spent share of a study's cost."""
    return f"{percent_up(row.spent_micro_rho, max(row.micro_rho, 1))} %"


def event_value(event: pb.StudyEvent) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "state": state_name(event.state),
        "round": event.round,
        "attempt": event.attempt,
        "rounds": event.expected_rounds,
        "text": event_text(event),
        "sites": {site.site: site.status for site in event.sites},
        "spent_micro_rho": event.spent_micro_rho,
        "micro_rho": event.micro_rho,
        "failure": event.failure,
    } | consent_value(event)


def approval_text(approval: Mapping[str, Any], state: str) -> str:
    """Return who decides on a submitted study (`FederationView.asked`), and the time limit, as text."""
    if state == RunState.AWAITING_APPROVAL:
        people = f"a person at {', '.join(approval['sites'])}" if approval["sites"] else "no person at a site"
        first = "The coordinator's operator has to approve it first."
        return f"{first} Then {people} decides, within the time limit."
    if not approval["sites"]:
        return "No site states that a person decides. The study starts once every site has agreed."
    until = datetime.now(UTC) + timedelta(seconds=approval["approval_seconds"])
    people = ", ".join(approval["sites"])
    return (
        f"A person decides at {people}, and has until {until:%Y-%m-%d %H:%M} (UTC). The study starts "
        f"{approval['start_seconds'] / 60:g} minutes after the last one agreed."
    )


def _readiness_line(one: Mapping[str, Any]) -> str:
    """Return the readiness of a site (`SiteReadiness.to_dict`) as one line."""
    return one_line(f"  {one['site']}: columns: {one['columns_text']}; settings: {one['settings_text']}")


def explanation_text(value: Mapping[str, Any]) -> str:
    """Return an explanation (`eigenveil.reporting.explain.explain`) as text."""
    kinds = defaultdict[str, list[Mapping[str, Any]]](list)
    for entry in value["rounds"]:
        kinds[entry["kind"]].append(entry)
    size = f"at most {len(value['rounds'])} rounds, {value['bytes_per_site']} bytes from each site"
    masked = value["study"]["privacy"]["trust"] == Trust.SECURE_AGGREGATION.value
    lines = [
        f"{value['name']}: {value['purpose']}" if value["purpose"] else value["name"],
        *(f"{label}: {text}" for label, text in value["applicant"].items()),
        *([f"People decide until the end of {value['decide_by']} (UTC)."] if value["decide_by"] else []),
        f"{value['components']} components by {value['algorithm']}, {size}",
        value["guarantee"]["text"],
        f"Trust: {value['trust']}.",
        "Nothing is signed yet. You sign the study with your own key when you submit it.",
        "",
        "Queries to each site:",
    ]
    for kind, entries in kinds.items():
        share = percent_up(sum(entry["micro_rho"] for entry in entries), value["micro_rho"])
        label = sent_kind_label(kind, masked=masked)
        times = "once" if len(entries) == 1 else f"{len(entries)} times"
        lines.append(f"  {label}, {times}, {share} % of the cost: {entries[0]['meaning']}")
    lines += [value["dependence"]] if value["dependence"] is not None else []
    if sites := value.get("readiness"):  # not of an earlier coordinator
        lines += ["", "Sites, by what they state:", *map(_readiness_line, sites)]
    lines += [f"warning: {sentence}" for sentence in value["warnings"]]
    return "\n".join(lines)
