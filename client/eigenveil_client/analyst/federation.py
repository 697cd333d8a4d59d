"""An analyst's view of a federation: its sites, their statements, its dictionary, and defaults of a study."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary, suggestion
from eigenveil.dictionary.directory import PERSON_SECONDS, Directory, SiteStatement, statement_from_proto
from eigenveil.dictionary.formats import parse_dictionary
from eigenveil.dictionary.readiness import sufficient_batches
from eigenveil.dictionary.study_files import complete
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.priors import prior_from_file
from eigenveil.reporting.verify import load_release
from eigenveil.study.checks import plain_fields, study_error, toml_text
from eigenveil.study.prior import PriorSource
from eigenveil.study.study import NAME, Study
from eigenveil.study.toml import PRIOR, StudyDraft, draft_from_toml, study_to_toml
from eigenveil_client.analyst.applicant import with_applicant
from eigenveil_client.analyst.display import time_of
from eigenveil_client.analyst.profile import default_profile, load_profile, next_command, stored_applicant
from eigenveil_client.analyst.release_files import check_signer
from eigenveil_client.connection.session_start import stored_dictionary
from eigenveil_common.command import errors
from eigenveil_common.examples import example
from eigenveil_common.files import path_exists, read, read_text
from eigenveil_proto.v1 import eigenveil_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSite:
    """Enrolled site, its statement (None: nothing stated), and the hour of its last contact. `seen` is None
    without a contact since the coordinator's start."""

    name: str
    statement: SiteStatement | None
    seen: datetime | None

    @property
    def offers(self) -> tuple[str, ...] | None:
        return None if self.statement is None else self.statement.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationView:
    """View of a federation at one moment."""

    name: str
    sites: tuple[ListedSite, ...]
    dictionary: Dictionary | None
    approval_seconds: float
    start_seconds: float

    def approval(self, study: Study) -> dict[str, Any]:
        """Return the sites of a study where a person decides, as they state, and the limits in seconds from
        now."""
        return {
            "sites": self.deciding(study.federation.sites),
            "approval_seconds": study.federation.seconds_to_decide(self.approval_seconds, time.time()),
            "start_seconds": self.start_seconds,
        }

    def deciding(self, sites: tuple[str, ...]) -> list[str]:
        """Return those of `sites` that state that a person decides."""
        stated = {one.name for one in self.sites if one.statement and one.statement.needs_approval}
        return [name for name in sites if name in stated]

    @property
    def directory(self) -> Directory:
        """The sites and columns that a study is checked against."""
        return Directory(
            federation=self.name,
            sites={site.name: site.statement for site in self.sites},
            columns=None if self.dictionary is None else tuple(self.dictionary.usable()),
            approval_seconds=self.approval_seconds,
        )


def listed(rows: Iterable[pb.SiteRow], after: str) -> list[ListedSite]:
    """Return the sites in the rows of an answer, all after the name `after`."""
    found = []
    for row in rows:
        if NAME.fullmatch(row.name) is None or row.name <= after:
            raise PeerError(Code.PROTOCOL, "the coordinator lists an invalid site, or one twice")
        after = row.name
        stated = statement_from_proto(row.statement) if row.HasField("statement") else None
        seen = time_of(row.last_call_unix_ms) if row.last_call_unix_ms else None
        found.append(ListedSite(name=row.name, statement=stated, seen=seen))
    return found


OWN_COLUMNS = (
    "state each column's unit and bounds: Column(...) objects in Python, [[columns]] in a study file"
)


def dictionary_of(view: FederationView) -> Dictionary:
    """Return the federation's dictionary. Raises RequestError: code `not-found`, none was published."""
    if view.dictionary is None:
        todo = f"Name another dictionary, such as clinical, or {OWN_COLUMNS}"
        raise RequestError(Code.NOT_FOUND, f"{view.name} has published no dictionary. {todo}")
    return view.dictionary


def offered_columns(view: FederationView) -> dict[str, tuple[str, ...]]:
    """Return the columns that each site offers, of the sites that state it."""
    return {one.name: one.offers for one in view.sites if one.offers is not None}


