"""Studies and explanations as text and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

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
        cost = sum(entry["micro_rho"] for entry in entries)
        times = "once" if len(entries) == 1 else f"{len(entries)} times"
        lines.append(f"  {kind}, {times}, {cost} micro-rho: {entries[0]['meaning']}")
    lines += [value["depends"]] if value["depends"] is not None else []
    lines += [f"warning: {sentence}" for sentence in value["warnings"]]
    return "\n".join(lines)
