"""What `eigenveil-coordinator status` shows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from statistics import median
from typing import Any

from eigenveil.accounting.budget import Conversion, epsilons
from eigenveil.accounting.digits import percent_up
from eigenveil.accounting.ledger import Ledger
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.analyst_signature.asked_by import signature_statement
from eigenveil.identity import Role, spoken
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.presence import last_heard
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.study_lists import ListedStudy, StudyLists
from eigenveil_server.storage.study_reads import Studies
from eigenveil_server.storage.submissions import MIB, submitted

SLACK_SECONDS = 15.0
ALL = 2**31


def report(config: Config) -> dict[str, Any]:
    """The federation, its budget, studies and identities, as plain values; writes nothing.

    Raises:
        RequestError: there is no federation here, or its keys cannot be read.
        InternalError: code `storage`, also for a ledger whose chain is broken.
    """
    with closing(existing_store(config)) as store:
        ledger, studies = LedgerStore(store.reader, config.budget, unix_ms), Studies(store.reader)
        listed, told = StudyLists(store.reader).behind("", ALL), submitted(store.reader, unix_ms())
        return {
            "federation": config.federation,
            "coordinator": f"{config.host}:{config.port}",
            "release_key": load_keys(config.files).release_public.hex(),
            "budget": _budget(config, ledger.ledger, listed),
            "studies": [_study(one, studies, ledger) for one in listed],
            "submitted": [asdict(one) for one in told],
            "identities": _identities(store, config),
        }


def _budget(config: Config, ledger: Ledger, studies: Sequence[ListedStudy]) -> dict[str, Any]:
    like = studies[-1] if studies else None
    budget, spent, committed = ledger.limit.micro_rho, ledger.spent.micro_rho, ledger.committed().micro_rho
    by_zcdp, exactly = epsilons(spent, config.budget_delta, gaussian_only=ledger.gaussian)
    told = Conversion(delta=config.budget_delta, exact=ledger.exact)
    was = Conversion(delta=config.budget_delta, exact=ledger.gaussian)
    return {
        "epsilon": config.budget_epsilon,
        "delta": config.budget_delta,
        "but_for": told.but_for(ledger.limit),
        "micro_rho": budget,
        "spent_micro_rho": spent,
        "reserved_micro_rho": committed - spent,
        "left_micro_rho": budget - committed,
        "exact": ledger.exact,
        "spent_epsilon": by_zcdp,
        "spent_epsilon_gaussian": exactly,
        "left_epsilon": told.epsilon(budget - committed),
        "neighbours": Neighbours.ADD_REMOVE.value,
        "epsilon_replace_one": told.replaced(budget),
        "spent_epsilon_replace_one": was.replaced(spent),
        "left_epsilon_replace_one": told.replaced(budget - committed),
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
        "submitted": _time(one.submitted_at),
    }


def _identities(store: Store, config: Config) -> list[dict[str, Any]]:
    heard, now = last_heard(config.files.presence), unix_ms()
    recent = now - 1000 * (2 * config.long_poll_seconds + SLACK_SECONDS)
    return [
        {
            "role": one.role,
            "name": one.name,
            "certificate_expires": _time(one.expires_at),
            "denied": one.denied,
            "key_sha256": one.key,
        }
        | ({} if one.role != Role.SITE.value else _presence(heard.get(one.name), recent))
        for one in Registry(store, config.federation, unix_ms).enrolled()
    ]


def _presence(heard: int | None, recent: float) -> dict[str, Any]:
    """`online`: it asked for work within two long-polls; one that is busy with an answer may not have."""
    return {"online": (heard or 0) >= recent, "last_heard": None if heard is None else _time(heard)}


def _time(milliseconds: int) -> str:
    return as_datetime(milliseconds).isoformat(timespec="seconds")


def text(found: dict[str, Any]) -> str:
    budget = found["budget"]
    lines = [
        f"Federation {found['federation']} at {found['coordinator']}",
        f"Release key {found['release_key']} (public: for eigenveil verify --key)",
        _budget_text(budget),
        studies_text(found),
        f"Submitted  by {len(found['submitted'])} analysts",
    ]
    lines += [_submitted_text(one) for one in found["submitted"]]
    lines.append(f"Identities {len(found['identities'])}")
    lines += [
        f"  {i['role']}/{i['name']}{_seen(i)}  certificate until {i['certificate_expires']}"
        + ("  DENIED" if i["denied"] else "")
        + f"\n    key SHA-256  {spoken(i['key_sha256'], 17)}"
        for i in found["identities"]
    ]
    return "\n".join(lines)


def _submitted_text(one: dict[str, Any]) -> str:
    mib = {name: f"{one[name] / MIB:.1f} MiB" for name in ("bytes_today", "bytes", "unrun")}
    return (
        f"  {one['analyst']}  {one['studies_today']} studies of {mib['bytes_today']} in the last 24 hours; "
        f"{mib['bytes']} stored in all, {mib['unrun']} of it of studies that never ran"
    )


def _budget_text(budget: dict[str, Any]) -> str:
    whole, delta = budget["micro_rho"], budget["delta"]
    told = Conversion(delta=delta, exact=budget["exact"])
    spent = Conversion(delta=delta, exact=budget["spent_epsilon_gaussian"] is not None)
    return (
        f"Budget     {told.spent(whole)}, but for {budget['but_for']}{_kind(budget)}\n"
        f"  left: {told.left(max(0, budget['left_micro_rho']), whole)}{_like(budget)}\n"
        f"  spent: {spent.spent(budget['spent_micro_rho'])}; "
        f"set aside for studies under way: {percent_up(budget['reserved_micro_rho'], whole)} % of it"
    )


def _seen(identity: dict[str, Any]) -> str:
    if "online" not in identity:
        return ""
    last = identity["last_heard"]
    return "  online" if identity["online"] else f"  last heard {last}" if last else "  not heard yet"


def _kind(budget: dict[str, Any]) -> str:
    return "; all its noise is Gaussian" if budget["exact"] else ""


def _like(budget: dict[str, Any]) -> str:
    """How many more studies like the latest one fit."""
    if not budget["studies_left"]:
        return ""
    ((name, more),) = budget["studies_left"].items()
    return f", {more} {'study' if more == 1 else 'studies'} like {name}"


def studies_text(found: dict[str, Any]) -> str:
    lines = [
        f"  {s['study'][:12]}  {s['state']:<9}  {s['name']}  by {s['analyst']}, {s['signed']}; {_rounds(s)}, "
        f"{percent_up(s['spent_micro_rho'], s['micro_rho'])} % of its price spent  {s['failure']}".rstrip()
        for s in found["studies"]
    ]
    return "\n".join([f"Studies    {len(lines)}", *lines])


def _rounds(study: dict[str, Any]) -> str:
    time = study["round_ms_median"]
    return f"{study['rounds']} rounds" + ("" if time is None else f" of {time:g} ms (median)")
