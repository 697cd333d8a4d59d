"""Console pages of a site. Decisions use the functions of the commands, about the plan whose whole digest is
in the path: the one that was shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from eigenveil.accounting.budget import Conversion
from eigenveil.accounting.ledger import EntryKind, LedgerEntry
from eigenveil.dictionary.site_rules import MAX_SIGNER_NAME_LENGTH, MAX_TEXT_LENGTH, DeclineReason
from eigenveil.errors import Code, RequestError
from eigenveil_client.connection.identity import folder_identity, load_identity
from eigenveil_client.records.line_counts import LineCounts
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import consent, evidence
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_client.site.commands.column_profiles import ColumnFindings, profile_columns
from eigenveil_client.site.commands.console import labels
from eigenveil_client.site.commands.console.consent_summary import ConsentSummary, consent_summary, right_ever
from eigenveil_client.site.commands.console.mapping_page import mapping_routes
from eigenveil_client.site.commands.line_report import counted_lines
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.state import person_counts
from eigenveil_client.site.state.egress import EgressRow
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_client.site.state.store_access import open_site_store, runs_outdated
from eigenveil_common.web.pages import Pages, Translator, gauge, histogram_bars, mark, step_chart

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Console:
    """Context of the pages. Each request reads the configuration and opens the state again, because commands
    and a daemon may change both."""

    config_file: Path
    pages: Pages

    async def from_store(self, look: Callable[[SiteConfig, SiteStore], T]) -> T:
        """Return the result of `look` on the site's state, in a thread."""

        def done() -> T:
            config = site_config.load(self.config_file)
            with open_site_store(config) as store:
                return look(config, store)

        return await run_in_threadpool(done)

    async def summary(self, request: Request) -> ConsentSummary:
        """Return the consent summary of the study in the path."""
        return await self.from_store(
            lambda config, store: consent_summary(config, store, requested_study(store, request))
        )


def requested_study(store: SiteStore, request: Request) -> ReceivedPlan:
    """Return the study whose whole digest is in the path; else raise code `not-found`."""
    found = store.studies.get(request.path_params["study"])
    if found is None:
        store.studies.check_not_declined(request.path_params["study"])
        raise RequestError(Code.NOT_FOUND, "no such study was received here")
    return found


def routes(console: Console) -> list[Route]:
    """Return the routes of all pages."""
    pages: dict[str, Callable[[Console, Request], Awaitable[Response]]] = {
        "/": _studies,
        "/studies/{study}": partial(_study, template="study.html"),
        "/studies/{study}/sheet": partial(_study, template="sheet.html"),
        "/sent": _sent,
        "/sent/{row}": _recomputed_answer,
        "/columns": _columns,
        "/budget": _budget,
        "/connection": _connection,
        "/connection/checked": partial(_connection, checked=True),
    }
    mapping = mapping_routes(console.config_file, console.pages)
    return [*mapping, *(Route(path, partial(page, console)) for path, page in pages.items())] + [
        Route(f"/studies/{{study}}/{act}", partial(page, console, act), methods=[method])
        for act in ACTS
        for method, page in (("GET", _confirmation_page), ("POST", _apply))
    ]


async def _studies(console: Console, request: Request) -> Response:
    def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
        seen, pending = store.studies.all()[::-1], ConsentStatus.PENDING
        return {
            "waiting": [
                consent_summary(config, store, one, contents=False) for one in seen if one.status is pending
            ],
            "decided": [one for one in seen if one.status is not pending],
            "counts": store.declined.counts()[::-1],
            "unanswered": store.declined.unanswered_counts()[::-1],
            "proofs": store.proofs.all(),
            "outdated": runs_outdated(config),
        }

    found = await console.from_store(look)
    found |= {"standings": labels.STATUS_LABELS, "signatures": labels.SIGNATURE_LABELS}
    return console.pages.render(request, "studies.html", **found)


async def _study(console: Console, request: Request, template: str) -> Response:
    view = await console.summary(request)
    return console.pages.render(
        request, template, card=view, answers=labels.ANSWER_LABELS, rules=labels.RULE_LABELS,
        standings=labels.STATUS_LABELS,
        signatures=labels.SIGNATURE_LABELS,
        peoples=labels.PERSON_LABELS, units=labels.UNITS, reasons=labels.REASON_LABELS,
        applicant_labels=labels.APPLICANT_LABELS,
        outdated=await run_in_threadpool(runs_outdated, view.config),
    )  # fmt: skip


