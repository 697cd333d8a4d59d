"""What `eigenveil-coordinator status` shows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from statistics import median
from typing import Any

from eigenveil.accounting.budget import epsilon_of, epsilons
from eigenveil.accounting.ledger import Ledger
from eigenveil.analyst_signature.asked_by import signed_words
from eigenveil.identity import Role, spoken
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.presence import last_heard
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.signer import signer
from eigenveil_server.storage.study_reads import StoredStudy, Studies

SLACK_SECONDS = 15.0


def report(config: Config) -> dict[str, Any]:
    """The federation, its budget, studies and identities, as plain values; writes nothing.

    Raises:
        RequestError: there is no federation here, or its keys cannot be read.
        InternalError: code `storage`, also for a ledger whose chain is broken.
    """
    with closing(existing_store(config)) as store:
        ledger, studies = LedgerStore(store.reader, config.budget, unix_ms), Studies(store.reader)
        return {
            "federation": config.federation,
            "coordinator": f"{config.host}:{config.port}",
            "release_key": load_keys(config.files).release_public.hex(),
            "budget": _budget(config, ledger.ledger, studies.all()),
            "studies": [_study(one, studies, ledger) for one in studies.all()],
            "identities": _identities(store, config),
        }


def _budget(config: Config, ledger: Ledger, studies: Sequence[StoredStudy]) -> dict[str, Any]:
    like = studies[-1] if studies else None
    budget, spent, committed = ledger.limit.micro_rho, ledger.spent.micro_rho, ledger.committed().micro_rho
    by_zcdp, exactly = epsilons(spent, config.budget_delta, gaussian_only=ledger.gaussian)
    return {
        "epsilon": config.budget_epsilon,
        "delta": config.budget_delta,
        "micro_rho": budget,
        "spent_micro_rho": spent,
        "reserved_micro_rho": committed - spent,
        "left_micro_rho": budget - committed,
        "exact": ledger.exact,
        "spent_epsilon": by_zcdp,
        "spent_epsilon_gaussian": exactly,
        "left_epsilon": epsilon_of(budget - committed, config.budget_delta, gaussian_only=ledger.exact),
        "studies_left": None if like is None else {like.name: max(0, budget - committed) // like.micro_rho},
    }


def _study(one: StoredStudy, studies: Studies, ledger: LedgerStore) -> dict[str, Any]:
    times = studies.round_ms(one.digest)
    return {
        "study": one.digest,
        "name": one.name,
        "analyst": one.analyst,
        "signed": signed_words(signer(one)),
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
    ]
    lines.append(f"Identities {len(found['identities'])}")
    lines += [
        f"  {i['role']}/{i['name']}{_seen(i)}  certificate until {i['certificate_expires']}"
        + ("  DENIED" if i["denied"] else "")
        + f"\n    key SHA-256  {spoken(i['key_sha256'], 17)}"
        for i in found["identities"]
    ]
    return "\n".join(lines)


def _budget_text(budget: dict[str, Any]) -> str:
    aside = 100 * budget["reserved_micro_rho"] / budget["micro_rho"]
    return (
        f"Budget     epsilon {budget['epsilon']:g}, but for {budget['delta']:g}{_kind(budget)}\n"
        f"  left: epsilon {budget['left_epsilon']:.4g}{_like(budget)}; spent: epsilon {_spent(budget):.4g}; "
        f"set aside for studies under way: {aside:.0f} % of it"
    )


def _seen(identity: dict[str, Any]) -> str:
    if "online" not in identity:
        return ""
    last = identity["last_heard"]
    return "  online" if identity["online"] else f"  last heard {last}" if last else "  not heard yet"


def _kind(budget: dict[str, Any]) -> str:
    return "; all its noise is Gaussian" if budget["exact"] else ""


def _spent(budget: dict[str, Any]) -> float:
    exactly = budget["spent_epsilon_gaussian"]
    by_zcdp: float = budget["spent_epsilon"] if budget["spent_micro_rho"] else 0.0
    return by_zcdp if exactly is None else float(exactly)


def _like(budget: dict[str, Any]) -> str:
    """How many more studies like the latest one fit."""
    if not budget["studies_left"]:
        return ""
    ((name, more),) = budget["studies_left"].items()
    return f", {more} {'study' if more == 1 else 'studies'} like {name}"


def studies_text(found: dict[str, Any]) -> str:
    lines = [
        f"  {s['study'][:12]}  {s['state']:<9}  {s['name']}  by {s['analyst']}, {s['signed']}; {_rounds(s)}, "
        f"{100 * s['spent_micro_rho'] / s['micro_rho']:.0f} % of its price spent  {s['failure']}".rstrip()
        for s in found["studies"]
    ]
    return "\n".join([f"Studies    {len(lines)}", *lines])


def _rounds(study: dict[str, Any]) -> str:
    time = study["round_ms_median"]
    return f"{study['rounds']} rounds" + ("" if time is None else f" of {time:g} ms (median)")
