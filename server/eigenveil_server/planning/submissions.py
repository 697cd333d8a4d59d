"""From what an analyst wrote to a study that can be stored: read, planned, priced; nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from eigenveil.accounting.digits import percent_down, percent_up
from eigenveil.analyst_signature.authorization import SignedAuthorization, check_authorization
from eigenveil.dictionary.admission import Directory
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import Plan
from eigenveil_server.compute import Compute
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import Keys
from eigenveil_server.planning.limits import check_price, first_state
from eigenveil_server.planning.plan_cache import PlanCache
from eigenveil_server.planning.planner import DRAFT
from eigenveil_server.planning.pool import PlanningPool
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import SubmissionQuota, check_early

DAY_SECONDS = 86_400
SUBMISSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What an analyst sent: the study as TOML, an id of theirs and, to have it run, their signature under the
    plan; `directory` is what the federation has.

    Raises:
        RequestError: code `bad-argument`, for the id.
    """

    analyst: str
    id: str = DRAFT
    study_toml: str
    directory: Directory
    authorization: SignedAuthorization | None = None

    def __post_init__(self) -> None:
        check_submission(self.id)


def _later(submission: Submission, known: StoredStudy) -> list[str]:
    """Warn that a study keeps its first signature if the one that came again ends at least a day later."""
    first, again = known.authorization, submission.authorization
    if first is None or again is None:
        return []
    ends = first.read().expires
    if again.read().expires < ends + DAY_SECONDS:
        return []
    until = f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M} UTC"
    kept = f"this study was signed and submitted before, until {until}"
    return [f"{kept}; the later end of this signature does not count: submit it under another id after that"]


