"""Submissions: an analyst's study is planned, costed and held to the operator's limits, but not stored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.formatting import percent_down, percent_up, shown, shown_up
from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.dictionary.directory import PERSON_SECONDS, Directory
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.capabilities import Capabilities
from eigenveil.protocol.plan import Plan
from eigenveil.study.composition import Composition
from eigenveil.study_authorization import SignedAuthorization, check_authorization
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import Keys
from eigenveil_server.planning.planner import DRAFT
from eigenveil_server.planning.pool import PlanCache, PlanningPool
from eigenveil_server.process import Compute
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import SubmissionQuota, recent_submissions


def check_cost_limits(plan: Plan, config: Config) -> None:
    """Check that one study does not reserve what all share. Raises RequestError: code `budget-exhausted`."""
    study_delta, most = plan.cost.atto_delta / ATTO, config.max_delta_per_study
    if study_delta > most:
        adds = f"adds {shown_up(study_delta, 3)} to delta"
        raise _over_limit(adds, most, "max_delta_per_study", "a smaller delta")
    allowed, delta = config.max_epsilon_per_study, config.budget_delta
    if not _fits_limit(plan, allowed, delta):
        cost = f"{shown_up(_epsilon(plan, delta))} ({plan.study.neighbours.value}) at delta {shown(delta)}"
        raise _over_limit(f"costs epsilon {cost}", allowed, "max_epsilon_per_study", "a smaller epsilon")


def _over_limit(reserves: str, most: float, key: str, remedy: str) -> RequestError:
    message = f"this study {reserves}, and the operator allows one study {shown(most)} ({key})"
    return RequestError(Code.BUDGET, f"{message}; nothing was reserved: choose {remedy}")


def _fits_limit(plan: Plan, epsilon: float, delta: float) -> bool:
    """True if a study's cost is within `epsilon` at `delta`, in the study's composition."""
    match plan.composition:
        case Composition.GAUSSIAN:
            return plan.cost.micro_rho <= gaussian.micro_rho_for(epsilon, delta)
        case Composition.ZCDP:
            return plan.cost.micro_rho <= zcdp.micro_rho_for(epsilon, delta)
        case Composition.BASIC:
            return plan.study.epsilon <= epsilon


def _epsilon(plan: Plan, delta: float) -> float:
    """Return a study's epsilon at `delta`; its own epsilon under basic composition."""
    match plan.composition:
        case Composition.GAUSSIAN:
            return gaussian.epsilon_at(plan.cost.micro_rho, delta)
        case Composition.ZCDP:
            return zcdp.epsilon_at(plan.cost.micro_rho / MICRO, delta)
        case Composition.BASIC:
            return plan.study.epsilon


