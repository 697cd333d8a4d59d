"""Document of a release, which is signed, and the file that holds it with the arrays of the result [R32].
Cost of the attempts at masked rounds, and a check of a document's attempts against its plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eigenveil._version import __version__
from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.errors import Code, RequestError, round_label
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.protocol.plan import Plan, attempt_limits, planned_study
from eigenveil.protocol.query_limits import attempt_cost
from eigenveil.protocol.rounds import Release
from eigenveil.reporting.explain import guarantee
from eigenveil.reporting.release_file import (
    DOCUMENT,
    SIGNATURE,
    Data,
    archive_parts,
    array_parts,
    describe_array,
    read_array,
)
from eigenveil.reporting.result import Result
from eigenveil.reporting.trust import trust_text
from eigenveil.signatures import check_format, formatted
from eigenveil.study.study import MAX_ATTEMPTS, Trust
from eigenveil.study_authorization import SignedAuthorization


def attempts_of(row: Mapping[str, Any]) -> int:
    """Return the number of charged attempts at a round; 0 if the round is not masked. Raises RequestError:
    code `bad-release`, more than any plan allows."""
    attempt_count = int(row.get("attempts", 0))
    if attempt_count > MAX_ATTEMPTS:
        raise _plan_mismatch(f"{round_label(row['round'])} states {attempt_count} attempts")
    return attempt_count


def charged_micro_rho(rounds: Sequence[Mapping[str, Any]], site: str | None = None) -> int:
    """Return the micro-rho charged for the rounds of a document, with every attempt. With `site`, return the
    most that this site was charged: of a round without it, it may have been in every attempt but the last.
    Batches after the first of their pass cost nothing: the pass is charged once."""
    total = first = NO_COST
    charged = 0
    for row in rounds:
        attempt_count = max(1, attempts_of(row)) - (site is not None and site not in row["present"])
        cost = Cost(micro_rho=row["micro_rho"])
        if cost != NO_COST:
            first, charged = cost, 0
        for attempt in range(1, attempt_count + 1):
            total += attempt_cost(cost, attempt, charged, first)
        charged = max(charged, attempt_count)
    return total.micro_rho


def check_attempts(document: Mapping[str, Any]) -> None:
    """Check a masked study's attempts, sites and cost against the limits of its plan. Raises RequestError:
    code `bad-release`, a limit is exceeded."""
    plan, rounds = document["plan"], document["rounds"]
    if plan["study"]["privacy"]["trust"] != Trust.SECURE_AGGREGATION.value:
        return
    study, (most_attempts, pool) = planned_study(plan), attempt_limits(plan)
    for row in rounds:
        where, attempt_count = round_label(row["round"]), attempts_of(row)
        if not 1 <= attempt_count <= most_attempts:
            raise _plan_mismatch(
                f"{where} states {attempt_count} attempts, and the plan allows {most_attempts}"
            )
        if not set(row["present"]) <= set(study.federation.sites):
            raise _plan_mismatch(f"{where} has sites that were not invited")
        if len(set(row["present"])) < len(row["present"]):
            raise _plan_mismatch(f"{where} names a site twice")
        try:
            study.federation.check_present(row["present"])
        except RequestError as problem:
            raise _plan_mismatch(f"{where}: {problem}") from problem
    once = charged_micro_rho([row | {"attempts": 1} for row in rounds])
    repeated = charged_micro_rho(rounds) - once
    if once > int(plan["micro_rho"]) or repeated > pool:
        raise _plan_mismatch(
            f"its rounds cost {once} micro-rho and repeated attempts {repeated}, and the plan allows "
            f"{plan['micro_rho']} and {pool}"
        )


def _plan_mismatch(why: str) -> RequestError:
    return RequestError(Code.BAD_RELEASE, f"this release is inconsistent with its plan: {why}")


FORMAT = "eigenveil-release/3"
PCA = "pca"  # kind of result: components, variances, mean and covariance
RELEASE_SIGNATURE_CONTEXT = b"eigenveil/release-signature/v1\n"
NOT_PRIVATE = (
    "NOT PRIVATE: the noise came from a seeded generator, for simulation only. "
    "Do not publish this result if the records are confidential."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """Query kind of a round, absent sites with reasons, and charged attempts if it is masked (else 0). The
    duration is not published: it depends on the number of records of a site."""

    kind: str
    absent: Mapping[str, str]
    attempts: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the part of a row of `rounds` that does not follow from its release."""
        attempts = {"attempts": self.attempts} if self.attempts else {}
        return {"kind": self.kind, "absent": dict(self.absent)} | attempts


