"""Studies and explanations as text and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from eigenveil.accounting.digits import percent_up
from eigenveil.reporting.questions import sent_as
from eigenveil.study.study import Trust
from eigenveil_client.analyst.display import plain, site_words, state_word, time_of
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def row_value(row: pb.StudyRow) -> dict[str, Any]:
    return {
        "study": row.plan_digest.hex(),
        "name": row.name,
        "state": state_word(row.state),
        "analyst": row.analyst,
        "rounds": row.rounds,
        "micro_rho": row.micro_rho,
        "spent_micro_rho": row.spent_micro_rho,
        "submitted": _iso(row.submitted_unix_ms),
        "failure": row.failure,
    } | consent_value(row)


def consent_value(message: pb.StudyEvent | pb.StudyRow) -> dict[str, Any]:
    """What sites say of a study, and what it waits for; empty where nothing is said of that."""
    times = {"consent_ends": message.consent_ends_unix_ms, "starts": message.starts_unix_ms}
    return {"consent": dict(site_words(message.consent))} | {
        name: _iso(at) if at else "" for name, at in times.items()
    }


def row_lines(row: pb.StudyRow) -> str:
    """What is known of a study, for a person."""
    told = row_value(row)
    told |= {"spent": f"{share(row)} of its price", "rounds": f"{row.rounds} asked"}
    told["consent"] = "; ".join(f"{site}: {words}" for site, words in told["consent"].items())
    hidden = ("micro_rho", "spent_micro_rho")
    return "\n".join(f"{key}: {one}" for key, one in told.items() if one != "" and key not in hidden)


def share(row: pb.StudyRow) -> str:
    """How much of its price a study has spent."""
    return f"{percent_up(row.spent_micro_rho, max(row.micro_rho, 1))} %"


def event_value(event: pb.StudyEvent) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "state": state_word(event.state),
        "round": event.round,
        "attempt": event.attempt,
        "rounds": event.expected_rounds,
        "text": plain(event),
        "sites": {site.site: site.status for site in event.sites},
        "spent_micro_rho": event.spent_micro_rho,
        "micro_rho": event.micro_rho,
        "failure": event.failure,
    } | consent_value(event)


def _iso(milliseconds: int) -> str:
    return time_of(milliseconds).isoformat()


def asked_text(asked: Mapping[str, Any], state: str) -> str:
    """Who is asked about a study that was just submitted (`FederationView.asked`), and how long at most."""
    if state == state_word(pb.STUDY_STATE_AWAITING_APPROVAL):
        people = f"a person at {', '.join(asked['sites'])}" if asked["sites"] else "no person at a site"
        first = "The coordinator's operator has to approve it first."
        return f"{first} Then {people} is asked, and time runs from then."
    if not asked["sites"]:
        return "No site states that a person decides: it begins once every one has agreed."
    until = f"{datetime.now(UTC) + timedelta(seconds=asked['approval_seconds']):%Y-%m-%d %H:%M} (UTC)"
    minutes = f"{asked['start_seconds'] / 60:g} minutes"
    return (
        f"A person decides at {', '.join(asked['sites'])}, and has until {until}. It begins {minutes} after "
        "the last one agreed; nothing is asked before."
    )


def explanation_text(value: Mapping[str, Any]) -> str:
    """An explanation (`eigenveil.reporting.explain.explain`) for a person."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for entry in value["rounds"]:
        kinds.setdefault(entry["kind"], []).append(entry)
    size = f"{len(value['rounds'])} rounds, {value['bytes_per_site']} bytes from each site"
    masked = value["study"]["privacy"]["trust"] == Trust.SECURE_AGGREGATION.value
    lines = [
        f"{value['name']}: {value['purpose']}" if value["purpose"] else value["name"],
        f"{value['components']} components by {value['algorithm']}, {size}",
        value["guarantee"]["words"],
        f"Trust: {value['trust']}.",
        "Nothing is signed yet: you sign it, with your own key, when you submit it.",
        "",
        "What each site is asked:",
    ]
    for kind, entries in kinds.items():
        share = percent_up(sum(entry["micro_rho"] for entry in entries), value["micro_rho"])
        times = "once" if len(entries) == 1 else f"{len(entries)} times"
        lines.append(
            f"  {sent_as(kind, masked=masked)}, {times}, {share} % of the price: {entries[0]['meaning']}"
        )
    lines += [value["depends"]] if value["depends"] is not None else []
    lines += [f"warning: {sentence}" for sentence in value["warnings"]]
    return "\n".join(lines)