DAY_SECONDS = 86_400
SUBMISSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A study as TOML with the analyst's submission id and, to run it, the signature under its plan.
    `versions` are those of the analyst's program, None if the study is a draft made here. Raises
    RequestError: code `bad-argument`, for the id."""

    analyst: str
    id: str = DRAFT
    study_toml: str
    directory: Directory
    authorization: SignedAuthorization | None = None
    versions: Capabilities | None = None

    def __post_init__(self) -> None:
        check_submission(self.id)


def _later_expiry_warnings(submission: Submission, known: StoredStudy) -> list[str]:
    """Return a warning if a repetition is signed for a day longer or more: the first signature counts."""
    first, again = known.authorization, submission.authorization
    if first is None or again is None:
        return []
    ends = first.read().expires
    if again.read().expires < ends + DAY_SECONDS:
        return []
    until = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M} UTC"
    signed_until = f"this study was submitted before with a signature valid until {until}"
    return [f"{signed_until}, which still counts; after that, submit it under another submission id"]


def check_decision_time(plan: Plan, now: float) -> None:
    """Check that people have an hour or more from the Unix time `now`, by the study's last day for decisions.
    Raises RequestError: code `bad-study`."""
    federation = plan.study.federation
    if federation.decision_deadline - now < PERSON_SECONDS:
        raise RequestError(
            Code.BAD_STUDY,
            f"people decide until the end of {federation.decide_by} (UTC; decide_by), which is over or less "
            "than an hour away: state a later day, or none",
        )


def check_submission(id: str) -> None:
    """Check a submission id. Raises RequestError: code `bad-argument`."""
    if SUBMISSION.fullmatch(id) is None:
        message = "a submission id has 1 to 64 letters, digits, dots, hyphens or underscores"
        raise RequestError(Code.BAD_ARGUMENT, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStudy:
    """A study as stored before, or as it would be stored now, with warnings for its analyst."""

    stored: StoredStudy
    plan: Plan
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPreview:
    """Plan of a study, its explanation, and the expected error as sines (low, median, high)."""

    plan: Plan
    explanation: Mapping[str, Any]
    sines: Sequence[float] | None


@dataclass(frozen=True, slots=True)
class SubmissionPlanner:
    """Parses, plans and costs what analysts submit."""

    _repository: Repository
    _keys: Keys
    _planning: PlanningPool
    _compute: Compute
    _config: Config
    _cache: PlanCache = field(default_factory=PlanCache)

    async def prepare(self, submission: Submission) -> PreparedStudy:
        """Return the study of this submission. Raises RequestError: the study is refused, exceeds what one
        study may reserve, reuses the submission id of another study, or its analyst did not sign this plan;
        or code `quota-exhausted`, before it is planned; PeerError: the signature is invalid."""
        repository, signed = self._repository, submission.authorization
        if signed is None:
            message = "this study has no signature of its analyst; `eigenveil study submit` signs its plan"
            raise RequestError(Code.UNSIGNED, message)
        known = await self._known(submission)
        if known is not None:
            return await self._resubmitted(submission, known)
        store, now = repository.store, repository.clock()
        recent = await store.read(recent_submissions, store.reader.rows, submission.analyst, now)
        SubmissionQuota.of(self._config).check(recent, 0)
        inputs = self._inputs(submission)
        planned = self._cache.take(inputs)
        if planned is None:
            planned = await self._planning.ask(submission.analyst, "planned", inputs)
        plan_json = planned["plan"].encode()
        plan = await self._compute.run(repository.studies.plan, plan_json)
        at = repository.clock()
        check_decision_time(plan, at / 1000)
        check_authorization(signed, plan, at / 1000)
        check_cost_limits(plan, self._config)
        epsilon = _epsilon(plan, self._config.budget_delta)
        awaits_approval = epsilon > self._config.operator_approval_above_epsilon
        stored = StoredStudy(
            digest=plan.digest,
            name=plan.study.name,
            analyst=submission.analyst,
            submission=submission.id,
            plan_json=plan_json,
            signature=self._keys.sign_plan(plan_json),
            micro_rho=plan.cost.micro_rho,
            expected_rounds=planned["rounds"],
            state=StudyState.AWAITING if awaits_approval else StudyState.RUNNING,
            failure="",
            submitted_at=at,
            started_at=at,
            site_rules_json=_stated_rules(plan, submission.directory),
            authorization_json=canonical(signed.to_dict()).decode(),
        )
        return PreparedStudy(stored=stored, plan=plan, warnings=planned["warnings"])

    async def _resubmitted(self, submission: Submission, known: StoredStudy) -> PreparedStudy:
        plan = await self._compute.run(self._repository.studies.plan_of, known)
        inputs = {"study_toml": submission.study_toml, "plan": known.plan_json.decode()}
        warnings = await self._planning.ask(submission.analyst, "again", inputs)
        if warnings is None:
            raise submission_used_error(known)
        warnings = [*warnings, *_later_expiry_warnings(submission, known)]
        return PreparedStudy(stored=known, plan=plan, warnings=warnings)

    async def explained(self, submission: Submission) -> tuple[Plan, str]:
        """Return the plan that its analyst signs, and its queries, disclosures and costs as JSON. Raises
        RequestError as `prepare`; or code `budget-exhausted`."""
        plan, result = await self._plan_draft(submission, "explained")
        if submission.id != DRAFT:  # a study with an id will be signed and submitted
            self._cache.put(self._inputs(submission), result)
        return plan, result["explanation"]

    async def predicted(self, submission: Submission) -> StudyPreview:
        """Return the explanation with the expected error. Raises as `explained`."""
        plan, result = await self._plan_draft(submission, "predicted")
        return StudyPreview(plan=plan, explanation=result["explanation"], sines=result["sines"])

    async def _plan_draft(self, submission: Submission, task_name: str) -> tuple[Plan, dict[str, Any]]:
        result = await self._planning.ask(submission.analyst, task_name, self._inputs(submission))
        plan = await self._compute.run(self._repository.studies.plan, result["plan"].encode())
        check_cost_limits(plan, self._config)
        if await self._is_submitted(submission, plan):
            return plan, result  # repeated after a lost answer: nothing more is reserved
        try:
            await self._repository.store.read(self.check_quota, submission.analyst, plan.cost.micro_rho)
            check = self._repository.ledger.check  # waits while another study is charged
            await self._compute.run(check, plan.digest, plan.cost, gaussian=plan.gaussian)
        except RequestError:
            if not await self._is_submitted(submission, plan):  # by a concurrent call
                raise
        return plan, result

    async def _is_submitted(self, submission: Submission, plan: Plan) -> bool:
        """Return True if this study has this id. Raises RequestError: code `conflict`: another has."""
        if submission.id == DRAFT:
            return False
        known = await self._known(submission)
        if known is not None and known.digest != plan.digest:
            raise submission_used_error(known)
        return known is not None

    async def _known(self, submission: Submission) -> StoredStudy | None:
        read, studies = self._repository.store.read, self._repository.studies
        return await read(studies.by_submission, submission.analyst, submission.id)

    def check_quota(self, analyst: str, micro_rho: int) -> None:
        """Raise if the analyst has too many unfinished studies, or several that reserve too much of the
        budget. The limit for a single study is `max_epsilon_per_study`. Raises RequestError: one more study
        exceeds a limit."""
        unfinished = self._repository.lists.of_analyst(analyst, (StudyState.AWAITING, StudyState.RUNNING))
        if len(unfinished) >= self._config.max_studies_per_analyst:
            raise RequestError(
                Code.CONFLICT,
                f"you have {len(unfinished)} unfinished studies, and the operator allows "
                f"{self._config.max_studies_per_analyst} (max_studies_per_analyst); wait for one to end, or "
                "cancel one",
            )
        running = [one for one in unfinished if one.state is StudyState.RUNNING]
        reserved = sum(one.micro_rho - self._repository.ledger.spent(one.digest) for one in running)
        limit = self._repository.ledger.totals.limit.micro_rho
        most = int(self._config.max_share_per_analyst * limit)
        if reserved and reserved + micro_rho > most:
            raise RequestError(
                Code.BUDGET,
                f"your unfinished studies reserve {percent_up(reserved, limit, 1)} % of the budget, this one "
                f"would add {percent_up(micro_rho, limit, 1)} %, and the operator allows one analyst "
                f"{percent_down(most, limit, 1)} % with several (max_share_per_analyst); nothing was "
                "reserved: wait for one to end, or cancel one",
            )

    def _inputs(self, submission: Submission) -> dict[str, Any]:
        return {
            "study_toml": submission.study_toml,
            "submission": submission.id,
            "analyst": submission.analyst,
            "directory": submission.directory,
            "most_columns": self._config.max_columns,
            "versions": submission.versions,
        }


def _stated_rules(plan: Plan, directory: Directory) -> str:
    """Return what the study's sites have stated but their columns, as JSON for its release."""
    found: dict[str, Any] = {}
    for name in plan.study.federation.sites:
        stated = directory.sites[name]
        found[name] = stated and {"approval": stated.approval, "thresholds": stated.thresholds}
    return json.dumps(found, sort_keys=True)


def submission_used_error(known: StoredStudy) -> RequestError:
    """Return the error for a submission id that belongs to another study."""
    message = f"submission id {known.submission} belongs to another study; choose a new one"
    return RequestError(Code.CONFLICT, message)
