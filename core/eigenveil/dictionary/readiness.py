"""Readiness of a study's sites, by their statements alone: which columns each one states, and which of its
stated settings do not fit the study. The coordinator refuses a study by it before a person is asked, and the
analyst's programs show it. Nothing here is about records [R23]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eigenveil.dictionary.dictionary import listed
from eigenveil.dictionary.directory import Directory, SiteStatement
from eigenveil.dictionary.site_rules import Verdict
from eigenveil.errors import Code, RequestError

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan
    from eigenveil.protocol.query import RoundQuery

MOST_LISTED = 20  # sites in a message, and columns of one: a study may have 1,000 and 20,000


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReadiness:
    """Readiness of one site. `lacking` are columns that it states not to have, `unstated` those of which it
    states nothing. `failed` are the verdicts of its settings that forbid the study. Without `states_columns`
    or `states_settings` it states none at all, so nothing of that kind can fail here."""

    site: str
    lacking: tuple[str, ...]
    unstated: tuple[str, ...]
    failed: tuple[Verdict, ...] = ()
    states_columns: bool = False
    states_settings: bool = False

    @property
    def ready(self) -> bool:
        """True if the site states nothing that forbids the study."""
        return not (self.lacking or self.failed)

    @property
    def summary(self) -> str:
        """The site with the settings and columns that do not fit, as "alpha: person_column (...)"."""
        lacking = [f"no column {listed([repr(name) for name in self.lacking])}"] if self.lacking else []
        return f"{self.site}: {', '.join([*(one.short for one in self.failed), *lacking])}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for output or a document."""
        return {
            "site": self.site,
            "ready": self.ready,
            "columns_lacking": list(self.lacking[:MOST_LISTED]),
            "columns_not_stated": len(self.unstated),
            "settings": "stated" if self.states_settings else "not stated",
            "failed": [{"rule": one.rule, "needed": one.short} for one in self.failed],
        }


def readiness(
    plan: Plan, directory: Directory, round_queries: Sequence[RoundQuery] | None = None
) -> tuple[SiteReadiness, ...]:
    """Return the readiness of each site of a plan, in the study's order. The memory of a site is compared
    only with all `round_queries` of the plan."""
    return tuple(
        _readiness(plan, site, directory.sites.get(site), round_queries)
        for site in plan.study.federation.sites
    )


def _readiness(
    plan: Plan, site: str, stated: SiteStatement | None, round_queries: Sequence[RoundQuery] | None
) -> SiteReadiness:
    names = tuple(column.name for column in plan.study.columns)
    if stated is None:
        return SiteReadiness(site=site, lacking=(), unstated=names)
    rules, limits = stated.study_rules, stated.limits
    offers, has = stated.columns is not None, set(stated.present_columns)
    others = tuple(name for name in names if name not in has) if has else names
    verdicts = [
        *(() if rules is None else rules.verdicts(plan)),
        *(() if limits is None else limits.verdicts(plan, round_queries)),
    ]
    return SiteReadiness(
        site=site,
        lacking=others if offers else (),
        unstated=() if offers else others,
        failed=tuple(verdict for verdict in verdicts if not verdict.passed),
        states_columns=offers or bool(has),
        states_settings=rules is not None or limits is not None,
    )


def sufficient_batches(plan: Plan, directory: Directory) -> int | None:
    """Return fewer batches for a plan, which the stated limits of its sites allow; None if the study states
    its batches, or those of the plan fit. It is never less than `Plan.fewest_batches`."""
    stated = (directory.sites.get(site) for site in plan.study.federation.sites)
    limits = [one.limits for one in stated if one is not None and one.limits is not None]
    if plan.study.batches is not None or plan.batches == 1 or not limits:
        return None
    allowed = min(one.minimum_records // one.minimum_records_per_batch for one in limits)
    batches = max(allowed, plan.fewest_batches)
    return batches if batches < plan.batches else None


def check_readiness(plan: Plan, found: Sequence[SiteReadiness]) -> list[str]:
    """Check that enough sites allow a plan by their stated settings; return `warnings`. Raises RequestError:
    code `site-policy`, with `refusal`."""
    refused = refusal(plan, found)
    if refused:
        raise RequestError(Code.POLICY, refused)
    return warnings(plan, found)


def refusal(plan: Plan, found: Sequence[SiteReadiness]) -> str:
    """Return why a study is refused before it is submitted: the stated settings of a required site, or of too
    many sites for the quorum, forbid it. Empty if it is not."""
    federation = plan.study.federation
    forbidding = [one for one in found if one.failed]
    required = any(one.site in federation.required for one in forbidding)
    if not found or not (required or len(found) - len(forbidding) < federation.least):
        return ""
    return (
        f"the stated settings of sites do not allow this study: {_summaries(forbidding)}. Nothing was "
        "submitted: change the study, contact these sites, or leave them out"
    )


def warnings(plan: Plan, found: Sequence[SiteReadiness]) -> list[str]:
    """Return warnings that name the sites that will decline a plan, and columns that no site states to
    have."""
    forbidding = [one for one in found if one.failed]
    named = f"these sites will decline by their stated settings: {_summaries(forbidding)}"
    return [*([named] if forbidding else []), *_columns_of_no_site(plan, found)]


def _summaries(found: Sequence[SiteReadiness]) -> str:
    """Return the summaries of the first sites, as an error message has a limited length."""
    more = [f"and {len(found) - MOST_LISTED} more"] if len(found) > MOST_LISTED else []
    return "; ".join([*(one.summary for one in found[:MOST_LISTED]), *more])


def _columns_of_no_site(plan: Plan, found: Sequence[SiteReadiness]) -> list[str]:
    """Return a warning about columns that no site states to have, if any site states columns at all."""
    if not any(one.states_columns for one in found):
        return []
    absent = {column.name for column in plan.study.columns}
    for one in found:
        absent.intersection_update(one.lacking or one.unstated)
    none = [column.name for column in plan.study.columns if column.name in absent]
    if not none:
        return []
    unstated = ", ".join(one.site for one in found if not set(none).isdisjoint(one.unstated))
    text = (
        f"no site states that it has {listed([repr(name) for name in none])}; a site without it declines, "
        f"even after a person has agreed. Ask {unstated}, or leave the column out"
    )
    return [text]
