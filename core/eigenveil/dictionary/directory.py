"""Public directory of a federation: sites, dictionary, sites' statements, and checks of a study against it.
The analyst's command runs the checks before it sends a study, and the coordinator before it plans one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eigenveil.dictionary.dictionary import listed, number_text, suggestion
from eigenveil.dictionary.site_limits import StatedLimits, limits_from_dict, limits_from_proto
from eigenveil.dictionary.site_rules import StatedRules, rules_from_proto
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.protocol.capabilities import Capabilities, capabilities_from_dict
from eigenveil.study.checks import check_readable, coerce_fields, need, to_plain
from eigenveil.study.scaling import NO_SPREADS, PlausibleSpread, Spreads
from eigenveil.study.study import MAX_COLUMNS, MAX_NAME_LENGTH, Study
from eigenveil_proto.v1 import eigenveil_pb2 as pb

MOST_BYTES = 64 * 1024
RULES = ("max_missing", "max_unreadable", "max_out_of_bounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatement:
    """Statement of a site: the `columns` that it offers, its `study_rules` and `limits` (None: not stated).
    `needs_approval`: a person decides about every study. The site does not answer about a column if a larger
    share of persons has missing, unreadable or out-of-bounds values than `max_missing`, `max_unreadable` or
    `max_out_of_bounds`. Raises: RequestError, code `bad-study`."""

    columns: tuple[str, ...] | None = None
    needs_approval: bool
    max_missing: float
    max_unreadable: float
    max_out_of_bounds: float
    study_rules: StatedRules | None = None
    limits: StatedLimits | None = None

    def __post_init__(self) -> None:
        coerce_fields(self)
        for name in RULES:
            share = getattr(self, name)
            need(math.isfinite(share) and 0 <= share <= 1, f"{name} must lie between 0 and 1")
        for name in self.columns or ():
            check_readable("the name of a column that a site offers", name, MAX_NAME_LENGTH)
        need(len(self.columns or ()) <= MAX_COLUMNS, f"a site can offer at most {MAX_COLUMNS} columns")
        if self.limits is not None:
            check_readable("person_column", self.limits.person_column, MAX_NAME_LENGTH)
        size = self.to_proto().ByteSize()
        need(
            size <= MOST_BYTES,
            f"the site's statement has {size} bytes, over the limit of {MOST_BYTES}; offer fewer columns",
        )

    @property
    def approval(self) -> str:
        """Decision about a study, by a person or by rules, as in site.toml."""
        return "manual" if self.needs_approval else "auto"

    @property
    def thresholds(self) -> dict[str, float]:
        """Thresholds by their keys in site.toml."""
        return {name: getattr(self, name) for name in RULES}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for output or a document."""
        return {
            "columns": to_plain(self.columns),
            "approval": self.approval,
            "thresholds": self.thresholds,
            "study_rules": None if self.study_rules is None else self.study_rules.to_dict(),
            "limits": None if self.limits is None else self.limits.to_dict(),
        }

    def visible_to(self, analyst: str) -> SiteStatement:
        """Return the statement as shown to one analyst."""
        rules = self.study_rules
        return self if rules is None else replace(self, study_rules=rules.visible_to(analyst))

    def to_proto(self) -> pb.SiteStatement:
        """Return the protocol message."""
        return pb.SiteStatement(
            columns_stated=self.columns is not None,
            columns=self.columns or (),
            needs_approval=self.needs_approval,
            study_rules=None if self.study_rules is None else self.study_rules.to_proto(),
            limits=None if self.limits is None else self.limits.to_proto(),
            **self.thresholds,
        )


def statement_from_proto(message: pb.SiteStatement) -> SiteStatement:
    """Return the statement in a message, if it is valid. Raises: PeerError, code `protocol`."""
    if message.ByteSize() > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"the site's statement has more than {MOST_BYTES} bytes")
    try:
        return SiteStatement(
            columns=tuple(message.columns) if message.columns_stated else None,
            needs_approval=message.needs_approval,
            study_rules=rules_from_proto(message.study_rules) if message.HasField("study_rules") else None,
            limits=limits_from_proto(message.limits) if message.HasField("limits") else None,
            **{name: getattr(message, name) for name in RULES},
        )
    except RequestError as problem:
        raise PeerError(Code.PROTOCOL, f"the site's statement is invalid: {problem}") from problem


