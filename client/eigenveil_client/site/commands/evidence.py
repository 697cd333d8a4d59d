"""Evidence of a site: both ledgers, signed statements, answers computed again, and installed software.
Answers are exact, so the keyed digest in the egress ledger verifies a recomputation: no copy of the numbers
is stored."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from typing import Any

from eigenveil.accounting.formatting import percent_up
from eigenveil.accounting.ledger import GENESIS, EntryKind
from eigenveil.errors import Code, InternalError, RequestError, round_label
from eigenveil.numerics.encoding import to_memoryview
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import centre_of
from eigenveil.queries.contract import describe_grid
from eigenveil.reporting.document import attempts_of
from eigenveil.reporting.presentation import sent_kind_label
from eigenveil.signatures import Keys
from eigenveil.study.study import Study
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.terminal import moment, show_table
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.engine.engine import RecordEngine
from eigenveil_client.site.state import person_counts
from eigenveil_client.site.state.egress import EgressRow
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.command import console, print_result


def check_published(store: SiteStore, document: Mapping[str, Any], key: Keys, site: str) -> None:
    """Check a published document against the statements signed to this site and against its charges. Raises
    RequestError, code `bad-release`, for a contradiction."""
    plan = document["plan_digest"]
    charged = store.ledger.charged_queries(plan)
    found = store.transcript.log(plan).find_contradictions(document, key)
    found += [
        f"{round_label(row['round'])}: this site is named as present, and has answered no such query"
        for row in document["rounds"]
        if site in row["present"] and charged.get(row["round"]) != row["query"]
    ]
    found += [
        f"{round_label(row['round'])}: {attempts_of(row)} attempts at it are named, and this site answered "
        f"number {answered}"
        for row in document["rounds"]
        if (answered := max(store.attempts.answered(plan, row["round"]), default=0)) > attempts_of(row)
    ]
    published = {row["round"]: row for row in document["rounds"]}
    found += [
        f"{round_label(one['round'])}: its sites are named as {', '.join(row['present'])}, and this site "
        f"masked its answer to attempt {one['attempt']} for {', '.join(one['sites'])}"
        for one in sets(store, plan, key)
        if one["answered"] and (row := published.get(one["round"])) is not None
        if one["attempt"] == attempts_of(row) and one["sites"] != sorted(row["present"])
    ]
    if found:
        raise RequestError(
            Code.BAD_RELEASE,
            f"the release contradicts this site's evidence: {'; '.join(found)}. Store both, and inform the "
            "federation; to write the proof: eigenveil-site ledger rounds",
        )


def sets(store: SiteStore, plan: str, key: Keys) -> list[dict[str, Any]]:
    """Return every set of sites of a study that the coordinator signed to this site. `answered` is false for
    refused sets, which are proof against the coordinator. Raises PeerError if one is not signed by `key`."""
    return [
        {
            "round": one.round,
            "attempt": one.number,
            "answered": not refused,
            "sites": sorted(one.members),
            "signed_json": signed.signed_json.hex(),
            "signature": signed.signature.hex(),
        }
        for refused in (False, True)
        for signed in store.attempts.signed(plan, refused=refused)
        for one in (signed.check(key),)
    ]


def sets_text(view: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{round_label(one['round'])}, attempt {one['attempt']}, "
        f"{'answered' if one['answered'] else 'REFUSED'}: {', '.join(one['sites'])}"
        for one in view
    )


def select_rows(store: SiteStore, round_number: int | None, wanted: str | None) -> list[EgressRow]:
    study = None if wanted is None else store.studies.digest_of(wanted)
    rows = (row for row in store.egress.rows() if study in (None, row.study))
    return [row for row in rows if round_number in (None, row.round + 1)]


def single_answer(rows: list[EgressRow]) -> EgressRow:
    """Return the single answer among `rows`; a repeated answer counts once."""
    answers = {(row.study, row.round): row for row in rows if row.answers}
    if len(answers) != 1:
        raise RequestError(
            Code.NOT_FOUND, f"{len(answers)} answers match; select one with --study and --round"
        )
    return next(iter(answers.values()))


def report_chain(name: str, digests: list[str], noted: str, as_json: bool) -> None:
    """Print the state of a chain. `noted` is a head noted earlier: only it detects rows cut off the end."""
    chain = [GENESIS, *digests]
    if noted and noted not in chain:
        raise InternalError(
            Code.STORAGE,
            f"the {name} of {len(digests)} rows does not contain {noted}: since then rows were cut off "
            "or replaced",
        )
    since = len(digests) - chain.index(noted) if noted else None
    view = {"verified": True, "rows": len(digests), "head": chain[-1], "rows_since": since}
    later = "" if since is None else f", {since} of them after the head that was noted"
    print_result(view, as_json, f"the {name} is complete: {len(digests)} rows{later}\nhead {chain[-1]}")


def recompute_answer(store: SiteStore, row: EgressRow, engine: RecordEngine) -> dict[str, Any]:
    """Compute the answer of `row` once more; return its query and its numbers with meanings and units.

    Raises:
        RequestError: code `not-found`, the row has no numbers, or masked ones; `conflict`, the records have
            changed; or the records cannot be read.
        InternalError: the query or the plan of the row is missing."""
    if not row.answers:
        raise RequestError(Code.NOT_FOUND, f"row {row.index} sent no numbers")
    if row.masked:
        raise RequestError(
            Code.NOT_FOUND,
            f"row {row.index} sent a masked answer, which cannot be computed again: it contains random noise "
            "and masks. Its keyed digest identifies the bytes sent",
        )
    round_query, received = store.egress.query_of(row), store.studies.get(row.study)
    if received is None:
        raise InternalError(Code.STORAGE, f"the plan of row {row.index} is not here; restore the state")
    plan = received.read_plan()
    with closing(engine.load(plan)) as engine_data:
        values = engine_data.answer(round_query.query, round_query.priced.frame)
    if store.keyed_digests.of_answer(round_query, to_memoryview(values)) != row.contribution:
        raise RequestError(
            Code.CONFLICT,
            f"the records have changed since row {row.index} was sent, so its numbers cannot be computed "
            "again; restore the records of that day",
        )
    return _answer_view(row, round_query, plan.study, values.tolist())


MOST_SHOWN = 200


def ledger(store: SiteStore, config: SiteConfig) -> dict[str, Any]:
    """Return the verified ledger and its totals (it was replayed when the store opened)."""
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
        "entries": [entry._asdict() | {"kind": entry.kind.value} for entry in store.ledger.entries()],
    }


def show_ledger(view: dict[str, Any]) -> None:
    rows = []
    for entry in view["entries"]:
        share = percent_up(entry["micro_rho"], view["budget"]["micro_rho"], 4)
        round_number = str(entry["round"] + 1) if EntryKind(entry["kind"]).spends else ""
        about = person_counts.LABEL if entry["study"] == person_counts.STUDY else entry["study"][:12]
        what = (str(entry["index"]), moment(entry["at"]), entry["kind"], about)
        rows.append((*what, round_number, share if entry["micro_rho"] else ""))
    show_table(("entry", "time (UTC)", "what", "study", "round", "% of the budget"), rows)
    console.print("the chain is complete; head " + view["head"], markup=False)
    for name in ("budget", "spent", "left"):
        console.print(f"{name:>8}: {consent.amount_text(view[name], view['delta'])}")


def egress(rows: list[EgressRow], counts: list[dict[str, Any]], head: str) -> dict[str, Any]:
    """Return the messages that left, row by row, and the protocol's calls by day."""
    return {
        "verified": True,
        "head": head,
        "messages": len(rows),
        "bytes": sum(row.bytes for row in rows),
        "rows": [asdict(row) for row in rows],
        "calls": counts,
    }