def _decline(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, form: FormData) -> None:
    word = {one.value: one for one in DeclineReason}.get(_field(form, "reason"))
    if word is None:
        raise RequestError(Code.BAD_ARGUMENT, "choose one of the reasons")
    consent.decline(config, store, seen, by=_name(form), word=word, text=_field(form, "text"))


ACTS: dict[str, Callable[[SiteConfig, SiteStore, ReceivedPlan, FormData], object]] = {
    "approve": lambda config, store, seen, form: consent.approve(config, store, seen, by=_name(form)),
    "decline": _decline,
    "withdraw": lambda config, store, seen, form: consent.withdraw(config, store, seen, by=_name(form)),
}


async def _confirmation_page(console: Console, act: str, request: Request) -> Response:
    view = await console.summary(request)
    return console.pages.render(
        request, "decide.html", card=view, act=act, reasons=labels.REASON_LABELS,
        telling=view.config.policy.disclose_reasons,
        longest_name=MAX_SIGNER_NAME_LENGTH, longest_text=MAX_TEXT_LENGTH,
    )  # fmt: skip


async def _apply(console: Console, act: str, request: Request) -> Response:
    form = await request.form()
    await console.from_store(
        lambda config, store: ACTS[act](config, store, requested_study(store, request), form)
    )
    return RedirectResponse(f"{console.pages.base}/studies/{request.path_params['study']}", status_code=303)


def _name(form: FormData) -> str:
    """Return the name of the person who decides; if it is empty, raise code `bad-argument`."""
    name = _field(form, "by")
    if not name:
        raise RequestError(Code.BAD_ARGUMENT, "enter the name of the person who decides")
    return name


def _field(form: FormData, name: str) -> str:
    sent = form.get(name)
    return sent.strip() if isinstance(sent, str) else ""


PER_PAGE = 100
MOST_NUMBERS = 500


