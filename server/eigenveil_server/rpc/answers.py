"""What analysts are answered about a study."""

from __future__ import annotations

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.consent import ConsentPhase


def asked_by(caller: Identity, stored: StoredStudy) -> bool:
    """Whether the study is the caller's own."""
    return caller.role is Role.ANALYST and caller.name == stored.analyst


def without_texts(message: pb.StudyRow | pb.StudyEvent) -> None:
    """Leave out what persons at sites wrote to the study's analyst [R9]."""
    for said in message.consent:
        said.ClearField("text")


def study_row(
    stored: StoredStudy, repository: Repository, caller: Identity, consent: ConsentPhase | None
) -> pb.StudyRow:
    """One line of a list of studies; what only its analyst needs, only to its analyst. `consent` is what the
    sites say of one that runs."""
    own = asked_by(caller, stored)
    row = pb.StudyRow(
        plan_digest=bytes.fromhex(stored.digest),
        name=stored.name,
        state=stored.state.proto,
        analyst=stored.analyst,
        micro_rho=stored.micro_rho,
        atto_delta=repository.studies.atto_delta(stored),
        spent_micro_rho=repository.ledger.spent(stored.digest),
        rounds=repository.studies.rounds(stored.digest),
        submitted_unix_ms=stored.submitted_at,
        failure=stored.failure,
        submission=stored.submission if own else "",
        study_digest=repository.studies.content(stored) if own else b"",
    )
    if consent is not None:
        consent.tell(row)
    if not own:
        without_texts(row)
    return row


def federation_budget(repository: Repository, delta: float) -> pb.FederationBudget:
    """What all studies may spend together, and what of it is spent or set aside: no more than the rows of the
    list and a refusal add up to. [R26]"""
    ledger = repository.ledger.ledger
    limit, committed = ledger.limit, ledger.committed()
    return pb.FederationBudget(
        delta=delta,
        gaussian=ledger.exact,
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