PERSON_SECONDS = 3600.0  # least time for a person at a site to decide
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Public information on a federation. `sites` maps each enrolled site to its statement, or None.
    `columns` are those of the published dictionary, or None. `approval_seconds` is the time that a study
    waits for people at sites. `capabilities` are the versions that sites have, as far as they are known.
    `spreads` are the plausible spreads in the dictionary."""

    federation: str
    sites: Mapping[str, SiteStatement | None]
    columns: tuple[str, ...] | None
    approval_seconds: float
    capabilities: Mapping[str, Capabilities] = field(default_factory=dict)
    spreads: Spreads = field(default_factory=lambda: NO_SPREADS)

    @property
    def known_columns(self) -> tuple[str, ...]:
        """All columns in the dictionary or offered by a site."""
        offered = (one.columns or () for one in self.sites.values() if one is not None)
        return tuple(dict.fromkeys([*(self.columns or ()), *(name for names in offered for name in names)]))


def directory_from_dict(data: Mapping[str, Any]) -> Directory:
    """Return the directory in plain values, as `plain_fields` gives them."""
    sites = {name: None if one is None else _statement(one) for name, one in data["sites"].items()}
    columns = None if data["columns"] is None else tuple(data["columns"])
    known = {name: capabilities_from_dict(one) for name, one in data["capabilities"].items()}
    spreads = {name: PlausibleSpread(*one) for name, one in data["spreads"].items()}
    return Directory(
        **{**data, "sites": sites, "columns": columns, "capabilities": known, "spreads": spreads}
    )


def _statement(data: Mapping[str, Any]) -> SiteStatement:
    rules, limits = data["study_rules"], data["limits"]
    stated = {
        "study_rules": None if rules is None else StatedRules(**rules),
        "limits": None if limits is None else limits_from_dict(limits),
    }
    return SiteStatement(**{**data, **stated})


def check_study(study: Study, directory: Directory) -> None:
    """Check that the federation has the study's sites, that each site offers its columns, and that people
    have time to decide. Raises: RequestError, code `bad-study`, with all problems."""
    _need_none(_unknown_sites, _unknown_columns, _not_offered, _short_waits, study=study, directory=directory)


def check_federation(study: Study, directory: Directory) -> None:
    """Check the same but for what each site offers, which `readiness` shows. Raises as `check_study`."""
    _need_none(_unknown_sites, _unknown_columns, _short_waits, study=study, directory=directory)


def _need_none(
    *checks: Callable[[Study, Directory], Iterator[str]], study: Study, directory: Directory
) -> None:
    problems = [problem for check in checks for problem in check(study, directory)]
    need(not problems, "; ".join(problems))


def _unknown_sites(study: Study, directory: Directory) -> Iterator[str]:
    unknown = sorted(set(study.federation.sites) - set(directory.sites))
    if unknown:
        named = ", ".join(f"{name}{suggestion(name, directory.sites)}" for name in unknown)
        enrolled = ", ".join(sorted(directory.sites)) or "none"
        yield f"not enrolled in {directory.federation}: {named} (enrolled sites: {enrolled})"


def _unknown_columns(study: Study, directory: Directory) -> Iterator[str]:
    unknown = _unknown(study, directory)
    if unknown:
        names = listed([f"{name!r}{suggestion(name, directory.known_columns)}" for name in unknown])
        yield f"neither in the dictionary of {directory.federation} nor offered by a site: {names}"


def _unknown(study: Study, directory: Directory) -> list[str]:
    known = set(directory.known_columns)
    return [] if directory.columns is None else [one.name for one in study.columns if one.name not in known]


def _not_offered(study: Study, directory: Directory) -> Iterator[str]:
    known, gone = set(directory.known_columns), set(_unknown(study, directory))
    for site, stated in _stated(study, directory):
        offers = stated.columns
        if offers is None:
            continue
        fine = gone.union(offers)
        missing = [one.name for one in study.columns if one.name not in fine]
        if missing:
            hinted = [f"{name!r}{'' if name in known else suggestion(name, offers)}" for name in missing]
            yield f"{site} does not offer {listed(hinted)}"


def _stated(study: Study, directory: Directory) -> Iterator[tuple[str, SiteStatement]]:
    """Yield the sites of a study that have stated something, with their statements."""
    for site in study.federation.sites:
        statement = directory.sites.get(site)
        if statement is not None:
            yield site, statement


def _short_waits(study: Study, directory: Directory) -> Iterator[str]:
    """Yield a problem if people at sites have too little time: approval hours and deadline are both short."""
    seconds = max(directory.approval_seconds, study.federation.deadline_seconds)
    asking = [site for site, one in _stated(study, directory) if one.needs_approval]
    if asking and seconds < PERSON_SECONDS:
        yield (
            f"at {', '.join(asking)} a person decides about every study, and this study waits only "
            f"{number_text(seconds)} s: state deadline_seconds of at least {number_text(PERSON_SECONDS)}, "
            f"or ask the operator to raise approval_hours ({directory.approval_seconds / HOUR_SECONDS:g})"
        )
