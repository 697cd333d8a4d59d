"""Readiness of a study's sites, by their statements alone: which of its columns each one offers, and which of
its stated settings do not fit the study. The coordinator refuses a study by it before a person is asked, and
the analyst's programs show it. Nothing here is about records [R23]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eigenveil.dictionary.dictionary import MOST_NAMED, listed
from eigenveil.dictionary.directory import Directory, SiteStatement
from eigenveil.dictionary.site_rules import Verdict
from eigenveil.errors import Code, RequestError

if TYPE_CHECKING:
    from eigenveil.protocol.plan import Plan
    from eigenveil.protocol.query import RoundQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReadiness:
    """Readiness of one site. `lacking` are the columns that it does not offer, `unstated` all columns if it
    does not state what it offers. `failed` are the verdicts of its settings that forbid the study. Without
    `states_settings` it states none, so none can fail."""

    site: str
    lacking: tuple[str, ...]
    unstated: tuple[str, ...]
    failed: tuple[Verdict, ...] = ()
    states_settings: bool = False

    @property
    def ready(self) -> bool:
        """True if the site states nothing that forbids the study."""
        return not (self.lacking or self.failed)

    @property
    def ready_text(self) -> str:
        """Yes or no; "not known" if the site does not state both its columns and its settings."""
        if not self.ready:
            return "no"
        return "yes" if self.states_settings and not self.unstated else "not known"

    @property
    def summary(self) -> str:
        """The site with the settings and columns that do not fit, as "alpha: person_column (...)"."""
        lacking = [self.columns_text] if self.lacking else []
        return f"{self.site}: {', '.join([*(one.short for one in self.failed), *lacking])}"

    @property
    def columns_text(self) -> str:
        """The columns of the study that the site offers, in a few words."""
        if self.lacking:
            return f"no column {listed([repr(name) for name in self.lacking])}"
        return "not stated" if self.unstated else "all"

    @property
    def settings_text(self) -> str:
        """The settings of the site that do not fit, in a few words."""
        stated = "fit" if self.states_settings else "not stated"
        return "; ".join(one.short for one in self.failed) or stated

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for output or a document."""
        return {
            "site": self.site,
            "ready": self.ready,
            "columns_lacking": list(self.lacking[:MOST_NAMED]),
            "columns_not_stated": len(self.unstated),
            "columns_text": self.columns_text,
            "settings_text": self.settings_text,
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
    offers = None if stated.columns is None else set(stated.columns)
    verdicts = [
        *(() if rules is None else rules.verdicts(plan)),
        *(() if limits is None else limits.verdicts(plan, round_queries)),
    ]
    return SiteReadiness(
        site=site,
        lacking=() if offers is None else tuple(name for name in names if name not in offers),
        unstated=names if offers is None else (),
        failed=tuple(verdict for verdict in verdicts if not verdict.passed),
        states_settings=rules is not None or limits is not None,
    )


def left_out(plan: Plan, directory: Directory) -> tuple[SiteReadiness, ...]:
    """Return the readiness of the sites that a plan does not ask and that do not offer one of its columns."""
    others = {site: one for site, one in directory.sites.items() if site not in plan.study.federation.sites}
    found = (_readiness(plan, site, stated, None) for site, stated in others.items())
    return tuple(one for one in found if one.lacking)


def left_out_warnings(plan: Plan, directory: Directory) -> list[str]:
    """Return a warning that names the sites that are `left_out`, and one if a single site is asked."""
    others, sites = left_out(plan, directory), plan.study.federation.sites
    named = "; ".join(f"{one.site}: {one.columns_text}" for one in others[:MOST_NAMED])
    more = f"; and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    found = [f"these sites are left out, as they do not offer a column: {named}{more}"] if others else []
    if len(sites) == 1 and len(directory.sites) > 1:
        found.append(f"of the federation's {len(directory.sites)} sites the study asks {sites[0]} alone")
    return found


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
        raise RequestError(Code.POLICY, f"not submitted: {refused}")
    return warnings(found)


def refusal(plan: Plan, found: Sequence[SiteReadiness]) -> str:
    """Return why a study is refused: a site does not offer a column, or the stated settings of a required
    site, or of too many sites for the quorum, forbid it. Empty if it is not."""
    federation = plan.study.federation
    unready = [one for one in found if not one.ready]
    required = any(one.lacking or one.site in federation.required for one in unready)
    if not found or not (required or len(found) - len(unready) < federation.least):
        return ""
    return (
        f"sites state that this study does not fit: {_summaries(unready)}. Change the study, contact these "
        "sites, or leave them out"
    )


def warnings(found: Sequence[SiteReadiness]) -> list[str]:
    """Return a warning that names the sites that will decline a plan, if there are any."""
    declining = [one for one in found if one.failed]
    text = f"these sites will decline by their stated settings: {_summaries(declining)}"
    return [text] if declining else []


def _summaries(found: Sequence[SiteReadiness]) -> str:
    """Return the summaries of the first sites, as an error message has a limited length."""
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return "; ".join([*(one.summary for one in found[:MOST_NAMED]), *more])