def release_document(
    plan: Plan,
    result: Result,
    releases: Sequence[Release],
    *,
    rounds: Sequence[RoundRecord],
    private: bool,
    sites: Mapping[str, Any] | None = None,
    authorization: SignedAuthorization | None = None,
) -> dict[str, Any]:
    """Return the document to sign: result, guarantee, rounds and plan; a function of stored values only. Each
    kind of result is an entry of `results`, whose arrays are members of the file. `required` names what a
    reader must know: a later version may add what it must not skip.
    `sites` holds the rules that each site had stated when the study was submitted, or None. They are public
    configuration, not findings about records; the sites of a simulation state none. `authorization` is the
    analyst's signature of the plan; a simulation has none."""
    values = {
        "software": {"eigenveil": __version__},
        "private": private,
        "plan_digest": plan.digest,
        "plan": json.loads(plan.to_json()),
        "authorization": None if authorization is None else authorization.to_dict(),
        "sites": dict(sites or dict.fromkeys(plan.study.federation.sites)),
        "guarantee": guarantee(plan) if private else {"text": NOT_PRIVATE},
        "trust": trust_text(plan),
        "results": {PCA: _section(result.published())},
        "rounds": [
            release_row(release) | record.to_dict() for release, record in zip(releases, rounds, strict=True)
        ],
    }
    return formatted(FORMAT, values)


def _section(result: Result) -> dict[str, Any]:
    arrays = {name: describe_array(_path(name), array) for name, array in result.arrays.items()}
    return result.without_arrays() | {"arrays": arrays}


def _path(name: str) -> str:
    return f"{PCA}/{name}.npy"


def release_row(release: Release) -> dict[str, Any]:
    """Return the part of a row of `rounds` that follows from its release alone."""
    return {
        "round": release.round,
        "query": release.query,
        "release": release.digest,
        "micro_rho": release.micro_rho,
        "atto_delta": str(release.atto_delta),
        "sigma": release.sigma,
        "present": list(release.present),
    }


def signed_parts(
    document: Mapping[str, Any], result: Result, *, sign: Callable[[bytes], bytes], public_key: bytes
) -> list[Data]:
    """Return the file of a release, in parts: its document, the Ed25519 signature and the raw key of the
    signer, and its arrays, which are not copied."""
    data = canonical(document)
    signature = sign(RELEASE_SIGNATURE_CONTEXT + data)
    signed = canonical({"public_key": public_key.hex(), "signature": signature.hex()})
    return archive_parts({DOCUMENT: (data,), SIGNATURE: (signed,), **_array_members(result)})


def signed_release(
    document: Mapping[str, Any], result: Result, *, sign: Callable[[bytes], bytes], public_key: bytes
) -> bytes:
    """Return the same file whole."""
    return b"".join(signed_parts(document, result, sign=sign, public_key=public_key))


def unsigned_release(document: Mapping[str, Any], result: Result) -> bytes:
    """Return the file of a simulation's release, which nobody signed."""
    return b"".join(archive_parts({DOCUMENT: (canonical(document),), **_array_members(result)}))


def _array_members(result: Result) -> dict[str, tuple[Data, ...]]:
    arrays = result.published().arrays
    return {_path(name): array_parts(arrays[name]) for name in sorted(arrays)}


class HasRelease(Protocol):
    """Object with the document and the result of a release, such as a loaded release or a simulation."""

    @property
    def document(self) -> Mapping[str, Any]: ...

    @property
    def result(self) -> Result: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseContent:
    """Document of a release, and its result with arrays."""

    document: dict[str, Any]
    result: Result


def read_content(members: Mapping[str, Data]) -> ReleaseContent:
    """Return the content of a release's file, without a check of its signature.

    1. The document is canonical JSON of this format, and requires nothing that this version does not know.
    2. The members are the document, its signature if there is one, and exactly the arrays that the document
       names, each with the stated SHA-256, type and shape.

    Raises PeerError: code `version`, of another format, or it requires what is unknown here; ValueError,
    KeyError, TypeError, AttributeError: not a release."""
    document = parse_json(bytes(members[DOCUMENT]))
    check_format(document, FORMAT, "this release")
    if canonical(document) != members[DOCUMENT]:
        raise ValueError("the document is not in canonical form")
    arrays = {
        kind: {name: read_array(described, members) for name, described in section["arrays"].items()}
        for kind, section in document["results"].items()
    }
    files = (one["file"] for section in document["results"].values() for one in section["arrays"].values())
    first = [name for name in (DOCUMENT, SIGNATURE) if name in members]
    if list(members) != [*first, *sorted(files)]:
        raise ValueError("the file has other members than its document states")
    section = document["results"][PCA]
    return ReleaseContent(document=document, result=Result.from_dict(section | arrays[PCA]))
