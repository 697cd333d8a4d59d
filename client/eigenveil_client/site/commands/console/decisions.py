"""Where a person decides: a page that says what will happen, a name, and one button.

What is decided is what the commands decide, by the same functions; the plan's whole digest is in the path, so
a decision is about the plan that was shown and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from eigenveil.errors import Code, RequestError
from eigenveil.study.consent import LONGEST_NAME, LONGEST_TEXT, DeclineWord
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.console.card import card
from eigenveil_client.site.commands.console.room import Console
from eigenveil_client.site.commands.console.studies import asked_for
from eigenveil_client.site.commands.console.words import REASONS
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore

Act = Callable[[SiteConfig, SiteStore, ReceivedPlan, FormData], object]


def _approve(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, form: FormData) -> None:
    consent.approve(config, store, seen, by=_name(form))


def _decline(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, form: FormData) -> None:
    word = {one.value: one for one in DeclineWord}.get(_field(form, "word"))
    if word is None:
        raise RequestError(Code.BAD_ARGUMENT, "choose one of the reasons")
    consent.decline(config, store, seen, by=_name(form), word=word, text=_field(form, "text"))


def _withdraw(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, form: FormData) -> None:
    consent.withdraw(config, store, seen, by=_name(form))


ACTS: dict[str, tuple[Decision, Act]] = {
    "approve": (Decision.ACCEPTED, _approve),
    "decline": (Decision.DECLINED, _decline),
    "withdraw": (Decision.WITHDRAWN, _withdraw),
}


def routes(console: Console) -> list[Route]:
    return [
        Route(f"/studies/{{study}}/{act}", endpoint, methods=[method])
        for act in ACTS
        for method, endpoint in (("GET", partial(_ask, console, act)), ("POST", partial(_do, console, act)))
    ]


async def _ask(console: Console, act: str, request: Request) -> Response:
    told = await console.from_store(lambda config, store: card(config, store, asked_for(store, request)))
    telling = await console.from_config(lambda config: config.policy.tell_reasons)
    return console.page(
        request, "decide.html", card=told, act=act, reasons=REASONS, telling=telling,
        longest_name=LONGEST_NAME, longest_text=LONGEST_TEXT,
    )  # fmt: skip


async def _do(console: Console, act: str, request: Request) -> Response:
    form, change = await request.form(), ACTS[act][1]
    await console.from_store(lambda config, store: change(config, store, asked_for(store, request), form))
    return RedirectResponse(f"/studies/{request.path_params['study']}", status_code=303)


def _name(form: FormData) -> str:
    """Who decides. Raises RequestError, code `bad-argument`: nobody is named."""
    name = _field(form, "by")
    if not name:
        raise RequestError(Code.BAD_ARGUMENT, "state the name of the person who decides")
    return name


def _field(form: FormData, name: str) -> str:
    sent = form.get(name)
    return sent.strip() if isinstance(sent, str) else ""
