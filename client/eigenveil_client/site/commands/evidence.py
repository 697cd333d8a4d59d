"""What a site holds, against a published document, a noted head, or one answer that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eigenveil.accounting.ledger import GENESIS
from eigenveil.errors import Code, InternalError, RequestError, spoken
from eigenveil.reporting.attempts import attempts_of
from eigenveil_client.site.state.egress import Row
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.command import say


def check_published(store: SiteStore, document: Mapping[str, Any], key: bytes, site: str) -> None:
    """Hold a published document against what was signed to this site, and what it was charged for.

    Raises:
        RequestError: code `bad-release`, they contradict.
    """
    plan, charged = document["plan_digest"], store.ledger.ledger.charged
    found = store.transcript.log(plan).contradictions(document, key)
    found += [
        f"{spoken(row['round'])}: this site is named as present, and has answered no such question"
        for row in document["rounds"]
        if site in row["present"] and charged.get((plan, row["round"])) != row["query"]
    ]
    found += [
        f"{spoken(row['round'])}: {attempts_of(row)} attempts at it are named, and this site answered number "
        f"{answered}"
        for row in document["rounds"]
        if (answered := max(store.attempts.answered(plan, row["round"]), default=0)) > attempts_of(row)
    ]
    published = {row["round"]: row for row in document["rounds"]}
    found += [
        f"{spoken(one['round'])}: its sites are named as {', '.join(row['present'])}, and this site masked "
        f"its answer to attempt {one['attempt']} for {', '.join(one['sites'])}"
        for one in sets(store, plan, key)
        if one["answered"] and (row := published.get(one["round"])) is not None
        if one["attempt"] == attempts_of(row) and one["sites"] != sorted(row["present"])
    ]
    if found:
        raise RequestError(
            Code.BAD_RELEASE,
            f"the release contradicts what this site holds: {'; '.join(found)}. Keep both, and tell the "
            "federation: eigenveil-site ledger rounds writes the proof",
        )


def sets(store: SiteStore, plan: str, key: bytes) -> list[dict[str, Any]]:
    """Every set of sites that the coordinator signed to this site of a study, and whether it was answered;
    what was refused is proof.

    Raises:
        PeerError: what is kept does not bear the signature of `key`.
    """
    return [
        {
            "round": one.round,
            "attempt": one.number,
            "answered": not refused,
            "sites": sorted(one.members),
            "said": signed.said.hex(),
            "signature": signed.signature.hex(),
        }
        for refused in (False, True)
        for signed in store.attempts.signed(plan, refused=refused)
        for one in (signed.check(key),)
    ]


def sets_text(told: list[dict[str, Any]]) -> str:
    """A line for each of `sets`."""
    return "\n".join(
        f"{spoken(one['round'])}, attempt {one['attempt']}, {'answered' if one['answered'] else 'REFUSED'}: "
        f"{', '.join(one['sites'])}"
        for one in told
    )


def chosen(store: SiteStore, round_number: int | None, wanted: str | None) -> list[Row]:
    study = None if wanted is None else store.studies.digest_of(wanted)
    rows = (row for row in store.egress.rows() if study in (None, row.study))
    return [row for row in rows if round_number in (None, row.round + 1)]


def one_answer(rows: list[Row]) -> Row:
    """An answer that left twice (its first reply was lost) is one answer."""
    answers = {(row.study, row.round): row for row in rows if row.answers}
    if len(answers) != 1:
        raise RequestError(
            Code.NOT_FOUND, f"{len(answers)} answers are chosen; name one with --study and --round"
        )
    return next(iter(answers.values()))


def say_whole(name: str, digests: list[str], noted: str, as_json: bool) -> None:
    """`noted` is a head that somebody kept: rows can be cut off the end of a chain, and only it will tell."""
    chain = [GENESIS, *digests]
    if noted and noted not in chain:
        raise InternalError(
            Code.STORAGE,
            f"the {name} of {len(digests)} rows does not hold {noted}: since it was noted, rows were cut off "
            "or replaced",
        )
    since = len(digests) - chain.index(noted) if noted else None
    told = {"verified": True, "rows": len(digests), "head": chain[-1], "rows_since": since}
    later = "" if since is None else f", {since} of them after the head that was noted"
    say(told, as_json, f"the {name} is whole: {len(digests)} rows{later}\nhead {chain[-1]}")
