"""What a person is shown of both ledgers, of what left and of its numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from eigenveil.accounting.digits import percent_up
from eigenveil.accounting.ledger import EntryKind
from eigenveil.errors import spoken
from eigenveil.queries import centre_of
from eigenveil.queries.describe import grid
from eigenveil.reporting.questions import sent_as
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.recompute import Numbers
from eigenveil_client.site.commands.tables import moment, plain, show, table
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.egress import Row
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.command import console

MOST_SHOWN = 200


def ledger(store: SiteStore, config: SiteConfig) -> dict[str, Any]:
    """The verified ledger and what it adds up to (it was replayed when the store opened)."""
    state = store.ledger.ledger
    left = max(0, state.limit.micro_rho - state.committed().micro_rho)
    reserved = {
        study: consent.amount(cost.micro_rho, config, state.gaussian)
        for study, cost in state.reserved.items()
    }
    return {
        "verified": True,
        "head": state.head,
        "delta": config.policy.budget_delta,
        "budget": consent.amount(state.limit.micro_rho, config, state.exact),
        "spent": consent.amount(state.spent.micro_rho, config, state.gaussian),
        "reserved": reserved,
        "left": consent.amount(left, config, state.exact, of=state.limit.micro_rho),
        "entries": [asdict(entry) | {"kind": entry.kind.value} for entry in store.ledger.entries()],
    }


def show_ledger(told: dict[str, Any]) -> None:
    listed = table("entry", "time (UTC)", "what", "study", "round", "% of the budget")
    for entry in told["entries"]:
        share = percent_up(entry["micro_rho"], told["budget"]["micro_rho"], 4)
        round_number = str(entry["round"] + 1) if EntryKind(entry["kind"]).spends else ""
        listed.add_row(
            str(entry["index"]), moment(entry["at"]), entry["kind"], entry["study"][:12],
            round_number, share if entry["micro_rho"] else "",
        )  # fmt: skip
    show(listed)
    console.print("the chain is whole; head " + told["head"], markup=False)
    for name in ("budget", "spent", "left"):
        console.print(f"{name:>8}: {consent.amount_words(told[name], told['delta'])}")


def egress(rows: list[Row], counts: list[dict[str, Any]], head: str) -> dict[str, Any]:
    """What left, row by row; and the protocol's calls by day."""
    return {
        "verified": True,
        "head": head,
        "messages": len(rows),
        "bytes": sum(row.bytes for row in rows),
        "rows": [asdict(row) for row in rows],
        "calls": counts,
    }


def show_egress(told: dict[str, Any]) -> None:
    listed = table("row", "time (UTC)", "study", "round", "what", "bytes", "keyed digest of what was sent")
    for row in told["rows"]:
        listed.add_row(
            str(row["index"]), moment(row["at"]), row["study"][:12], str(row["round"] + 1),
            sent_as(row["kind"], masked=bool(row["attempt"])), str(row["bytes"]), row["contribution"][:16],
        )  # fmt: skip
    show(listed)
    said = {(row["kind"], bool(row["attempt"]), row["meaning"]) for row in told["rows"]}
    for kind, masked, meaning in sorted(said):
        console.print(f"{sent_as(kind, masked=masked)}: {meaning}", markup=False)
    if any(masked for _, masked, _ in said):
        console.print("the sites that each masked answer was for: eigenveil-site ledger rounds --study STUDY")
    console.print(f"the chain is whole; {told['messages']} messages, {told['bytes']} bytes of numbers")
    if told["calls"]:
        calls = table("day (UTC)", "call", "messages", "bytes", title="Every call, by day")
        for count in told["calls"]:
            calls.add_row(count["day"], count["kind"], str(count["messages"]), str(count["bytes"]))
        show(calls)


def decoded(numbers: Numbers) -> dict[str, Any]:
    """One row's question and its numbers, each with what it stands for and what its unit is: plain values."""
    query, study, values = numbers.query.query, numbers.study, numbers.values.tolist()
    described, frame = query.describe(study), numbers.query.frame
    named = zip(described.labels, values, strict=True)
    told = [{"is": label, "value": value} for label, value in named]
    factors = described.factors if frame is None else ()  # they are those of the bounds' own grid
    for number, factor, name in zip(told, factors, described.names, strict=False):
        number |= {"in_units": number["value"] * factor, "unit": name}
    return {
        "row": numbers.row.index,
        "study": numbers.row.study,
        "round": numbers.row.round,
        "kind": numbers.row.kind,
        "meaning": numbers.row.meaning,
        "question": numbers.row.query,
        "digest": numbers.row.contribution,
        "one_unit": described.unit,
        "grid": grid(study, centre_of(query), described.radius, None if frame is None else frame.grid),
        "numbers": told,
    }


def show_decoded(told: dict[str, Any]) -> None:
    """Print `decoded`, at most MOST_SHOWN numbers (--json shows all)."""
    console.print(f"row {told['row']}, {spoken(told['round'])}: {told['meaning']}", markup=False)
    console.print(f"a value of 1 is {told['one_unit']}", markup=False)
    if told["kind"] != "count":
        _show_grid(told["grid"])
    in_units = "in_units" in told["numbers"][0]
    listed = table("numbers", "value", *(["in the study's units, after clipping"] if in_units else []))
    for number in told["numbers"][:MOST_SHOWN]:
        meant = [f"{number['in_units']:.6g} {number['unit']}"] if in_units else []
        listed.add_row(*plain(number["is"]), str(number["value"]), *plain(*meant))
    show(listed)
    more = len(told["numbers"]) - MOST_SHOWN
    if more > 0:
        console.print(f"and {more} more; --json shows them all")
    console.print("computed again from the records; their keyed digest is that of what was sent")


def _show_grid(told: dict[str, Any]) -> None:
    console.print(f"grid: {told['words']}", markup=False)
    if told["radius"] is not None:
        console.print(
            f"radius: {told['radius']} grid steps; a record farther from the centre is shortened to that"
        )
    listed = table("column", "one grid step", "centre")
    for column in told["columns"][:MOST_SHOWN]:
        centre = "" if column["centre"] is None else f"{column['centre']:.6g} {column['unit']}"
        listed.add_row(*plain(column["column"], f"{column['step']:.6g} {column['unit']}", centre))
    show(listed)