def check_submission(id: str) -> None:
    """Insist that this is the id of a submission.

    Raises:
        RequestError: code `bad-argument`.
    """
    if SUBMISSION.fullmatch(id) is None:
        raise RequestError(
            Code.BAD_ARGUMENT, "a submission id has 1 to 64 letters, digits, dots, hyphens or underscores"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A study as stored before, or as it would be stored now, and what its analyst should know."""

    stored: StoredStudy
    plan: Plan
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What a study would be, if it were submitted now: `explanation` as `reporting.explain` says it, and the
    error to be expected (low, median, high), as sines."""

    plan: Plan
    explanation: Mapping[str, Any]
    sines: Sequence[float] | None


@dataclass(frozen=True, slots=True)
class Submissions:
    """Reads, plans and prices what analysts send."""

    _repository: Repository
    _keys: Keys
    _planning: PlanningPool
    _compute: Compute
    _config: Config
    _cache: PlanCache = field(default_factory=PlanCache)

    async def prepare(self, submission: Submission) -> Prepared:
        """The study that `submission` asks for.

        Raises:
            RequestError: the study is refused, asks for more than one study may reserve, the submission was
                used for another study, or its analyst did not sign this plan; or code `quota-exhausted`,
                before it is planned.
            PeerError: the signature does not hold.
        """
        repository, signed = self._repository, submission.authorization
        if signed is None:
            raise RequestError(
                Code.UNSIGNED,
                "this study is not signed by its analyst; explain it, sign the plan that comes back, and "
                "submit both: `eigenveil study submit` does that",
            )
        known = await repository.store.read(
            repository.studies.by_submission, submission.analyst, submission.id
        )
        if known is not None:
            return await self._again(submission, known)
        await repository.store.read(
            check_early, repository.store.reader, SubmissionQuota.of(self._config), submission.analyst,
            repository.clock(),
        )  # fmt: skip
        words = self._words(submission)
        made = self._cache.take(words)
        if made is None:
            made = await self._planning.ask(submission.analyst, "planned", **words)
        plan_json = made["plan"].encode()
        plan = await self._compute.run(self._repository.studies.plan, plan_json)
        at = self._repository.clock()
        check_authorization(signed, plan, at / 1000)
        check_price(plan, self._config)
        stored = StoredStudy(
            digest=plan.digest,
            name=plan.study.name,
            analyst=submission.analyst,
            submission=submission.id,
            plan_json=plan_json,
            signature=self._keys.sign_plan(plan_json),
            micro_rho=plan.cost.micro_rho,
            expected_rounds=made["rounds"],
            state=first_state(plan, self._config),
            failure="",
            submitted_at=at,
            begun_at=at,
            stated=_stated(plan, submission.directory),
            authorization_json=canonical(signed.to_dict()).decode(),
        )
        return Prepared(stored=stored, plan=plan, warnings=made["warnings"])

    async def _again(self, submission: Submission, known: StoredStudy) -> Prepared:
        plan = await self._compute.run(self._repository.studies.plan_of, known)
        words = {"study_toml": submission.study_toml, "plan": known.plan_json.decode()}
        warnings = await self._planning.ask(submission.analyst, "again", **words)
        if warnings is None:
            raise used(known)
        return Prepared(stored=known, plan=plan, warnings=[*warnings, *_later(submission, known)])

    async def explained(self, submission: Submission) -> tuple[Plan, str]:
        """The plan that its analyst signs, and what it would ask, reveal and cost, as JSON; refused wherever
        submitting it now would be.

        Raises:
            RequestError: as `prepare`; or code `budget-exhausted`.
        """
        plan, told = await self._unsubmitted(submission, "explained")
        if submission.id != DRAFT:  # whoever names a submission goes on to sign and submit it
            self._cache.put(self._words(submission), told)
        return plan, told["explanation"]

    async def foreseen(self, submission: Submission) -> Foreseen:
        """The same, with the error to be expected. Raises as `explained`."""
        plan, told = await self._unsubmitted(submission, "foreseen")
        return Foreseen(plan=plan, explanation=told["explanation"], sines=told["sines"])

    async def _unsubmitted(self, submission: Submission, work: str) -> tuple[Plan, dict[str, Any]]:
        told = await self._planning.ask(submission.analyst, work, **self._words(submission))
        plan = await self._compute.run(self._repository.studies.plan, told["plan"].encode())
        check_price(plan, self._config)
        if await self._is_submitted(submission, plan):
            return plan, told  # asked again, as after a lost answer: nothing more is set aside for it
        try:
            await self._repository.store.read(self.check_quota, submission.analyst, plan.cost.micro_rho)
            self._repository.ledger.check(plan.digest, plan.cost, gaussian=plan.gaussian)
        except RequestError:
            if not await self._is_submitted(submission, plan):  # by a call at the same time
                raise
        return plan, told

    async def _is_submitted(self, submission: Submission, plan: Plan) -> bool:
        """Raises RequestError, code `conflict`: another study was, under this id."""
        if submission.id == DRAFT:
            return False
        repository = self._repository
        known = await repository.store.read(
            repository.studies.by_submission, submission.analyst, submission.id
        )
        if known is not None and known.digest != plan.digest:
            raise used(known)
        return known is not None

    def check_quota(self, analyst: str, micro_rho: int) -> None:
        """One analyst has so many studies under way, and with several of them holds so much of the budget;
        what a single study may reserve is `max_epsilon_per_study`.

        Raises:
            RequestError: one more would be too many, or too much.
        """
        own = self._repository.lists.of_analyst(analyst, (StudyState.AWAITING, StudyState.RUNNING))
        if len(own) >= self._config.max_studies_per_analyst:
            raise RequestError(
                Code.CONFLICT,
                f"{len(own)} studies of yours are under way, and the operator allows "
                f"{self._config.max_studies_per_analyst} (max_studies_per_analyst); wait for one to end, or "
                "cancel one",
            )
        running = [one for one in own if one.state is StudyState.RUNNING]
        held = sum(one.micro_rho - self._repository.ledger.spent(one.digest) for one in running)
        whole = self._repository.ledger.totals.limit.micro_rho
        most = int(self._config.max_share_per_analyst * whole)
        if held and held + micro_rho > most:
            raise RequestError(
                Code.BUDGET,
                f"your studies under way hold {percent_up(held, whole, 1)} % of the budget, this one would "
                f"add {percent_up(micro_rho, whole, 1)} %, and the operator lets one analyst hold "
                f"{percent_down(most, whole, 1)} % with several (max_share_per_analyst); nothing was "
                "reserved: wait for one to end, or cancel one",
            )

    def _words(self, submission: Submission) -> dict[str, Any]:
        return {
            "study_toml": submission.study_toml,
            "submission": submission.id,
            "analyst": submission.analyst,
            "directory": submission.directory,
            "most_columns": self._config.max_columns,
        }


def _stated(plan: Plan, directory: Directory) -> str:
    """What the sites of a study have stated of their rules, for its release. The columns that they offer do
    not matter any more."""
    sites = {name: directory.sites[name] for name in plan.study.federation.sites}
    told = {name: None if one is None else one.to_dict() for name, one in sites.items()}
    rules = {name: one and {key: one[key] for key in ("approval", "rules")} for name, one in told.items()}
    return json.dumps(rules, sort_keys=True)


def used(known: StoredStudy) -> RequestError:
    """The analyst gave this id to another study."""
    return RequestError(
        Code.CONFLICT,
        f"submission {known.submission} made another study before; choose a new submission id",
    )