def offering_sites(view: FederationView | None, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sites, except those that state that they lack one of these columns."""
    sites = () if view is None else view.sites
    found = tuple(one.name for one in sites if one.offers is None or set(columns) <= set(one.offers))
    if not found:
        raise study_error("no site offers all of these columns. See `eigenveil columns`, or name sites")
    return found


def approval_deadline(view: FederationView | None, sites: tuple[str, ...]) -> float | None:
    """Return the deadline in seconds for approval by persons; None if the coordinator waits long enough."""
    if view is None or view.approval_seconds >= PERSON_SECONDS:
        return None
    return PERSON_SECONDS if view.deciding(sites) else None


def stated_person_column(view: FederationView | None, sites: tuple[str, ...]) -> str | None:
    """Return the name of the person column if all of these sites that state it state the same one."""
    stated = [one.statement for one in (view.sites if view else ()) if one.name in sites]
    names = {one.limits.person_column for one in stated if one is not None and one.limits is not None}
    return (names.pop() or None) if len(names) == 1 else None


FEDERATION = "federation"


def with_fewer_batches(draft: StudyDraft, directory: Directory) -> StudyDraft:
    """Return the complete draft of a study with as many batches as the stated settings of its sites allow, if
    the study leaves their number to the planner. Raises RequestError: its algorithm cannot run it."""
    study = draft.study()
    if study.batches is not None or not study.algorithm.properties.batches:
        return draft
    planned = make_plan(study)
    batches = sufficient_batches(planned, directory)
    if batches is None:
        return draft
    text = study_to_toml(replace(study, batches=batches))
    sentence = f"batches: {batches} instead of {planned.batches}, for the minimum_records that sites state"
    return replace(draft_from_toml(text), source=draft.source, overrides=(*draft.overrides, sentence))


def shipped() -> Dictionary:
    """Return the dictionary that is installed with eigenveil."""
    return parse_dictionary(example("dictionary"))


def find_dictionary(named: str, folder: Path, profile: Path | None) -> Dictionary:
    """Return the dictionary that a study file in `folder` calls `named`."""
    if named == FEDERATION:
        found = stored_dictionary(load_profile(profile))
        if found is None:
            todo = f"If one is published, `{next_command(profile, 'columns')}` fetches it; else {OWN_COLUMNS}"
            raise RequestError(Code.NOT_FOUND, f"your federation's dictionary is not here. {todo}")
        return found
    installed = shipped()
    if named == installed.name:
        return installed
    path = folder / named
    if not path_exists(path):
        names = (FEDERATION, installed.name)
        neither = f"is neither {' nor '.join(map(repr, names))} nor a file in {folder.absolute()}"
        raise RequestError(Code.NOT_FOUND, f"dictionary = {named!r} {neither}{suggestion(named, names)}")
    return parse_dictionary(read_text(path))


def read_study(path: Path, profile: Path | None = None) -> StudyDraft:
    """Return the study in a file, with units and bounds from its dictionary."""
    return resolve_study(draft_from_toml(read_text(path)), path.parent, profile)


def check_dictionary(draft: StudyDraft, view: FederationView) -> None:
    """Check that the dictionary of the federation is published if a draft needs it. Raises as
    `dictionary_of`."""
    if not draft.is_complete and draft.dictionary in (None, FEDERATION):
        dictionary_of(view)


def read_own_study(path: Path, profile: Path | None) -> StudyDraft:
    """Return the study in a file as this profile submits it: `read_study`, with the profile's applicant."""
    return with_applicant(read_study(path, profile), stored_applicant(profile or default_profile()))


def resolve_study(draft: StudyDraft, folder: Path, profile: Path | None) -> StudyDraft:
    """Return the draft of a study file of `folder` with its scaling, units and bounds from its dictionary,
    and the content of its prior's file."""
    rest, prior = without_prior(draft)
    found = _resolve_columns(rest, folder, profile)
    return found if prior is None else with_prior(found, folder / prior, profile)


def _resolve_columns(draft: StudyDraft, folder: Path, profile: Path | None) -> StudyDraft:
    if draft.is_complete:
        return draft.with_scaling()
    named = draft.dictionary or FEDERATION
    found = complete(draft, find_dictionary(named, folder, profile))
    by_coordinator = "the federation's dictionary, as its coordinator sent: " if named == FEDERATION else ""
    return replace(found.with_scaling(), source=f"{by_coordinator}{found.source}")


def without_prior(draft: StudyDraft) -> tuple[StudyDraft, str | None]:
    """Return the draft without the name of a prior's file, and this name, if it has one."""
    named: Any = draft.given.get(PRIOR)
    if not isinstance(named, str):
        return draft, None
    given = {key: value for key, value in draft.given.items() if key != PRIOR}
    return replace(draft, given=given, text=toml_text(given)), named


def with_prior(draft: StudyDraft, path: Path, profile: Path | None) -> StudyDraft:
    """Return the complete draft with the prior in a file, as it is sent. Raises RequestError: the file is no
    prior of this study, with its line; or a release of this profile's federation has another signer."""
    data, study = read(path), draft.study()
    try:
        prior = prior_from_file(data, study)
        unknown_signer = False
        if prior.source is PriorSource.RELEASE:
            unknown_signer = not check_signer(load_release(data), None, profile)
        replace(study, prior=prior)
    except RequestError as problem:
        raise RequestError(problem.code, f"{path}: {problem}") from problem
    signed = (
        f"the prior's release was signed by the key {prior.signer[:16]}..., which no profile here knows; "
        "compare it with the key of that federation"
    )
    given = {**draft.given, PRIOR: plain_fields(prior)}
    return replace(draft, given=given, text=toml_text(given), warnings=(signed,) if unknown_signer else ())


def print_overrides(draft: StudyDraft) -> None:
    """Print the values of a study that differ from its dictionary, or were chosen for its sites, and the
    warnings about its prior."""
    for sentence in draft.overrides:
        errors.print(f"override: {sentence}", style="yellow", markup=False, soft_wrap=True)
    for sentence in draft.warnings:
        errors.print(f"warning: {sentence}", style="yellow", markup=False, soft_wrap=True)