async def _sent(console: Console, request: Request) -> Response:
    page = max(0, (_number(request.query_params.get("page", "")) or 1) - 1)

    def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
        rows, first = store.egress.verify(store.ledger)[::-1], page * PER_PAGE
        names = {seen.plan: seen.name for seen in store.studies.all()}
        return {
            "persons": store.person_counts.stored() is not None,
            "rows": [(row, names.get(row.study, "")) for row in rows[first : first + PER_PAGE]],
            "messages": len(rows),
            "bytes": sum(row.bytes for row in rows),
            "head": store.egress.head(),
            "calls": store.traffic.counts()[::-1][:PER_PAGE],
            "page": page,
            "pages": -(-len(rows) // PER_PAGE),
        }

    view = await console.from_store(look)
    return console.pages.render(request, "sent.html", answers=labels.ANSWER_LABELS, **view)


async def _recomputed_answer(console: Console, request: Request) -> Response:
    def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
        row = _row(store, request)
        seen = store.studies.get(row.study)
        view = evidence.recompute_answer(store, row, make_engine(config))
        return view | {"name": "" if seen is None else seen.name, "at": row.at, "bytes": row.bytes}

    view, most = await console.from_store(look), MOST_NUMBERS
    return console.pages.render(request, "numbers.html", view=view, answers=labels.ANSWER_LABELS, most=most)


def _number(text: str) -> int | None:
    """Return a typed number; None if it is invalid or too long for Python to parse."""
    return int(text) if text.isdecimal() and len(text) < 9 else None


def _row(store: SiteStore, request: Request) -> EgressRow:
    """Return the answer whose index is in the path. Raises RequestError, code `not-found`."""
    index = _number(request.path_params["row"])
    found = [row for row in store.egress.rows() if row.index == index and row.answers]
    if not found:
        raise RequestError(Code.NOT_FOUND, "no answer with numbers has this row number in the ledger")
    return found[0]


async def _columns(console: Console, request: Request) -> Response:
    study, wanted = request.query_params.get("study", ""), frozenset[str]()
    if study:
        received = await console.from_store(lambda config, store: store.studies.find(study).read_plan())
        wanted = frozenset(one.name for one in received.study.columns)

    def look() -> tuple[LineCounts | None, bool, list[ColumnFindings]]:
        config = site_config.load(console.config_file)
        counts = counted_lines(config, wanted)
        declined = counts is not None and config.policy.lines.declines(counts)
        return counts, declined, profile_columns(config, counts)

    counts, declined, found = await run_in_threadpool(look)
    shown = [one for one in found if one.seen.name in wanted] if study else found
    pictures = [(one, histogram_bars(one.seen.histogram)) for one in shown]
    hidden = len(found) - len(shown)
    return console.pages.render(
        request, "columns.html", columns=pictures, study=study, hidden=hidden, counts=counts,
        declined=declined, lost_labels=labels.LOST_LABELS,
    )  # fmt: skip


async def _budget(console: Console, request: Request) -> Response:
    view, translate = await console.from_store(_use_of_budget), console.pages.translator(request)
    share = translate.up(100 * view["used"], 3)
    used = translate(mark("%(share)s %% of the budget is used or reserved"), share=share)
    view |= {"picture": gauge(view["used"], 0.0, used), "chart": _chart(view, translate)}
    return console.pages.render(request, "budget.html", **view)


async def _connection(console: Console, request: Request, *, checked: bool = False) -> Response:
    def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
        stored = None if folder_identity(config.identity) is None else load_identity(config.identity)
        return {
            "last": store.traffic.last(),
            "expires": stored and stored.expires.timestamp(),
            "identity": stored and stored.identity.uri,
            "coordinator": stored and stored.coordinator,
        }

    view = await console.from_store(look)
    checks = await run_in_threadpool(site_checks, console.config_file) if checked else None
    return console.pages.render(request, "connection.html", checks=checks, **view)


def _use_of_budget(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """Return the use of the budget over time, as shares of 1, from the verified ledger."""
    state, names = store.ledger.ledger, {seen.plan: seen.name for seen in store.studies.all()}
    limit, entries = state.limit.micro_rho, store.ledger.entries()
    used = [(entry, Fraction(total, limit)) for entry, total in _over_time(entries)]
    whole = Conversion(delta=config.policy.budget_delta, exact=state.exact)
    return {
        "used": Fraction(state.committed().micro_rho, limit),
        "spent": Fraction(state.spent.micro_rho, limit),
        "rows": [(entry, names.get(entry.study, ""), share) for entry, share in used[::-1][:100]],
        "points": [(entry.at, float(share)) for entry, share in used],
        "persons": person_counts.STUDY,
        "right_ever": right_ever(store),
        "amounts": _amounts(config, store),
        "failure_probability": whole.failure_probability(state.limit),
        "yearly": config.policy.yearly is not None,
        "sites_per_person": config.policy.sites_per_person,
    }


def _amounts(config: SiteConfig, store: SiteStore) -> dict[str, str]:
    """Return the whole, the spent and the remaining budget as epsilons for both neighbouring relations."""
    state, delta = store.ledger.ledger, config.policy.budget_delta
    whole, left = Conversion(delta=delta, exact=state.exact), consent.budget(config, store)
    view = {
        "whole": whole.spent(state.limit.micro_rho),
        "spent": Conversion(delta=delta, exact=state.gaussian).spent(state.spent.micro_rho),
    }
    for name in ("left", "left_this_year"):
        if left[name] is not None:
            view[name] = whole.left(left[name]["micro_rho"], left[name]["of_micro_rho"])
    return view


def _over_time(entries: list[LedgerEntry]) -> Iterator[tuple[LedgerEntry, int]]:
    """Yield each entry with the micro-rho spent or reserved after it."""
    open_, spent = dict[str, int](), 0
    for entry in entries:
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                open_[entry.study] = open_.get(entry.study, 0) + entry.micro_rho
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                open_[entry.study] -= entry.micro_rho
                spent += entry.micro_rho
            case EntryKind.SETTLE:
                open_.pop(entry.study, None)
        yield entry, spent + sum(open_.values())


def _chart(view: dict[str, Any], translate: Translator) -> Markup:
    """Return the chart of the budget's use; empty before there are two entries."""
    points = view["points"]
    if len(points) < 2:
        return Markup("")
    about = translate(mark("The use of the budget over time, as in the table below"))
    return step_chart(points, about, ("100 %", translate.day(points[0][0]), translate.day(points[-1][0])))
