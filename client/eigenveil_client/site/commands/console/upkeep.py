"""The pages about the site itself: its columns, its budget, its certificate and connection."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.accounting.budget import Conversion
from eigenveil.accounting.ledger import Entry, EntryKind
from eigenveil.protocol.plan import plan_from_json
from eigenveil_client.connection.identity import load_identity, named
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_client.site.commands.column_profiles import profiled
from eigenveil_client.site.commands.console.card import right_ever
from eigenveil_client.site.commands.console.room import Console
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.web.messages import Words, mark
from eigenveil_common.web.pictures import bars, gauge, steps


def routes(console: Console) -> list[Route]:
    async def columns(request: Request) -> Response:
        found = await console.from_config(profiled)
        study = request.query_params.get("study", "")
        every = len(found)
        if study:
            wanted = await console.from_store(lambda config, store: _columns_of(store, study))
            found = [one for one in found if one.seen.name in wanted]
        shown = [(one, bars(one.seen.histogram)) for one in found]
        return console.page(request, "columns.html", columns=shown, study=study, hidden=every - len(found))

    async def budget(request: Request) -> Response:
        told = await console.from_store(_budget)
        words = console.pages.words(request)
        share = words.up(100 * told["used"], 3)
        used = words(mark("%(share)s %% of the budget is used or set aside"), share=share)
        picture = gauge(told["used"], 0.0, used)
        chart = _chart(told, words)
        return console.page(request, "budget.html", picture=picture, chart=chart, **told)

    async def connection(request: Request) -> Response:
        told = await console.from_store(_connection)
        return console.page(request, "connection.html", checks=None, **told)

    async def checked(request: Request) -> Response:
        told = await console.from_store(_connection)
        checks = await console.from_config(lambda config: site_checks(console.config_file))
        return console.page(request, "connection.html", checks=checks, **told)

    return [
        Route("/columns", columns),
        Route("/budget", budget),
        Route("/connection", connection),
        Route("/connection/checked", checked),
    ]


def _columns_of(store: SiteStore, study: str) -> set[str]:
    return {one.name for one in plan_from_json(store.studies.find(study).plan_json).study.columns}


def _connection(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """Who this site is in the federation, and when it last spoke."""
    stored = None if named(config.identity) is None else load_identity(config.identity)
    return {
        "last": store.traffic.last(),
        "expires": stored and stored.expires.timestamp(),
        "identity": stored and stored.identity.uri,
        "coordinator": stored and stored.coordinator,
    }


def _budget(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """What is used, of what, since when: shares of 1, from the verified ledger."""
    state, names = store.ledger.ledger, {seen.plan: seen.name for seen in store.studies.all()}
    limit, entries = state.limit.micro_rho, store.ledger.entries()
    used, amounts = _over_time(entries), _amounts(config, store)
    return {
        "used": Fraction(state.committed().micro_rho, limit),
        "spent": Fraction(state.spent.micro_rho, limit),
        "rows": [
            (entry, names.get(entry.study, ""), Fraction(total, limit))
            for entry, total in list(zip(entries, used, strict=True))[::-1][:100]
        ],
        "points": [
            (entry.at, float(Fraction(total, limit))) for entry, total in zip(entries, used, strict=True)
        ],
        "right_ever": right_ever(store),
        "amounts": amounts,
        "but_for": Conversion(delta=config.policy.budget_delta, exact=state.exact).but_for(state.limit),
        "yearly": config.policy.yearly is not None,
        "sites_per_person": config.policy.sites_per_person,
    }


def _amounts(config: SiteConfig, store: SiteStore) -> dict[str, str]:
    """The budget, what is spent and what is left, as epsilons for both neighbours."""
    state, delta = store.ledger.ledger, config.policy.budget_delta
    whole, left = Conversion(delta=delta, exact=state.exact), consent.budget(config, store)
    told = {
        "whole": whole.spent(state.limit.micro_rho),
        "spent": Conversion(delta=delta, exact=state.gaussian).spent(state.spent.micro_rho),
    }
    for name in ("left", "left_this_year"):
        if left[name] is not None:
            told[name] = whole.left(left[name]["micro_rho"], left[name]["of_micro_rho"])
    return told


def _over_time(entries: list[Entry]) -> list[int]:
    """Micro-rho that are spent or set aside after each entry."""
    open_, spent, totals = dict[str, int](), 0, []
    for entry in entries:
        match entry.kind:
            case EntryKind.RESERVE | EntryKind.RESERVE_GAUSSIAN:
                open_[entry.study] = open_.get(entry.study, 0) + entry.micro_rho
            case EntryKind.CHARGE | EntryKind.ATTEMPT:
                open_[entry.study] -= entry.micro_rho
                spent += entry.micro_rho
            case EntryKind.SETTLE:
                open_.pop(entry.study, None)
        totals.append(spent + sum(open_.values()))
    return totals


def _chart(told: dict[str, Any], words: Words) -> Markup:
    """Nothing to draw before there are two entries."""
    points = told["points"]
    if len(points) < 2:
        return Markup("")
    about = words(mark("The use of the budget over time, as in the table below"))
    return steps(points, 1.0, about, ("100 %", words.day(points[0][0]), words.day(points[-1][0])))
