"""Whether a study fits what is public of a federation: its sites, its dictionary and what sites state.

The analyst's command asks this before it sends anything, the coordinator before it plans: one answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.dictionary.dictionary import nearest, number
from eigenveil.dictionary.rules import forbidding, rules_from_dict
from eigenveil.dictionary.statement import SiteStatement
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.study.checks import refuse
from eigenveil.study.study import Study

PERSON_SECONDS = 3600.0  # the least in which a person at a site can be expected to decide
MOST_NAMED = 20
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What is public of a federation: every enrolled site with its statement (None: it states nothing), the
    columns of the published dictionary (None: there is none), and for how long a study waits for people at
    sites."""

    federation: str
    sites: Mapping[str, SiteStatement | None]
    columns: tuple[str, ...] | None
    approval_seconds: float

    @property
    def known_columns(self) -> tuple[str, ...]:
        """Every column that is in the dictionary or that a site offers."""
        offered = (one.offers or () for one in self.sites.values() if one is not None)
        return tuple(dict.fromkeys([*(self.columns or ()), *(name for names in offered for name in names)]))


def directory_to_dict(directory: Directory) -> dict[str, Any]:
    """Plain values, for another process."""
    told = {name: None if one is None else one.to_dict() for name, one in directory.sites.items()}
    return {
        "federation": directory.federation,
        "sites": told,
        "columns": directory.columns,
        "approval_seconds": directory.approval_seconds,
    }


def directory_from_dict(data: Mapping[str, Any]) -> Directory:
    """The inverse of `directory_to_dict`."""
    return Directory(
        federation=data["federation"],
        sites={name: None if one is None else _statement(one) for name, one in data["sites"].items()},
        columns=None if data["columns"] is None else tuple(data["columns"]),
        approval_seconds=data["approval_seconds"],
    )


def _statement(told: Mapping[str, Any]) -> SiteStatement:
    allows = None if told["allows"] is None else rules_from_dict(told["allows"])
    return SiteStatement(
        offers=told["offers"], asks=told["approval"] == "ask", allows=allows, **told["rules"]
    )


def check_study(study: Study, directory: Directory) -> None:
    """Insist that the federation has a study's sites and columns, and that people have time to agree.

    Raises:
        RequestError: code `bad-study`, with all that does not fit.
    """
    wrong = [*_strange_sites(study, directory), *_columns(study, directory), *_hurried(study, directory)]
    if wrong:
        raise refuse("; ".join(wrong))


def check_rules(plan: Plan, directory: Directory) -> list[str]:
    """Insist that enough of a plan's sites may answer it by their own stated rules; a sentence that names the
    others, if there are any.

    Raises:
        RequestError: code `site-policy`: a required site is among them, or the rest is below the quorum.
    """
    stated = {site: one.allows for site, one in directory.sites.items() if one is not None}
    found, federation = dict(forbidding(plan, stated)), plan.study.federation
    if not found:
        return []
    named = "; ".join(f"{site} ({', '.join(rules)})" for site, rules in found.items())
    left = len(federation.sites) - len(found)
    if left < federation.least or found.keys() & set(federation.required):
        raise RequestError(
            Code.POLICY,
            f"the rules that sites have stated forbid this study: {named}; nothing was submitted: change "
            "what they name, ask there, or leave these sites out",
        )
    return [f"by their own stated rules these sites will decline: {named}"]


def _strange_sites(study: Study, directory: Directory) -> Iterator[str]:
    strange = sorted(set(study.federation.sites) - set(directory.sites))
    if strange:
        meant = ", ".join(f"{name}{nearest(name, directory.sites)}" for name in strange)
        enrolled = ", ".join(sorted(directory.sites)) or "none"
        yield f"not enrolled in {directory.federation}: {meant} (enrolled sites: {enrolled})"


def _columns(study: Study, directory: Directory) -> Iterator[str]:
    named = [column.name for column in study.columns]
    known = directory.known_columns
    unknown = [] if directory.columns is None else [name for name in named if name not in set(known)]
    if unknown:
        meant = _listed([f"{name!r}{nearest(name, known)}" for name in unknown])
        yield f"neither in the dictionary of {directory.federation} nor offered by a site: {meant}"
    for site in study.federation.sites:
        stated = directory.sites.get(site)
        if stated is None or stated.offers is None:
            continue
        offers, gone = set(stated.offers), set(unknown)
        missing = [name for name in named if name not in offers and name not in gone]
        if missing:
            meant = _listed([f"{name!r}{'' if name in known else nearest(name, offers)}" for name in missing])
            yield f"{site} states that it does not offer {meant}"


def _listed(names: Collection[str]) -> str:
    """As many as a person reads."""
    shown = list(names)[:MOST_NAMED]
    return ", ".join(shown) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _hurried(study: Study, directory: Directory) -> Iterator[str]:
    """A study waits for people for as long as the operator says, and for its own deadline in any case."""
    seconds = max(directory.approval_seconds, study.federation.deadline_seconds)
    stated = {site: directory.sites.get(site) for site in study.federation.sites}
    asking = [site for site, one in stated.items() if one is not None and one.asks]
    if asking and seconds < PERSON_SECONDS:
        yield (
            f"at {', '.join(asking)} a person decides about every study, and this one would wait "
            f"{number(seconds)} s for it: state deadline_seconds of at least {number(PERSON_SECONDS)}, or "
            f"have the operator raise approval_hours ({directory.approval_seconds / HOUR_SECONDS:g})"
        )
