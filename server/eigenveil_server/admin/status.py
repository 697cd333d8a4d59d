"""Status of a coordinator: budget, studies and identities."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from statistics import median
from typing import Any

from eigenveil.accounting.budget import Conversion, epsilons
from eigenveil.accounting.formatting import percent_up
from eigenveil.accounting.ledger import Ledger
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.identity import Role, grouped_digest
from eigenveil.study_authorization import signature_statement
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import time_text, unix_ms
from eigenveil_server.rpc.callers import last_call_times
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.storage.submissions import MIB, ListedStudy, StudyLists, analyst_usage

SLACK_SECONDS = 15.0
ALL = 2**31


def report(config: Config) -> dict[str, Any]:
    """Return federation, budget, studies and identities as plain values. Reads only. Raises RequestError:
    there is no federation here, or its keys cannot be read."""
    with closing(existing_store(config)) as store:
        ledger, studies = LedgerStore(store.reader, config.budget, unix_ms), Studies(store.reader)
        listed = StudyLists(store.reader).list_after("", ALL)
        return {
            "federation": config.federation,
            "coordinator": f"{config.host}:{config.port}",
            "release_key": load_keys(config.files).release_public.hex(),
            "budget": _budget(config, ledger.ledger, listed),
            "studies": [_study(one, studies, ledger) for one in listed],
            "submitted": [asdict(one) for one in analyst_usage(store.reader, unix_ms())],
            "identities": _identities(store, config),
        }


def _budget(config: Config, ledger: Ledger, studies: Sequence[ListedStudy]) -> dict[str, Any]:
    like = studies[-1] if studies else None
    budget, spent, committed = ledger.limit.micro_rho, ledger.spent.micro_rho, ledger.committed().micro_rho
    by_zcdp, exactly = epsilons(spent, config.budget_delta, gaussian_only=ledger.gaussian)
    conversion = Conversion(delta=config.budget_delta, exact=ledger.exact)
    was = Conversion(delta=config.budget_delta, exact=ledger.gaussian)
    return {
        "epsilon": config.budget_epsilon,
        "delta": config.budget_delta,
        "failure_probability": conversion.failure_probability(ledger.limit),
        "micro_rho": budget,
        "spent_micro_rho": spent,
        "reserved_micro_rho": committed - spent,
        "left_micro_rho": budget - committed,
        "exact": ledger.exact,
        "spent_epsilon": by_zcdp,
        "spent_epsilon_gaussian": exactly,
        "left_epsilon": conversion.epsilon(budget - committed),
        "neighbours": Neighbours.ADD_REMOVE.value,
        "epsilon_replace_one": conversion.replaced(budget),
        "spent_epsilon_replace_one": was.replaced(spent),
        "left_epsilon_replace_one": conversion.replaced(budget - committed),
        "studies_left": None if like is None else {like.name: max(0, budget - committed) // like.micro_rho},
    }


def _study(one: ListedStudy, studies: Studies, ledger: LedgerStore) -> dict[str, Any]:
    times = studies.round_ms(one.digest)
    return {
        "study": one.digest,
        "name": one.name,
        "analyst": one.analyst,
        "signed": signature_statement(one.signer),
        "state": one.state.value,
        "failure": one.failure,
        "micro_rho": one.micro_rho,
        "spent_micro_rho": ledger.spent(one.digest),
        "rounds": studies.rounds(one.digest),
        "round_ms": times,
        "round_ms_median": float(median(times)) if times else None,
        "submitted": time_text(one.submitted_at),
    }


def _identities(store: Store, config: Config) -> list[dict[str, Any]]:
    """Return the identities. A site is online after a poll within two long polls; one that is computing an
    answer may not have polled."""
    last_calls = last_call_times(config.files.presence)
    recent = unix_ms() - 1000 * (2 * config.long_poll_seconds + SLACK_SECONDS)
    found: list[dict[str, Any]] = []
    for one in Registry(store, config.federation, unix_ms).enrolled():
        found.append({
            "role": one.role,
            "name": one.name,
            "device": one.device,
            "certificate_expires": time_text(one.expires_at),
            "denied": one.denied,
            "key_sha256": one.key,
        })  # fmt: skip
        if one.role == Role.SITE.value:
            last = last_calls.get(one.name)
            last_call = None if last is None else time_text(last)
            found[-1] |= {"online": (last or 0) >= recent, "last_heard": last_call}
    return found


def text(found: dict[str, Any]) -> str:
    return "\n".join([
        f"Federation {found['federation']} at {found['coordinator']}",
        f"Release key {found['release_key']} (public: for eigenveil verify --key)",
        _budget_text(found["budget"]),
        studies_text(found),
        f"Submitted  by {len(found['submitted'])} analysts",
        *map(_submitted_text, found["submitted"]),
        f"Identities {len(found['identities'])}",
        *map(_identity_text, found["identities"]),
    ])  # fmt: skip


def _submitted_text(one: dict[str, Any]) -> str:
    mib = {name: f"{one[name] / MIB:.1f} MiB" for name in ("bytes_today", "bytes", "unstarted_bytes")}
    return (
        f"  {one['analyst']}  {one['studies_today']} studies of {mib['bytes_today']} in the last 24 hours; "
        f"{mib['bytes']} stored in all, {mib['unstarted_bytes']} of it of studies that never ran"
    )


def _budget_text(budget: dict[str, Any]) -> str:
    whole, delta = budget["micro_rho"], budget["delta"]
    conversion = Conversion(delta=delta, exact=budget["exact"])
    spent = Conversion(delta=delta, exact=budget["spent_epsilon_gaussian"] is not None)
    like = ""
    for name, more in (budget["studies_left"] or {}).items():
        like = f", {more} {'study' if more == 1 else 'studies'} like {name}"
    return (
        f"Budget     {conversion.spent(whole)}, except with probability {budget['failure_probability']}"
        + ("; all its noise is Gaussian\n" if budget["exact"] else "\n")
        + f"  left: {conversion.left(max(0, budget['left_micro_rho']), whole)}{like}\n"
        f"  spent: {spent.spent(budget['spent_micro_rho'])}; "
        f"set aside for studies under way: {percent_up(budget['reserved_micro_rho'], whole)} % of it"
    )


def _identity_text(one: dict[str, Any]) -> str:
    seen = ""
    if "online" in one:
        last = f"  last seen {one['last_heard']}" if one["last_heard"] else "  never seen"
        seen = "  online" if one["online"] else last
    who = f"{one['role']}/{one['name']}{_device_text(one)}"
    return (
        f"  {who}{seen}  certificate until {one['certificate_expires']}"
        + ("  DENIED" if one["denied"] else "")
        + f"\n    key SHA-256  {grouped_digest(one['key_sha256'], 17)}"
    )


def _device_text(one: dict[str, Any]) -> str:
    return f" on {one['device']}" if one["device"] else ""


def studies_text(found: dict[str, Any]) -> str:
    lines = [f"Studies    {len(found['studies'])}"]
    for s in found["studies"]:
        time = "" if s["round_ms_median"] is None else f" of {s['round_ms_median']:g} ms (median)"
        line = (
            f"  {s['study'][:12]}  {s['state']:<9}  {s['name']}  by {s['analyst']}, {s['signed']}; "
            f"{s['rounds']} rounds{time}, {percent_up(s['spent_micro_rho'], s['micro_rho'])} % of its cost "
            f"spent  {s['failure']}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)
