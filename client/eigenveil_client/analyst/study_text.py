"""Studies and explanations as text and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eigenveil.reporting.questions import called
from eigenveil_client.analyst.display import plain, state_word
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
        "submitted": datetime.fromtimestamp(row.submitted_unix_ms / 1000, UTC).isoformat(),
        "failure": row.failure,
    }


def row_lines(row: pb.StudyRow) -> str:
    """What is known of a study, for a person."""
    told = row_value(row)
    told |= {"spent": f"{share(row)} of its price", "rounds": f"{row.rounds} released"}
    hidden = ("micro_rho", "spent_micro_rho")
    return "\n".join(f"{key}: {one}" for key, one in told.items() if one != "" and key not in hidden)


def share(row: pb.StudyRow) -> str:
    """How much of its price a study has spent."""
    return f"{100 * row.spent_micro_rho / max(row.micro_rho, 1):.0f} %"


def event_value(event: pb.StudyEvent) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "state": state_word(event.state),
        "round": event.round,
        "rounds": event.expected_rounds,
        "text": plain(event),
        "sites": {site.site: site.status for site in event.sites},
        "spent_micro_rho": event.spent_micro_rho,
        "micro_rho": event.micro_rho,
        "failure": event.failure,
    }


def explanation_text(value: Mapping[str, Any]) -> str:
    """An explanation (`eigenveil.reporting.explain.explain`) for a person."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for entry in value["rounds"]:
        kinds.setdefault(entry["kind"], []).append(entry)
    size = f"{len(value['rounds'])} rounds, {value['bytes_per_site']} bytes from each site"
    lines = [
        f"{value['name']}: {value['purpose']}" if value["purpose"] else value["name"],
        f"{value['components']} components by {value['algorithm']}, {size}",
        value["guarantee"]["words"],
        "",
        "What each site is asked:",
    ]
    for kind, entries in kinds.items():
        share = 100 * sum(entry["micro_rho"] for entry in entries) / value["micro_rho"]
        times = "once" if len(entries) == 1 else f"{len(entries)} times"
        lines.append(f"  {called(kind)}, {times}, {share:.0f} % of the price: {entries[0]['meaning']}")
    lines += [value["depends"]] if value["depends"] is not None else []
    lines += [f"warning: {sentence}" for sentence in value["warnings"]]
    return "\n".join(lines)
