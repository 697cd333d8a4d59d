"""What `eigenveil-coordinator status` shows."""

from __future__ import annotations

from contextlib import closing
from statistics import median
from typing import Any

from eigenveil.accounting.budget import epsilons
from eigenveil.accounting.ledger import Ledger
from eigenveil.identity import spoken
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.study_reads import StoredStudy, Studies


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
            "budget": _budget(config, ledger.ledger),
            "studies": [_study(one, studies, ledger) for one in studies.all()],
            "identities": _identities(store, config),
        }


def _budget(config: Config, ledger: Ledger) -> dict[str, Any]:
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
    }


def _study(one: StoredStudy, studies: Studies, ledger: LedgerStore) -> dict[str, Any]:
    times = studies.round_ms(one.digest)
    return {
        "study": one.digest,
        "name": one.name,
        "analyst": one.analyst,
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
    return [
        {
            "role": one.role,
            "name": one.name,
            "certificate_expires": _time(one.expires_at),
            "denied": one.denied,
            "key_sha256": one.key,
        }
        for one in Registry(store, config.federation, unix_ms).enrolled()
    ]


def _time(milliseconds: int) -> str:
    return as_datetime(milliseconds).isoformat(timespec="seconds")


def text(found: dict[str, Any]) -> str:
    budget = found["budget"]
    lines = [
        f"Federation {found['federation']} at {found['coordinator']}",
        f"Release key {found['release_key']} (public: for eigenveil verify --key)",
        f"Budget     epsilon {budget['epsilon']:g} at delta {budget['delta']:g}, {_kind(budget)}:",
        (
            f"  {budget['spent_micro_rho']} of {budget['micro_rho']} spent ({_spent(budget)}), "
            f"{budget['reserved_micro_rho']} reserved, {budget['left_micro_rho']} left"
        ),
        studies_text(found),
    ]
    lines.append(f"Identities {len(found['identities'])}")
    lines += [
        f"  {i['role']}/{i['name']}  certificate until {i['certificate_expires']}"
        + ("  DENIED" if i["denied"] else "")
        + f"\n    key SHA-256  {spoken(i['key_sha256'], 17)}"
        for i in found["identities"]
    ]
    return "\n".join(lines)


def _kind(budget: dict[str, Any]) -> str:
    return "in micro-rho of Gaussian noise alone" if budget["exact"] else "in micro-rho, by zCDP"


def _spent(budget: dict[str, Any]) -> str:
    exactly = budget["spent_epsilon_gaussian"]
    also = "" if exactly is None else f"; {exactly:.4g} exactly, as all noise was Gaussian"
    return f"epsilon {budget['spent_epsilon']:.4g} by zCDP{also}"


def studies_text(found: dict[str, Any]) -> str:
    lines = [
        f"  {s['study'][:12]}  {s['state']:<9}  {s['name']}  by {s['analyst']}, {_rounds(s)}, "
        f"{s['spent_micro_rho']} of {s['micro_rho']} micro-rho  {s['failure']}".rstrip()
        for s in found["studies"]
    ]
    return "\n".join([f"Studies    {len(lines)}", *lines])


def _rounds(study: dict[str, Any]) -> str:
    time = study["round_ms_median"]
    return f"{study['rounds']} rounds" + ("" if time is None else f" of {time:g} ms (median)")
