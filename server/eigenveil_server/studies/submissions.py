"""From what an analyst wrote to a study that can be stored: read, planned, priced; nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from eigenveil.accounting.zcdp import ATTO, MICRO, epsilon_at
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.price import Composition
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.resources import Resources
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy

SUBMISSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PLANNED, WAITING = "planned", "waiting for the operator's approval"


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


async def prepare(submission: Submission, resources: Resources, config: Config) -> tuple[StoredStudy, Plan]:
    """The study that `submission` asks for, as stored before or as it would be stored now.

    Raises:
        RequestError: the study is refused, asks for more than one study may reserve, or the
            submission was used for another study.
    """
    query = partial(resources.lanes.ask, submission.analyst)
    known = resources.studies.by_submission(submission.analyst, submission.id)
    if known is not None:
        if not await query("same", study_toml=submission.study_toml, plan=known.plan_json.decode()):
            raise used(known)
        return known, await resources.compute(lambda: known.plan)
    made = await query("planned", **_words(submission, config))
    plan_json = made["plan"].encode()
    plan = await resources.compute(plan_from_json, plan_json)
    _check_price(plan, config)
    stored = StoredStudy(
        digest=plan.digest,
        name=plan.study.name,
        analyst=submission.analyst,
        submission=submission.id,
        plan_json=plan_json,
        signature=resources.keys.sign_plan(plan_json),
        micro_rho=plan.micro_rho,
        expected_rounds=made["rounds"],
        state=_first_state(plan, config),
        failure="",
        submitted_at=resources.clock(),
    )
    return stored, plan


async def explained(submission: Submission, resources: Resources, config: Config) -> str:
    """What a study would ask, reveal and cost, as JSON; refused wherever submitting it now would be.

    Raises:
        RequestError: as `prepare`; or code `budget-exhausted`.
    """
    told = await resources.lanes.ask(submission.analyst, "explained", **_words(submission, config))
    plan = await resources.compute(plan_from_json, told["plan"].encode())
    _check_price(plan, config)
    check_quota(submission.analyst, plan.micro_rho, resources, config)
    resources.books.check(plan.digest, plan.cost)
    explanation: str = told["explanation"]
    return explanation


def _words(submission: Submission, config: Config) -> dict[str, Any]:
    """What planning has to know."""
    return {
        "study_toml": submission.study_toml,
        "federation": config.federation,
        "submission": submission.id,
        "analyst": submission.analyst,
        "enrolled": sorted(submission.enrolled),
        "most_columns": config.max_columns,
    }


def used(known: StoredStudy) -> RequestError:
    """The analyst gave this id to another study."""
    return RequestError(
        Code.CONFLICT,
        f"submission {known.submission} made another study before; choose a new submission id",
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
    epsilon, basic = _cost(plan, config)
    allowed, delta = config.max_epsilon_per_study, config.budget_delta
    if epsilon > allowed if basic else plan.micro_rho > config.largest_study:
        raise RequestError(
            Code.BUDGET,
            f"this study costs epsilon {epsilon:.4g} at delta {delta:g}, "
            f"and the operator allows one study {allowed:g} "
            "(max_epsilon_per_study); nothing was reserved: ask for a smaller epsilon",
        )


def _cost(plan: Plan, config: Config) -> tuple[float, bool]:
    """Epsilon, and whether it is pure rather than at the budget's delta."""
    if plan.composition is Composition.BASIC:
        return plan.study.epsilon, True
    return epsilon_at(plan.micro_rho / MICRO, config.budget_delta), False


def _first_state(plan: Plan, config: Config) -> StudyState:
    epsilon, _ = _cost(plan, config)
    return StudyState.AWAITING if epsilon > config.approve_above_epsilon else StudyState.RUNNING


def check_quota(analyst: str, micro_rho: int, resources: Resources, config: Config) -> None:
    """One analyst has so many studies under way, and with several of them holds so much of the budget; what
    a single study may reserve is `max_epsilon_per_study`.

    Raises:
        RequestError: one more would be too many, or too much.
    """
    own = [one for one in resources.studies.under_way() if one.analyst == analyst]
    if len(own) >= config.max_studies_per_analyst:
        raise RequestError(
            Code.CONFLICT,
            f"{len(own)} studies of yours are under way, and the operator allows "
            f"{config.max_studies_per_analyst} (max_studies_per_analyst); wait for one to end, or cancel one",
        )
    running = [one for one in own if one.state is StudyState.RUNNING]
    held = sum(one.micro_rho - resources.books.spent(one.digest) for one in running)
    most = int(config.max_share_per_analyst * config.budget.micro_rho)
    if held and held + micro_rho > most:
        raise RequestError(
            Code.BUDGET,
            f"your studies under way hold {held} micro-rho, and the operator lets one analyst hold {most} "
            "with several (max_share_per_analyst); nothing was reserved: wait for one to end, or cancel one",
        )


def first_event(stored: StoredStudy) -> pb.StudyEvent:
    """What watchers see of a study before its first round."""
    return pb.StudyEvent(
        state=pb.STUDY_STATE_RUNNING,
        round_state=PLANNED if stored.state is StudyState.RUNNING else WAITING,
        micro_rho=stored.micro_rho,
        expected_rounds=stored.expected_rounds,
    )
