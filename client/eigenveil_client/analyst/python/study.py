"""A study that was checked against its federation, before submission, from a file or Python arguments."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.formatting import shown
from eigenveil.dictionary.directory import Directory, check_federation, check_study
from eigenveil.dictionary.readiness import left_out_warnings
from eigenveil.dictionary.study_files import draft_from_fields, listed_columns
from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.study.applicant import Applicant
from eigenveil.study.study import Study
from eigenveil.study.toml import StudyDraft, study_digest
from eigenveil_client.analyst.applicant import with_applicant
from eigenveil_client.analyst.coordinator import BlockingCoordinator
from eigenveil_client.analyst.display import explanation_text
from eigenveil_client.analyst.federation import (
    FEDERATION,
    FederationView,
    approval_deadline,
    check_dictionary,
    offering_sites,
    resolve_study,
    stated_person_column,
    with_fewer_batches,
)
from eigenveil_client.analyst.proposal import DAY_SECONDS, DEFAULT_DAYS, check_days
from eigenveil_client.analyst.python.plan import (
    Explanation,
    StudyPlan,
    Summary,
    budget_from,
    cost_of,
    plan_of,
    promise_text,
    scaling_text,
)
from eigenveil_client.analyst.python.run import Run
from eigenveil_proto.v1 import eigenveil_pb2 as pb

# the defaults of `eigenveil study new`
DEFAULTS = {"epsilon": 1.0, "delta": 1e-6, "components": 2}


def draft_of(fields: Mapping[str, Any], view: FederationView) -> StudyDraft:
    """Return the draft of a study for a federation, with defaults for the fields that were not given.

    The default sites are all but those that state that they lack a column; the default person column is the
    one that all of these state.

    Raises RequestError: code `bad-study`, an argument is unknown, or no site has all columns."""
    columns = listed_columns(fields.get("columns", ()))
    names = tuple(one if isinstance(one, str) else one.name for one in columns)
    sites = tuple(fields["sites"]) if "sites" in fields else offering_sites(view, names)
    defaults = {
        **DEFAULTS,
        "name": _name(names),
        "dictionary": FEDERATION,
        "deadline_seconds": approval_deadline(view, sites),
        "person_column": stated_person_column(view, sites),
    }
    return draft_from_fields({**defaults, **fields, "columns": columns, "sites": sites})


def _name(columns: tuple[str, ...]) -> str:
    """Return the default name of a study, from its first columns."""
    return re.sub("[^a-z0-9]+", "-", "-".join(columns).lower()).strip("-")[:63].strip("-") or "study"


LASTING = (pb.STUDY_STATE_RUNNING, pb.STUDY_STATE_RELEASED, pb.STUDY_STATE_AWAITING_APPROVAL)
SHOWN = 8  # columns in a summary


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FederatedStudy(Summary):
    """A study for one federation.

    `toml`: the study file, which may name columns of the dictionary. `study`: its value, with every unit and
    bound. `directory`: the sites' statements when it was made.

    `plan` makes no call, `explain` calls the coordinator; neither charges anything. `submit` starts the
    study."""

    coordinator: BlockingCoordinator
    toml: str
    resolved: StudyDraft  # the text that is sent, and its differences from the dictionary
    study: Study
    approval: Mapping[str, Any]  # the sites where a person decides, as they state, and the time limits
    directory: Directory | None = None

    _inner = ("coordinator", "resolved", "approval", "directory", "same", "submission_id")

    def plan(self) -> StudyPlan:
        """Return its plan, from public numbers and without a call. Raises RequestError: its algorithm cannot
        run it, or its epsilon is too small."""
        analyst = "" if self.directory is None else self.coordinator.identity.identity.name
        return plan_of(self.study, self.resolved.spreads, self.directory, analyst)

    def explain(self) -> Explanation:
        """Return the coordinator's explanation of its queries and cost; nothing is charged. Raises
        EigenveilError: the study is refused, or the coordinator cannot be reached."""
        self._check_offers()
        value = json.loads(self.coordinator.call(lambda analyst: analyst.explain(self.resolved.text)))
        value |= {"overrides": list(self.resolved.overrides)}
        if self.directory is not None:
            value["warnings"] += left_out_warnings(make_plan(self.study), self.directory)
        budget = budget_from(self.coordinator.call(lambda analyst: analyst.listed()))
        left = budget.studies_left(cost_of(value))
        return Explanation(value=value, text=explanation_text(value), left=left)

    def same(self, submission: str = "") -> pb.StudyRow | None:
        """Return your latest identical study that has or will have a result.

        None if there is none, or one has this submission id, as one id is one study."""
        mine = bytes.fromhex(study_digest(self.study))
        rows = self.coordinator.call(lambda analyst: analyst.studies())
        found = [row for row in rows if row.study_digest == mine and row.state in LASTING]
        return found[-1] if found and submission not in [row.submission for row in found] else None

    def submission_id(self, *, again: bool = False) -> str:
        """Return its submission id, as `Analyst.submission_id`; with `again` a new one."""
        if again:
            return uuid.uuid4().hex
        return self.coordinator.call(lambda analyst: analyst.submission_id(self.study))

    def submit(
        self,
        *,
        again: bool = False,
        submission: str | None = None,
        expires_days: int = DEFAULT_DAYS,
        notify: Callable[[str], None] = print,
    ) -> Run:
        """Sign it with your own key, start it, and return its run without waiting.

        This call is your consent. `notify` is called with what you sign first: every value of the study, the
        algorithm chosen for `auto`, and the warnings. If it raises, nothing is signed. The signature is valid
        for `expires_days` days, at most 31; sites refuse the study afterwards.

        A study that has or will have a result is charged again only with `again`. One `submission` id is one
        study, however often it is sent; the default is as in `submission_id`.

        Raises:
            RequestError: code `conflict`, this study has or will have a result; `bad-argument`,
                `expires_days` is out of range; or the study is refused.
            PeerError: the coordinator's plan is not of this study; nothing was signed.
            EigenveilError: the coordinator's own error, or it cannot be reached."""
        self._check_offers()
        chosen = submission or self.submission_id(again=again)
        check_days(expires_days)
        same = None if again else self.same(chosen)
        if same is not None:
            run = f'federation.run("{same.plan_digest.hex()[:12]}")'
            todo = f"See {run}, or repeat it with submit(again=True)"
            raise RequestError(Code.CONFLICT, f"not submitted: {repeated(same, self.study)}. {todo}")
        proposal = self.coordinator.call(
            lambda analyst: analyst.propose(
                self.resolved.text, chosen, days=expires_days, dictionary=self.resolved.source
            )
        )
        known = (*self.plan().warnings, *self._late(expires_days))
        notify("\n".join([proposal.summary, *(f"  warning: {one}" for one in known)]))
        plan, warnings = self.coordinator.call(lambda analyst: analyst.sign(proposal))
        every = tuple(dict.fromkeys((*warnings, *known)))
        return Run(self.coordinator, plan.digest, plan.study.name, submission=chosen, warnings=every)

    def _check_offers(self) -> None:
        """Check that each site offers the columns, which `plan` shows. Raises RequestError: code
        `bad-study`."""
        if self.directory is not None:
            check_study(self.study, self.directory)

    def _late(self, days: int) -> list[str]:
        """Return a warning if a person may decide after the signature has expired."""
        allowed = self.approval["approval_seconds"] / DAY_SECONDS
        if not self.approval["sites"] or allowed <= days:
            return []
        people = f"people at {', '.join(self.approval['sites'])} have {allowed:g} days to decide"
        late = "A site that agrees later cannot answer; see expires_days (--expires-days)"
        return [f"{people}, but your signature expires after {days}. {late}"]

    @property
    def title(self) -> str:
        return f"study {self.study.name}"

    def rows(self) -> list[tuple[str, str]]:
        names = [column.name for column in self.study.columns]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return [
            *([("purpose", self.study.purpose)] if self.study.purpose else []),
            *self.study.applicant.stated.items(),
            ("columns", ", ".join(names[:SHOWN]) + more),
            ("sites", ", ".join(self.study.federation.sites)),
            ("components", str(self.study.components)),
            ("epsilon", promise_text(self.study)),
            ("algorithm", self.study.algorithm.value),
            ("scaling", scaling_text(self.study)),
            *(("override", sentence) for sentence in self.resolved.overrides),
            *(("warning", sentence) for sentence in self.resolved.warnings),
        ]

    @property
    def note(self) -> str:
        people = ", ".join(self.approval["sites"])
        return f"Not submitted. A person decides about it at {people}." if people else "Not submitted."


