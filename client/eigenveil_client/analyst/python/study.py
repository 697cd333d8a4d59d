"""A study that was checked against its federation, before submission, from a file or Python arguments."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from eigenveil.accounting.formatting import shown
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.dictionary.dictionary import suggestion
from eigenveil.dictionary.directory import check_study
from eigenveil.dictionary.study_files import KEY, ResolvedStudy
from eigenveil.errors import Code, RequestError
from eigenveil.reporting.presentation import summary_html, summary_text
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.checks import field_types, study_error, to_plain, toml_text
from eigenveil.study.radius import PublicNorm, radius_value
from eigenveil.study.study import Choose, Column, Extraction, Federation, Missing, Scaling, Study, Trust
from eigenveil.study.toml import SECTIONS, parse_study, study_digest, study_to_toml
from eigenveil_client.analyst.coordinator import BlockingCoordinator
from eigenveil_client.analyst.display import explanation_text
from eigenveil_client.analyst.federation import (
    FEDERATION,
    FederationView,
    approval_deadline,
    offering_sites,
    resolve_study,
)
from eigenveil_client.analyst.proposal import DAY_SECONDS, DEFAULT_DAYS, check_days
from eigenveil_client.analyst.python.plan import Explanation, StudyPlan, budget_from, cost_of, plan_of
from eigenveil_client.analyst.python.run import Run
from eigenveil_proto.v1 import eigenveil_pb2 as pb

# the defaults of `eigenveil study new`
DEFAULTS = {"epsilon": 1.0, "delta": 1e-6, "components": 2}


class Choices(TypedDict, total=False):
    """Arguments of a study: `columns`, and others with defaults.

    `bounds`: replace the dictionary's. `dictionary`: a dictionary other than the federation's. The rest are
    keys of deploy/config/study.example.toml."""

    columns: Sequence[str | Column]
    bounds: Mapping[str, tuple[float, float]]
    dictionary: str
    name: str
    purpose: str
    sites: Sequence[str]
    epsilon: float
    delta: float
    components: int
    algorithm: Algorithm | str
    choose: Choose | str
    rank: Extraction | str
    batches: int
    neighbours: Neighbours | str
    max_sites_per_person: int
    radius: float | str | PublicNorm
    trust: Trust | str
    colluding: int
    attempts: int
    missing: Missing | str
    person_column: str
    centring: bool
    scaling: Scaling | str
    grid_steps: int
    max_records: int
    expected_records: int
    required: Sequence[str]
    quorum: int
    deadline_seconds: float
    minimum_cohort: int


def study_file(choices: Choices, view: FederationView) -> str:
    """Return the text of a study file. The default sites are all but those that state that they lack a
    column.

    Raises:
        RequestError: code `bad-study`, an argument is unknown, or no site has all columns.
    """
    unknown = [name for name in choices if name not in Choices.__annotations__]
    if unknown:
        hinted = ", ".join(f"{name!r}{suggestion(name, Choices.__annotations__)}" for name in unknown)
        raise study_error(f"unknown argument of a study: {hinted}")
    columns = _columns(choices)
    names = tuple(row if isinstance(row, str) else str(row["name"]) for row in columns)
    arguments: dict[str, Any] = {**DEFAULTS, "name": _name(names), **choices}
    if "radius" in arguments and not isinstance(arguments["radius"], str):
        arguments["radius"] = radius_value(arguments["radius"])
    arguments["sites"] = (
        list(arguments["sites"]) if "sites" in arguments else list(offering_sites(view, names))
    )
    arguments.setdefault("deadline_seconds", approval_deadline(view, tuple(arguments["sites"])))
    data: dict[str, Any] = _selected(SECTIONS[""], arguments)
    data[KEY] = choices.get("dictionary", FEDERATION)
    if all(isinstance(row, dict) and "unit" in row for row in columns):
        del data[KEY]  # all units and bounds are stated
    data["columns"] = columns
    for section in ("privacy", "records"):
        data[section] = _selected(SECTIONS[section], arguments)
    return toml_text(data | {"federation": _selected(tuple(field_types(Federation)), arguments)})


def _selected(keys: tuple[str, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(key, arguments[key]) for key in keys if key in arguments}


def _plain(name: str, value: Any) -> Any:
    """Return a value of TOML; numpy's numbers become numbers."""
    value = value.item() if hasattr(value, "item") else value
    value = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else to_plain(value)
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    raise study_error(f"{name} = {value!r} is not a valid value in a study")


def _columns(choices: Choices) -> list[Any]:
    """Return the columns of a study file: names, or tables where the study states more than a name."""
    named: Any = choices.get("columns", ())
    stated = [] if isinstance(named, str) else list(named)  # an index of pandas as well
    if not stated:
        raise study_error('columns must be a list of names, such as columns=["age", "bmi"]')
    bounds = dict(choices.get("bounds", {}))
    rows = [_column(one, bounds.pop(one if isinstance(one, str) else one.name, None)) for one in stated]
    if bounds:
        known = [one if isinstance(one, str) else one.name for one in stated]
        hinted = ", ".join(f"{name!r}{suggestion(name, known)}" for name in bounds)
        raise study_error(f"bounds for columns that are not in this study: {hinted}")
    return rows


def _column(column: str | Column, bounds: tuple[float, float] | None) -> Any:
    if isinstance(column, str) and bounds is None:
        return column
    row = (
        {"name": column} if isinstance(column, str) else {k: getattr(column, k) for k in field_types(Column)}
    )
    return row if bounds is None else row | _bounds(str(row["name"]), bounds)


