"""From what an analyst wrote to a study that can be stored: read, planned, priced; nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from eigenveil.accounting import ATTO, MICRO, epsilon_at
from eigenveil.errors import Code, RequestError
from eigenveil.explain import explain
from eigenveil.plan import Plan, make_plan
from eigenveil.pricing import Composition
from eigenveil.rehearsal import check_every_size, rehearse
from eigenveil.study import Study
from eigenveil.study_toml import parse_study
from eigenveil.traits import TRAITS
from eigenveil.wire import query_to_proto
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.resources import Resources
from eigenveil_server.states import StudyState
from eigenveil_server.studies import StoredStudy

SUBMISSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ENVELOPE_BYTES = 64 * 1024  # what a message holds besides the plan and the query


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What an analyst sent: the study as TOML and an id of theirs; `enrolled` are the sites there are.

    Raises:
        RequestError: code `bad-argument`, for the id.
    """

    analyst: str
    id: str
    study_toml: str
    enrolled: Collection[str]

    def __post_init__(self) -> None:
        if SUBMISSION.fullmatch(self.id) is None:
            raise RequestError(
                Code.BAD_ARGUMENT,
                "a submission id has 1 to 64 letters, digits, dots, hyphens or underscores",
            )


def prepare(submission: Submission, resources: Resources, config: Config) -> tuple[StoredStudy, Plan]:
    """The study that `submission` asks for, as stored before or as it would be stored now.

    Raises:
        RequestError: the study is refused, asks for more than one study may reserve, or the
            submission was used for another study.
    """
    study = parse_study(submission.study_toml)
    known = resources.studies.by_submission(submission.analyst, submission.id)
    if known is not None:
        plan = known.plan
        if plan.study != study:
            raise used(known)
        return known, plan
    plan, plan_json, rounds = planned(study, submission, config)
    stored = StoredStudy(
        digest=plan.digest,
        name=study.name,
        analyst=submission.analyst,
        submission=submission.id,
        plan_json=plan_json,
        signature=resources.keys.sign_plan(plan_json),
        micro_rho=plan.micro_rho,
        expected_rounds=rounds,
        state=StudyState.RUNNING,
        failure="",
        submitted_at=resources.clock(),
    )
    return stored, plan


def planned(study: Study, submission: Submission, config: Config) -> tuple[Plan, bytes, int]:
    """The plan, its bytes, and how many rounds it expects to ask: for who explains and who submits alike.

    Raises:
        RequestError: the study is refused, or asks for more than one study may reserve.
    """
    _check_sites(study, submission.enrolled, config.federation)
    plan = make_plan(
        study, federation=config.federation, submission=submission.id, analyst=submission.analyst
    )
    _check_sums(plan)
    _check_price(plan, config)
    plan_json = plan.to_json()
    return plan, plan_json, _rehearsed(plan, plan_json)


def explained(submission: Submission, resources: Resources, config: Config) -> str:
    """What a study would ask, reveal and cost, as JSON; refused wherever submitting it now would be.

    Raises:
        RequestError: as `planned`; or code `budget-exhausted`.
    """
    plan, _, _ = planned(parse_study(submission.study_toml), submission, config)
    resources.books.check(plan.digest, plan.cost)
    return json.dumps(explain(plan), sort_keys=True)


def used(known: StoredStudy) -> RequestError:
    """The analyst gave this id to another study."""
    return RequestError(
        Code.CONFLICT,
        f"submission {known.submission} made another study before; choose a new submission id",
    )


def _check_sites(study: Study, enrolled: Collection[str], federation: str) -> None:
    strange = sorted(set(study.federation.sites) - set(enrolled))
    if strange:
        raise RequestError(
            Code.BAD_STUDY,
            f"not enrolled in {federation}: {', '.join(strange)} "
            f"(enrolled sites: {', '.join(sorted(enrolled)) or 'none'})",
        )


def _check_sums(plan: Plan) -> None:
    if TRAITS[plan.algorithm].single_records:
        raise RequestError(
            Code.BAD_STUDY,
            f"{plan.algorithm.value} would show the coordinator single records; it runs in simulations only",
        )


def _check_price(plan: Plan, config: Config) -> None:
    """One study must not reserve what all of them share, whatever delta it trades for epsilon."""
    own, most = plan.atto_delta / ATTO, config.max_delta_per_study
    if own > most:
        raise RequestError(
            Code.BUDGET,
            f"this study may fail with probability {own:.3g} of its own, and the operator allows one study "
            f"{most:.3g} (max_delta_per_study); nothing was reserved: ask for a smaller delta",
        )
    basic = plan.composition is Composition.BASIC
    delta = config.budget_delta
    epsilon = plan.study.epsilon if basic else epsilon_at(plan.micro_rho / MICRO, delta)
    allowed = config.max_epsilon_per_study
    if epsilon > allowed if basic else plan.micro_rho > config.largest_study:
        raise RequestError(
            Code.BUDGET,
            f"this study costs epsilon {epsilon:.4g} at delta {delta:g}, "
            f"and the operator allows one study {allowed:g} "
            "(max_epsilon_per_study); nothing was reserved: ask for a smaller epsilon",
        )


def _rehearsed(plan: Plan, plan_json: bytes) -> int:
    """How many rounds the plan expects to ask; refuses one whose questions do not fit a message."""
    queries = rehearse(plan)
    check_every_size(plan)
    largest = max((query_to_proto(query).ByteSize() for query in queries), default=0)
    if largest + len(plan_json) + ENVELOPE_BYTES > MESSAGE_BYTES:
        raise RequestError(
            Code.OVERFLOW,
            f"a question of this study has {largest} bytes, and a message holds {MESSAGE_BYTES} with "
            "the plan; ask for fewer components or columns",
        )
    return len(queries)


def first_event(stored: StoredStudy) -> pb.StudyEvent:
    """What watchers see of a study before its first round."""
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING,
        round_state="planned",
        micro_rho=stored.micro_rho,
        expected_rounds=stored.expected_rounds,
    )