def show_egress(view: dict[str, Any]) -> None:
    rows = [
        (
            *(str(row["index"]), moment(row["at"]), row["study"][:12], str(row["round"] + 1)),
            sent_kind_label(row["kind"], masked=bool(row["attempt"])),
            *(str(row["bytes"]), row["contribution"][:16]),
        )
        for row in view["rows"]
    ]
    headings = ("row", "time (UTC)", "study", "round", "what", "bytes", "keyed digest of what was sent")
    show_table(headings, rows)
    meanings = {(row["kind"], bool(row["attempt"]), row["meaning"]) for row in view["rows"]}
    for kind, masked, meaning in sorted(meanings):
        console.print(f"{sent_kind_label(kind, masked=masked)}: {meaning}", markup=False)
    if any(masked for _, masked, _ in meanings):
        console.print("for the sites of each masked answer: eigenveil-site ledger rounds --study STUDY")
    console.print(f"the chain is complete; {view['messages']} messages, {view['bytes']} bytes of numbers")
    if view["calls"]:
        calls = [(one["day"], one["kind"], str(one["messages"]), str(one["bytes"])) for one in view["calls"]]
        show_table(("day (UTC)", "call", "messages", "bytes"), calls, "Every call, by day")


def _answer_view(row: EgressRow, round_query: RoundQuery, study: Study, values: list[int]) -> dict[str, Any]:
    query, frame = round_query.query, round_query.priced.frame
    described, grid = query.describe(study), None if frame is None else frame.grid
    named = zip(described.labels, values, strict=True)
    view: list[dict[str, Any]] = [{"is": label, "value": value} for label, value in named]
    factors = described.factors if frame is None else ()  # they are those of the bounds' own grid
    for number, factor, name in zip(view, factors, described.names, strict=False):
        number |= {"in_units": number["value"] * factor, "unit": name}
    return {
        "row": row.index,
        "study": row.study,
        "round": row.round,
        "kind": row.kind,
        "meaning": row.meaning,
        "query": row.query,
        "digest": row.contribution,
        "one_unit": described.unit,
        "grid": describe_grid(study, centre_of(query), described.radius, grid),
        "numbers": view,
    }


