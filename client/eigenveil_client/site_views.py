"""What the site's commands show: plain values for --json, tables for people."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from eigenveil.accounting import MICRO, Cost, epsilon_at
from eigenveil_client.site_config import SiteConfig
from eigenveil_client.site_service import Settled
from eigenveil_client.site_store import SiteStore
from eigenveil_common.command import console


def ledger(store: SiteStore, config: SiteConfig) -> dict[str, Any]:
    """The verified ledger and what it adds up to (it was replayed when the store opened)."""
    state = store.ledger.ledger
    committed = state.committed()
    left = Cost(micro_rho=state.budget.micro_rho - committed.micro_rho)
    return {
        "verified": True,
        "head": state.head,
        "delta": config.budget_delta,
        "budget": _amount(state.budget, config),
        "spent": _amount(state.spent, config),
        "reserved": {study: _amount(cost, config) for study, cost in state.reserved.items()},
        "left": _amount(left, config),
        "entries": [asdict(entry) | {"kind": entry.kind.value} for entry in store.ledger.entries()],
    }


def _amount(cost: Cost, config: SiteConfig) -> dict[str, Any]:
    return {
        "micro_rho": cost.micro_rho,
        "epsilon": round(epsilon_at(cost.micro_rho / MICRO, config.budget_delta), 4),
    }


def egress(store: SiteStore, round_number: int | None, prefix: str | None) -> dict[str, Any]:
    """The verified egress ledger, all of it or one round or study."""
    rows = [
        row
        for row in store.egress.rows()
        if round_number in (None, row.round) and row.study.startswith((prefix or "").lower())
    ]
    return {
        "verified": True,
        "messages": len(rows),
        "bytes": sum(row.bytes for row in rows),
        "rows": [asdict(row) for row in rows],
    }


def settled(done: Settled, config: SiteConfig) -> dict[str, Any]:
    """A study that the operator ended, and what that freed."""
    return {
        "study": done.study,
        "was": done.standing.value,
        "freed": _amount(done.freed, config),
        "delta": config.budget_delta,
    }


def settled_words(told: dict[str, Any]) -> str:
    """`settled` for a person."""
    freed = told["freed"]
    return (
        f"study {told['study'][:12]} is over here (it was {told['was']}); {freed['micro_rho']} micro-rho "
        f"are free again (epsilon {freed['epsilon']:g} at delta {told['delta']:g})"
    )


def show_ledger(told: dict[str, Any]) -> None:
    """Print the ledger."""
    table = _table("entry", "time (UTC)", "what", "study", "round", "micro-rho")
    for entry in told["entries"]:
        round_number = str(entry["round"]) if entry["kind"] == "charge" else ""
        table.add_row(
            str(entry["index"]), _time(entry["at"]), entry["kind"], entry["study"][:12],
            round_number, str(entry["micro_rho"]),
        )  # fmt: skip
    console.print(table)
    console.print("the chain is whole; head " + told["head"], markup=False)
    for name in ("budget", "spent", "left"):
        amount = told[name]
        console.print(
            f"{name:>8}: {amount['micro_rho']} micro-rho "
            f"(epsilon {amount['epsilon']:g} at delta {told['delta']:g})"
        )


def show_egress(told: dict[str, Any]) -> None:
    """Print the egress ledger."""
    table = _table("time (UTC)", "study", "round", "what", "bytes")
    for row in told["rows"]:
        place = (row["study"][:12], str(row["round"]))
        table.add_row(_time(row["at"]), *place, row["kind"], str(row["bytes"]))
    console.print(table)
    meanings = {(row["kind"], row["meaning"]) for row in told["rows"]}
    for kind, meaning in sorted(meanings):
        console.print(f"{kind}: {meaning}", markup=False)
    console.print(f"the chain is whole; {told['messages']} messages, {told['bytes']} bytes")


def show_explanation(told: dict[str, Any]) -> None:
    """Print what a plan asks, reveals and costs, and what this site's policy says."""
    console.print(f"{told['name']} ({told['algorithm']}), plan {told['plan_digest']}", markup=False)
    console.print(told["purpose"] or "(no purpose stated)", markup=False)
    columns = _table("column", "unit", "lower", "upper", title="Columns and their public bounds")
    for column in told["study"]["columns"]:
        bounds = (f"{column['lower']:g}", f"{column['upper']:g}")
        columns.add_row(*_plain(column["name"], column["unit"]), *bounds)
    console.print(columns)
    rounds = _table("round", "question", "bytes", "micro-rho", "what it reveals", title="Rounds")
    for row in told["rounds"]:
        rounds.add_row(
            str(row["round"]), row["kind"], str(row["bytes"]), str(row["micro_rho"]), row["meaning"]
        )
    console.print(rounds)
    console.print(f"in all: {told['bytes_per_site']} bytes and {told['micro_rho']} micro-rho")
    console.print(told["guarantee"]["words"], markup=False)
    policy = _table("rule", "verdict", "why", title="This site's policy")
    for verdict in told["policy"]:
        policy.add_row(verdict["rule"], "passes" if verdict["passed"] else "FAILS", *_plain(verdict["text"]))
    console.print(policy)
    for warning in told["warnings"]:
        console.print(f"warning: {warning}", markup=False)


def _table(*headings: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        numeric = heading in ("bytes", "micro-rho", "lower", "upper", "round", "entry")
        words = heading in ("what it reveals", "why")
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=not words)
    return table


def _plain(*texts: str) -> tuple[str, ...]:
    """What others wrote, shown as it is: brackets in it are no markup."""
    return tuple(map(escape, texts))


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
