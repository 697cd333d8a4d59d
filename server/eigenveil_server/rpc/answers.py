"""What analysts are answered about a study."""

from __future__ import annotations

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_lists import ListedStudy
from eigenveil_server.storage.study_reads import StoredStudy


def asked_by(caller: Identity, analyst: str) -> bool:
    """Whether a study of `analyst` is the caller's own."""
    return caller.role is Role.ANALYST and caller.name == analyst


def without_texts(message: pb.StudyRow | pb.StudyEvent) -> None:
    """Leave out what persons at sites wrote to the study's analyst [R9]."""
    for said in message.consent:
        said.ClearField("text")


def study_row(stored: ListedStudy, rounds: int, repository: Repository, caller: Identity) -> pb.StudyRow:
    """One line of a list of studies; what only its analyst needs, only to its analyst. What the sites say of
    one that runs is not in it."""
    own = asked_by(caller, stored.analyst)
    return pb.StudyRow(
        plan_digest=bytes.fromhex(stored.digest),
        name=stored.name,
        state=stored.state.proto,
        analyst=stored.analyst,
        micro_rho=stored.micro_rho,
        atto_delta=stored.summary.atto_delta,
        spent_micro_rho=repository.ledger.spent(stored.digest),
        rounds=rounds,
        submitted_unix_ms=stored.submitted_at,
        failure=stored.failure,
        submission=stored.submission if own else "",
        study_digest=stored.summary.content if own else b"",
    )


def federation_budget(repository: Repository, delta: float) -> pb.FederationBudget:
    """What all studies may spend together, and what of it is spent or set aside: no more than the rows of the
    list and a refusal add up to. [R26]"""
    totals = repository.ledger.totals
    limit, committed = totals.limit, totals.committed
    return pb.FederationBudget(
        delta=delta,
        gaussian=totals.exact,
        micro_rho=limit.micro_rho,
        committed_micro_rho=committed.micro_rho,
        atto_delta=limit.atto_delta,
        committed_atto_delta=committed.atto_delta,
    )


def no_release(stored: StoredStudy) -> RequestError:
    match stored.state:
        case StudyState.FAILED:
            return RequestError(Code.STUDY_FAILED, stored.failure)
        case StudyState.CANCELLED:
            return RequestError(Code.CANCELLED, f"study {stored.digest[:12]} was {stored.failure}")
        case StudyState.AWAITING:
            return RequestError(
                Code.NOT_READY,
                f"study {stored.digest[:12]} waits for the approval of the coordinator's operator",
            )
        case _:
            return RequestError(Code.NOT_READY, f"study {stored.digest[:12]} is still running; watch it")