def show_decoded(view: dict[str, Any]) -> None:
    """Print `recompute_answer`, at most MOST_SHOWN numbers (--json shows all)."""
    console.print(f"row {view['row']}, {round_label(view['round'])}: {view['meaning']}", markup=False)
    console.print(f"a value of 1 is {view['one_unit']}", markup=False)
    if view["kind"] != "count":
        _show_grid(view["grid"])
    numbers, headings = view["numbers"][:MOST_SHOWN], ["numbers", "value"]
    rows = [[one["is"], str(one["value"])] for one in numbers]
    if "in_units" in numbers[0]:
        headings.append("in the study's units, after clipping")
        for row, one in zip(rows, numbers, strict=True):
            row.append(f"{one['in_units']:.6g} {one['unit']}")
    show_table(headings, rows)
    more = len(view["numbers"]) - MOST_SHOWN
    if more > 0:
        console.print(f"and {more} more; --json shows them all")
    console.print("computed again from the records; their keyed digest equals that of the answer sent")


def _show_grid(view: dict[str, Any]) -> None:
    console.print(f"grid: {view['text']}", markup=False)
    if view["radius"] is not None:
        text = "grid steps; a record farther from the centre is clipped to it"
        console.print(f"radius: {view['radius']} {text}")
    rows = []
    for column in view["columns"][:MOST_SHOWN]:
        centre = "" if column["centre"] is None else f"{column['centre']:.6g} {column['unit']}"
        rows.append((column["column"], f"{column['step']:.6g} {column['unit']}", centre))
    show_table(("column", "one grid step", "centre"), rows)


PROGRAM = "eigenveil"


def sbom(now: datetime | None = None) -> dict[str, Any]:
    """Return every installed distribution with its version, licence and package URL, as CycloneDX 1.6."""
    found = {_name(one): one for one in distributions()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": f"{now or datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": _component(found[PROGRAM], "application"),
        },
        "components": [_component(found[name], "library") for name in sorted(found) if name != PROGRAM],
    }


def _name(one: Distribution) -> str:
    return one.metadata["Name"].lower().replace("_", "-").replace(".", "-")


def _component(one: Distribution, kind: str) -> dict[str, Any]:
    name = _name(one)
    purl = f"pkg:pypi/{name}@{one.version}"
    component: dict[str, Any] = {
        "type": kind, "bom-ref": purl, "name": name, "version": one.version, "purl": purl,
    }  # fmt: skip
    if "License-Expression" in one.metadata:
        component["licenses"] = [{"expression": one.metadata["License-Expression"]}]
    return component
