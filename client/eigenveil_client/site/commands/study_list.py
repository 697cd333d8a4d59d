"""Received studies of a site: those that its rules did not decline, and counts of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.accounting.formatting import shown
from eigenveil.errors import RequestError
from eigenveil.planning.choose import possible_rehearsals
from eigenveil.protocol.plan import Plan
from eigenveil_client.records.tables.source import Headers
from eigenveil_client.site.commands.consent import verdicts
from eigenveil_client.site.commands.record_checks import read_headers
from eigenveil_client.site.commands.terminal import moment, show_table
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.engine.progress import read_progress
from eigenveil_client.site.next_steps import decide_by_text
from eigenveil_client.site.roster.analysts import SIGNATURE_LABEL, SignatureStatus, analyst_view
from eigenveil_client.site.state.egress import DECLINE
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_client.site.state.store_access import is_served
from eigenveil_common.command import console, shell_command

COUNTED = {
    "declined": "Declined by the rules; only plans listed as proof are stored",
    "ended_unanswered": "Ended before anything left this site, for example because another site declined",
}


def studies(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """Return every received study that the rules did not decline, as plain values, oldest first.

    `loading` is the number of records loaded so far, while they are. `reason` lists the rules that prevent an
    approval, or the reason of the last refusal. `by`, `word` and `text` are of a person's decision, and
    confidential. `declined` counts the plans declined by rule, by day,
    analyst (empty: all others) and rule, and `ended_unanswered` those that ended before anything left.
    `proofs` are the declined plans stored whole."""
    refused = {row.study: row.meaning for row in store.egress.rows() if row.kind == DECLINE}
    rows, every = [], store.studies.all()
    pending = any(received.status is ConsentStatus.PENDING for received in every)
    headers = read_headers(config) if pending else None
    # Of a daemon that was killed, the file stays.
    loading = found if (found := read_progress(config.state)) and is_served(config.state) else {}
    for received in every:
        plan = received.read_plan()
        rows.append({
            "study": received.plan,
            "name": plan.study.name,
            "analyst": plan.analyst,
            "signature": analyst_view(config.identity, plan, received.signed,
            store.clock_time())["status"],
            "status": received.status.value,
            "loading": loading.get(received.plan),
            "person": received.person,
            "by": received.decided_by,
            "decided": received.decided_at,
            "reason_code": received.reason_code,
            "text": received.text,
            "reason": received.reason or refused.get(received.plan, "") or _blocking_rules(config, store,
            received, plan, headers),
            "at": received.at,
            "decide_by": decide_by_text(received, plan) if received.status is ConsentStatus.PENDING else "",
            "applicant": plan.study.applicant.stated,
            "epsilon": plan.study.epsilon,
            "micro_rho": plan.cost.micro_rho,
            "trust": plan.study.trust.value,
        })  # fmt: skip
    return {
        "studies": rows,
        "pending": sum(row["status"] == "pending" for row in rows),
        "declined": [dict(row) for row in store.declined.counts()],
        "ended_unanswered": [dict(row) for row in store.declined.unanswered_counts()],
        "proofs": [proof_row(one) for one in store.proofs.all()],
    }


def proof_row(proof: ReceivedPlan) -> dict[str, Any]:
    """Return a plan stored as proof as plain values, with the signed bytes."""
    signed = proof.signed  # as received: nothing of an invalid signature is parsed
    return {
        "study": proof.plan,
        "name": proof.name,
        "analyst": proof.analyst,
        "reason": proof.reason,
        "at": proof.at,
        "plan": proof.plan_json.decode(),
        "signature": proof.signature.hex(),
        "authorization": signed and {
            "signed_json": signed.signed_json.hex(),
            "signature": signed.signature.hex(),
            "key_card_json": signed.card.signed_json.hex(),
            "card_signature": signed.card.signature.hex(),
        },
    }  # fmt: skip


def _blocking_rules(
    config: SiteConfig,
    store: SiteStore,
    received: ReceivedPlan,
    plan: Plan,
    headers: Headers | RequestError | None,
) -> str:
    if received.status is not ConsentStatus.PENDING or headers is None:
        return ""
    found = verdicts(config, store, plan, received.signed, headers, possible_rehearsals(plan))
    rules = [verdict.rule for verdict in found if not verdict.passed]
    return f"cannot be approved yet: {', '.join(rules)}; see explain" if rules else ""


def show_studies(view: dict[str, Any], config_file: Path) -> None:
    """Print `studies`, and the commands to decide about pending ones."""
    rows = []
    for row in view["studies"]:
        analyst = f"{row['analyst']} ({SIGNATURE_LABEL[SignatureStatus(row['signature'])]})"
        why = ": ".join(filter(None, (row["reason_code"] or row["reason"], row["text"])))
        about = (moment(row["at"]), row["study"][:12], row["name"], analyst)
        rows.append((*about, shown(row["epsilon"]), row["trust"], _decided(row), row["decide_by"], why))
    headings = ("came (UTC)", "study", "name", "analyst", "epsilon", "trust", "status", "decide by", "why")
    show_table(headings, rows)
    for key, title in COUNTED.items():
        if view[key]:
            counts = [
                (one["day"], one["analyst"] or "(others)", one["rule"], str(one["plans"]))
                for one in view[key]
            ]
            show_table(("day (UTC)", "analyst", "rule", "studies"), counts, title)
    if view["proofs"]:
        proofs = [
            (moment(one["at"]), one["study"][:12], one["name"], one["analyst"], one["reason"])
            for one in view["proofs"]
        ]
        title = "Stored as proof: the coordinator signed these under a name whose key did not sign"
        show_table(("came (UTC)", "study", "name", "analyst", "why"), proofs, title)
        console.print(
            "Telephone these analysts and ask if they submitted this. --json shows the signed bytes."
        )
    if view["pending"]:
        console.print(f"{view['pending']} of them are pending; decide about each:")
        for word in ("explain", "approve", "decline"):
            command = shell_command("eigenveil-site", word, "STUDY", "--config", config_file)
            console.print(f"  {command}", markup=False, soft_wrap=True)


def _decided(row: dict[str, Any]) -> str:
    """Return a study's status; a person's decision stays visible after the end."""
    if row["loading"] is not None:
        return f"{row['status']}, loading: {row['loading']:,} records so far"
    if not row["person"]:
        return str(row["status"])
    over = ", ended" if row["status"] == ConsentStatus.ENDED.value else ""
    return f"{row['person']} by {row['by'] or 'a person'}{over}"
