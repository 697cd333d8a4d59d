"""Pages about the federation, and the form for a draft, which needs no JavaScript."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from typing import Any

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from eigenveil.dictionary.directory import Directory
from eigenveil.dictionary.study_files import complete
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil_common import log
from eigenveil_server.console import federation, studies, submission
from eigenveil_server.console.page_context import PageContext
from eigenveil_server.planning.submissions import Submission, check_submission

LAST = 2**62


class FederationPages:
    def __init__(self, context: PageContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        return [
            Route("/", self.overview),
            Route("/budget", self.budget),
            Route("/people", self.people),
            Route("/people/{role}/{name}/deny", self.deny, methods=["GET", "POST"]),
            Route("/refusals", self.refusals),
            Route("/audit", self.audit),
        ]

    async def overview(self, request: Request) -> Response:
        """Page with sites, running studies and the budget; for operators also warnings."""
        operates, serving, data = request.state.visitor.operates, self._context.serving, self._context.data
        read, online = self._context.read, serving.online() if operates else None
        sites = await read(federation.sites, serving.directory, data.registry, online)
        now = serving.runtime.repository.clock()
        return await self._context.render(
            request,
            "overview.html",
            sites=sites,
            warnings=await read(lambda: list(federation.warnings(data, sites, now))) if operates else [],
            budget=await read(federation.budget, data),
            lines=await read(studies.under_way, data),
        )

    async def budget(self, request: Request) -> Response:
        found = await self._context.read(federation.budget, self._context.data)
        return await self._context.render(request, "budget.html", budget=found)

    async def people(self, request: Request) -> Response:
        """Page with all enrolled participants."""
        found = await self._context.read(self._context.data.registry.enrolled)
        now = self._context.serving.runtime.repository.clock()
        return await self._context.render(request, "people.html", people=found, now=now)

    async def deny(self, request: Request) -> Response:
        """Page to confirm a denial with a reason. POST denies the participant, as the command `deny` does."""
        role, name = request.path_params["role"], request.path_params["name"]
        found = await self._context.read(federation.person, self._context.data.registry, role, name)
        by = request.state.visitor.name
        if by == f"{role}/{name}":
            raise RequestError(Code.CONFLICT, "you cannot deny yourself; ask another operator")
        if request.method != "POST":
            return await self._context.render(request, "deny.html", person=found)
        form = await request.form()
        why = federation.checked_reason(str(form.get("why", "")))
        await asyncio.to_thread(self._context.serving.registry.deny, Role(role), name, f"by {by}: {why}")
        log.event("identity-denied", peer=f"{role}/{name}", name=by)
        return RedirectResponse("/people", status_code=303)

    async def refusals(self, request: Request) -> Response:
        """Page with refusals by sites and by the coordinator."""
        read, data = self._context.read, self._context.data
        return await self._context.render(
            request,
            "refusals.html",
            ended_studies=await read(federation.ended_studies, data),
            declines=await read(federation.declines, data),
            calls=self._context.serving.runtime.metrics.refusals(),
        )

    async def audit(self, request: Request) -> Response:
        """Page of the audit log."""
        before = request.query_params.get("before", str(LAST))
        if not (before.isascii() and before.isdigit() and len(before) < 20 and int(before) <= LAST):
            raise HTTPException(400)
        found = await self._context.read(federation.entries, self._context.data, int(before))
        older = found[-1]["id"] if len(found) == federation.PAGE else 0
        return await self._context.render(request, "audit.html", entries=found, older=older)


NO_DICTIONARY = (
    "The operator has not published a data dictionary yet, so columns cannot be selected here. State each "
    "column's unit and bounds in a study file ([[columns]]), and run: eigenveil study submit"
)


class SubmissionPages:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._latest: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        return [
            Route("/submit", self.form, methods=["GET", "POST"]),
            Route("/submit/preview", self.preview, methods=["POST"]),
        ]

    async def form(self, request: Request) -> Response:
        """Page with the form, empty or as sent: with search results, prediction or draft; or the file."""
        if request.method != "POST":
            sites = sorted((await self._current()).sites)
            return await self._page(request, submission.new_form(uuid.uuid4().hex, sites))
        form = await request.form()
        try:
            match form.get("do"):
                case "predict":
                    return await self._page(request, form, **await self._predict(request, form))
                case "draft":
                    return await self._drafted(request, form)
                case "file":
                    return await self._file(form)
                case _:
                    return await self._page(request, form)
        except RequestError as problem:
            return await self._page(request, form, status=400, problem=str(problem))

    async def preview(self, request: Request) -> Response:
        """Fragment with the prediction, or with the problem of the input so far."""
        values: dict[str, Any] = {"predicted": None, "problem": ""}
        try:
            values |= await self._predict(request, await request.form())
        except RequestError as wrong:
            values["problem"] = str(wrong)
        return HTMLResponse(self._context.piece("prediction.html", **values))

    async def _predict(self, request: Request, form: FormData) -> dict[str, Any]:
        """Return the prediction of a study. Of requests during another prediction only the last counts.
        Raises RequestError as `SubmissionPlanner.predicted`; code `not-ready`, a later request came."""
        who = request.state.visitor.identity.name
        mine = self._latest[who] = self._latest[who] + 1
        async with self._locks[who]:
            if mine != self._latest[who]:
                raise RequestError(Code.NOT_READY, "the study was changed meanwhile")
            directory, text = await self._current(), study_to_toml(await self._study(form))
            found = await self._context.serving.engine.submissions.predicted(
                Submission(analyst=who, study_toml=text, directory=directory)
            )
            return await self._context.read(submission.prediction, found, self._context.data, directory)

    async def _current(self) -> Directory:
        return await self._context.read(self._context.serving.directory.current)

    async def _study(self, form: FormData) -> Study:
        """Return the study of a form, with the units and bounds of the dictionary."""
        dictionary = await self._context.read(self._context.serving.directory.published)
        if dictionary is None:
            raise RequestError(Code.NOT_READY, NO_DICTIONARY)
        return complete(submission.draft_of(form), dictionary).study()

    async def _drafted(self, request: Request, form: FormData) -> Response:
        """Return the form with the draft of an acceptable study, and an identical one that has a result."""
        study, id = await self._draft(form)
        values = await self._predict(request, form)
        who = request.state.visitor.identity.name
        same = await self._context.read(submission.earlier_same_study, self._context.data, study, who)
        command = submission.submit_command(study, id)
        return await self._page(request, form, study=study, command=command, same=same, **values)

    async def _draft(self, form: FormData) -> tuple[Study, str]:
        """Return the study of a form, and its submission id."""
        id = submission.text_of(form, "submission")
        check_submission(id)
        return await self._study(form), id

    async def _file(self, form: FormData) -> Response:
        """Return the study file. A study's name needs no quoting in a header."""
        study, id = await self._draft(form)
        named = {"content-disposition": f'attachment; filename="{study.name}.toml"'}
        return Response(submission.study_file(study, id), media_type="application/toml", headers=named)

    async def _page(self, request: Request, form: FormData, status: int = 200, **more: Any) -> Response:
        directory = await self._current()
        dictionary = await self._context.read(self._context.serving.directory.published)
        values: dict[str, Any] = {"predicted": None, "problem": "", "same": None, "study": None} | more
        return await self._context.render(
            request,
            "submit.html",
            status,
            form=form,
            chosen=submission.selected(form, "column"),
            columns=[] if dictionary is None else submission.column_choices(form, dictionary),
            many=0 if dictionary is None else len(dictionary.usable()),
            sites=directory.sites,
            missing="" if dictionary is not None else NO_DICTIONARY,
            **submission.TEMPLATE_VALUES,
            **values,
        )