def repeated(row: pb.StudyRow, study: Study) -> str:
    """Return a sentence that a study would be charged twice."""
    state = "waits or runs" if row.state != pb.STUDY_STATE_RELEASED else "is released"
    return (
        f"the same study {state} as {row.plan_digest.hex()[:12]}; submitted again it would spend another "
        f"epsilon of {shown(study.epsilon)}"
    )


def study_from(
    coordinator: BlockingCoordinator,
    view: FederationView,
    draft: StudyDraft,
    folder: Path,
    applicant: Applicant,
) -> FederatedStudy:
    """Return the study of a draft, checked against the federation; `folder` may hold its dictionary, and
    `applicant` has the texts that it does not state. Raises RequestError: it is refused, or the federation
    lacks its sites or columns; but for columns that a site does not offer, which `plan` shows."""
    check_dictionary(draft, view)
    whole = with_applicant(resolve_study(draft, folder, coordinator.profile), applicant)
    directory = view.directory
    check_federation(whole.study(), directory)
    resolved = with_fewer_batches(whole, directory)
    study = resolved.study()
    study.applicant.check_blanks()
    return FederatedStudy(
        coordinator=coordinator, toml=draft.text, resolved=resolved, study=study,
        approval=view.approval(study), directory=directory,
    )  # fmt: skip