def _bounds(name: str, bounds: Any) -> dict[str, float]:
    try:
        lower, upper = map(float, () if isinstance(bounds, str) else bounds)
    except (TypeError, ValueError) as problem:
        raise study_error(f"bounds of {name!r} must be a pair (lower, upper), got {bounds!r}") from problem
    return {"lower": lower, "upper": upper}


def _name(columns: tuple[str, ...]) -> str:
    """Return the default name of a study, from its first columns."""
    return re.sub("[^a-z0-9]+", "-", "-".join(columns).lower()).strip("-")[:63].strip("-") or "study"


LASTING = (pb.STUDY_STATE_RUNNING, pb.STUDY_STATE_RELEASED, pb.STUDY_STATE_AWAITING_APPROVAL)
SHOWN = 8  # columns in a summary


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedStudy:
    """A study for one federation.

    `toml`: the study file, which names columns of the dictionary. `whole`: the text that is sent, with every
    unit and bound, and its differences from the dictionary. `study`: its value. `asked`: the sites where a
    person decides, as they state, and the time limits.

    `plan` makes no call, `explain` calls the coordinator; neither charges anything. `submit` starts the
    study.
    """

    coordinator: BlockingCoordinator
    toml: str
    resolved: ResolvedStudy
    study: Study
    approval: Mapping[str, Any]

    def plan(self) -> StudyPlan:
        """Return its plan, from public numbers and without a call.

        Raises:
            RequestError: its algorithm cannot run it, or its epsilon is too small.
        """
        return plan_of(self.study)

    def explain(self) -> Explanation:
        """Return the coordinator's explanation of its queries and cost; nothing is charged.

        Raises:
            EigenveilError: the study is refused, or the coordinator cannot be reached.
        """
        value = json.loads(self.coordinator.call(lambda analyst: analyst.explain(self.resolved.text)))
        value |= {"overrides": list(self.resolved.overrides)}
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

        This call is your consent. `notify` is called with what you sign first: every value of the study, and
        the algorithm chosen for `auto`. If it raises, nothing is signed. The signature is valid for
        `expires_days` days, at most 31; sites refuse the study afterwards.

        A study that has or will have a result is charged again only with `again`. One `submission` id is one
        study, however often it is sent; the default is as in `submission_id`.

        Raises:
            RequestError: code `conflict`, this study has or will have a result; `bad-argument`,
            `expires_days` is
                out of range; or the study is refused.
            PeerError: the coordinator's plan is not of this study; nothing was signed.
            EigenveilError: the coordinator's own error, or it cannot be reached.
        """
        chosen = submission or self.submission_id(again=again)
        check_days(expires_days)
        same = None if again else self.same(chosen)
        if same is not None:
            raise RequestError(
                Code.CONFLICT,
                f"not submitted: {repeated(same, self.study)}. See federation.run("
                f'"{same.plan_digest.hex()[:12]}"), or repeat it with submit(again=True)',
            )
        proposal = self.coordinator.call(
            lambda analyst: analyst.propose(
                self.resolved.text, chosen, days=expires_days, dictionary=self.resolved.source
            )
        )
        notify(proposal.summary)
        plan, warnings = self.coordinator.call(lambda analyst: analyst.sign(proposal))
        warnings += self._late(expires_days)
        return Run(
            self.coordinator, plan.digest, plan.study.name, submission=chosen, warnings=tuple(warnings)
        )

    def _late(self, days: int) -> list[str]:
        """Return a warning if a person may decide after the signature has expired."""
        allowed = self.approval["approval_seconds"] / DAY_SECONDS
        if not self.approval["sites"] or allowed < days:
            return []
        people = ", ".join(self.approval["sites"])
        late = (
            f"people at {people} have {allowed:g} days to decide, but your signature expires after {days}. A "
            "site that agrees later cannot answer; see expires_days (--expires-days)"
        )
        return [late]

    def _rows(self) -> list[tuple[str, str]]:
        names = [column.name for column in self.study.columns]
        epsilon, delta = shown(self.study.epsilon), shown(self.study.delta)
        promise = f"{epsilon} ({self.study.neighbours.value}), except with probability {delta}"
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return [
            *([("purpose", self.study.purpose)] if self.study.purpose else []),
            ("columns", ", ".join(names[:SHOWN]) + more),
            ("sites", ", ".join(self.study.federation.sites)),
            ("components", str(self.study.components)),
            ("epsilon", promise),
            ("algorithm", self.study.algorithm.value),
            *(("override", sentence) for sentence in self.resolved.overrides),
        ]

    def __repr__(self) -> str:
        return summary_text(f"study {self.study.name}", self._rows(), note=self._note())

    def _repr_html_(self) -> str:
        return summary_html(f"Study {self.study.name}", self._rows(), note=self._note())

    def _note(self) -> str:
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
    coordinator: BlockingCoordinator, view: FederationView, toml: str, folder: Path
) -> FederatedStudy:
    """Return the study in the text of a file, checked against the federation.

    Raises:
        RequestError: it is refused, or the federation lacks its sites or columns.
    """
    whole = resolve_study(toml, folder, coordinator.profile)
    study = parse_study(whole.text)
    check_study(study, view.directory)
    return FederatedStudy(
        coordinator=coordinator, toml=toml, resolved=whole, study=study, approval=view.approval(study)
    )


def study_of(coordinator: BlockingCoordinator, view: FederationView, choices: Choices) -> FederatedStudy:
    """Return the study of these choices. Raises as `study_from`."""
    return study_from(coordinator, view, study_file(choices, view), Path())


def study_from_value(coordinator: BlockingCoordinator, view: FederationView, study: Study) -> FederatedStudy:
    """Return the study of a `Study` that was built in Python. Raises as `study_from`."""
    return study_from(coordinator, view, study_to_toml(study), Path())
