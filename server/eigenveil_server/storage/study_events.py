"""What watchers see of a study, as messages [R11]."""

from __future__ import annotations

from collections.abc import Mapping

from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.round import RoundState
from eigenveil.queries import NAMES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy

WAITING = "waiting for the operator's approval"


def begun(stored: StoredStudy) -> pb.StudyEvent:
    """Before its first round."""
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING,
        round_state=RoundState.PLANNED.value if stored.state is StudyState.RUNNING else WAITING,
        micro_rho=stored.micro_rho,
        expected_rounds=stored.expected_rounds,
    )


def never_run(stored: StoredStudy, state: StudyState, why: str) -> pb.StudyEvent:
    """It ended, and nothing more will be asked."""
    return pb.StudyEvent(state=state.proto, micro_rho=stored.micro_rho, failure=why)


def at_round(
    stored: StoredStudy,
    asked: RoundQuery | None,
    round_state: RoundState,
    sites: Mapping[str, str],
    spent: int,
    *,
    state: StudyState = StudyState.RUNNING,
    failure: str = "",
) -> pb.StudyEvent:
    """At the round of `asked`, if any was; `sites` says what is known of each invited site."""
    return pb.StudyEvent(
        state=state.proto,
        round=0 if asked is None else asked.round,
        query_kind="" if asked is None else NAMES[type(asked.query)],
        round_state=round_state.value,
        sites=[pb.SiteStatus(site=site, status=status) for site, status in sites.items()],
        spent_micro_rho=spent,
        micro_rho=stored.micro_rho,
        failure=failure,
        expected_rounds=stored.expected_rounds,
    )
