"""Pages about the federation: overview, budget, participants, refusals, and the audit log.

Form for the draft of a study. Without JavaScript its buttons search, predict and make the file; with it
the prediction follows the input.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.directory import Directory
from eigenveil.errors import Code, RequestError
from eigenveil.study.toml import study_to_toml
from eigenveil_common import log
from eigenveil_server.console import federation, studies
from eigenveil_server.console.access import page
from eigenveil_server.console.page_context import PageContext, RolePages
from eigenveil_server.console.submission import (
    Draft,
    StudyForm,
    SubmissionPrediction,
    column_choices,
    draft_of,
    earlier_same_study,
    prediction,
    read_form,
    site_choices,
    study_of,
)
from eigenveil_server.planning.planner import DRAFT
from eigenveil_server.planning.submissions import Submission, check_submission

LAST = 2**62


class FederationPages:
    def __init__(self, context: PageContext, role_pages: RolePages) -> None:
        self._context = context
        self._role_pages = role_pages

    def routes(self) -> list[Route]:
        return [
            page("/", self.overview),
            page("/budget", self.budget),
            page("/people", self.people),
            page("/people/{role}/{name}/deny", self.deny, "GET", "POST"),
            page("/refusals", self.refusals),
            page("/audit", self.audit),
        ]

    async def overview(self, request: Request) -> Response:
        """Page with sites, running studies and the budget; for operators also warnings."""
        operates, serving, data = request.state.visitor.operates, self._context.serving, self._context.data
        online = serving.online() if operates else None
        sites = await self._context.read(federation.sites, serving.directory, data.registry, online)
        at = serving.runtime.repository.clock() / 1000
        warnings = list(await self._context.read(federation.warnings, data, sites, at)) if operates else []
        return await self._role_pages.render(
            request,
            "overview.html",
            sites=sites,
            warnings=warnings,
            budget=await self._context.read(federation.budget, data),
            lines=await self._context.read(studies.under_way, data),
        )

    async def budget(self, request: Request) -> Response:
        found = await self._context.read(federation.budget, self._context.data)
        return await self._role_pages.render(request, "budget.html", budget=found)

    async def people(self, request: Request) -> Response:
        """Page with all enrolled participants."""
        found = await self._context.read(federation.people, self._context.data.registry)
        at = self._context.serving.runtime.repository.clock() / 1000
        return await self._role_pages.render(request, "people.html", people=found, at=at)

    async def deny(self, request: Request) -> Response:
        """Page to confirm a denial with a reason. POST denies the participant, as the command `deny` does."""
        role, name = federation.role_of(request.path_params["role"]), request.path_params["name"]
        found = await self._context.read(federation.person, self._context.data.registry, role.value, name)
        by = request.state.visitor.name
        if by == f"{role.value}/{name}":
            raise RequestError(Code.CONFLICT, "you cannot deny yourself; ask another operator")
        if request.method != "POST":
            return await self._role_pages.render(request, "deny.html", person=found)
        form = await request.form()
        why = federation.checked_reason(str(form.get("why", "")))
        await asyncio.to_thread(self._context.serving.registry.deny, role, name, f"by {by}: {why}")
        log.event("identity-denied", peer=f"{role.value}/{name}", name=by)
        return RedirectResponse("/people", status_code=303)

    async def refusals(self, request: Request) -> Response:
        """Page with refusals by sites and by the coordinator."""
        calls = self._context.serving.runtime.metrics.refusals()
        found = await self._context.read(federation.refusals, self._context.data, calls)
        return await self._role_pages.render(request, "refusals.html", refusals=found)

    async def audit(self, request: Request) -> Response:
        """Page of the audit log."""
        before = request.query_params.get("before", str(LAST))
        if not (before.isascii() and before.isdigit() and len(before) < 20 and int(before) <= LAST):
            raise HTTPException(400)
        found = await self._context.read(federation.entries, self._context.data, int(before))
        older = found[-1].number if len(found) == federation.PAGE else 0
        return await self._role_pages.render(request, "audit.html", entries=found, older=older)


NO_DICTIONARY = (
    "The operator has not published a data dictionary yet, so columns cannot be selected here. Write a study "
    "file and run: eigenveil study submit"
)


class SubmissionPages:
    def __init__(self, context: PageContext, role_pages: RolePages) -> None:
        self._context = context
        self._role_pages = role_pages
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._latest: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        return [
            page("/submit", self.form, "GET", "POST"),
            page("/submit/preview", self.preview, "POST"),
        ]

    async def form(self, request: Request) -> Response:
        """Page with the form, empty or as sent: with search results, prediction or draft; or the draft's
        file."""
        if request.method != "POST":
            every = tuple(sorted((await self._current()).sites))
            return await self._page(request, StudyForm(submission=uuid.uuid4().hex, sites=every))
        form = await request.form()
        study_form = read_form(form)
        try:
            match form.get("do"):
                case "predict":
                    return await self._page(
                        request, study_form, predicted=await self._predict(request, study_form)
                    )
                case "draft":
                    return await self._drafted(request, study_form)
                case "file":
                    return _file(await self._draft(study_form))
                case _:
                    return await self._page(request, study_form)
        except RequestError as problem:
            return await self._page(request, study_form, problem=str(problem), status=400)

    async def preview(self, request: Request) -> Response:
        """Fragment with the prediction, or with the problem of the input so far."""
        study_form = read_form(await request.form())
        predicted, problem = None, ""
        try:
            predicted = await self._predict(request, study_form)
        except RequestError as wrong:
            problem = str(wrong)
        html = self._role_pages.piece("prediction.html", predicted=predicted, problem=problem)
        return HTMLResponse(html)

    async def _predict(self, request: Request, study_form: StudyForm) -> SubmissionPrediction:
        """Return the prediction of a study. Of requests during another prediction only the last counts.

        Raises:
            RequestError: as `SubmissionPlanner.predicted`; code `not-ready`, a later request came.
        """
        who = request.state.visitor.identity.name
        mine = self._latest[who] = self._latest[who] + 1
        async with self._locks[who]:
            if mine != self._latest[who]:
                raise RequestError(Code.NOT_READY, "the study was changed meanwhile")
            return await self._foreseen(who, study_form)

    async def _foreseen(self, who: str, study_form: StudyForm) -> SubmissionPrediction:
        directory = await self._current()
        submission = await self._submission_from(who, study_form, directory)
        found = await self._context.serving.engine.submissions.predicted(submission)
        return await self._context.read(prediction, found, self._context.data, directory)

    async def _current(self) -> Directory:
        return await self._context.read(self._context.serving.directory.current)

    async def _submission_from(self, who: str, study_form: StudyForm, directory: Directory) -> Submission:
        text = study_to_toml(study_of(study_form, await self._dictionary()))
        return Submission(analyst=who, id=DRAFT, study_toml=text, directory=directory)

    async def _dictionary(self) -> Dictionary:
        found = await self._context.read(self._context.serving.directory.published)
        if found is None:
            raise RequestError(Code.NOT_READY, NO_DICTIONARY)
        return found

    async def _drafted(self, request: Request, study_form: StudyForm) -> Response:
        """Return the form with the draft of a study that the coordinator would accept, and an identical study
        that has a result."""
        draft, who = await self._draft(study_form), request.state.visitor.identity.name
        predicted = await self._predict(request, study_form)
        study = study_of(study_form, await self._dictionary())
        same = await self._context.read(earlier_same_study, self._context.data, study, who)
        return await self._page(request, study_form, predicted=predicted, draft=draft, same=same)

    async def _draft(self, study_form: StudyForm) -> Draft:
        check_submission(study_form.submission)
        return draft_of(study_of(study_form, await self._dictionary()), study_form.submission)

    async def _page(
        self, request: Request, study_form: StudyForm, status: int = 200, **more: Any
    ) -> Response:
        directory = await self._current()
        dictionary = await self._context.read(self._context.serving.directory.published)
        values: dict[str, Any] = {"foreseen": None, "problem": "", "same": None, "draft": None} | more
        return await self._role_pages.render(
            request,
            "submit.html",
            status,
            said=study_form,
            columns=() if dictionary is None else column_choices(study_form, dictionary),
            many=0 if dictionary is None else len(dictionary.usable()),
            sites=site_choices(study_form, directory),
            missing="" if dictionary is not None else NO_DICTIONARY,
            **values,
        )


def _file(draft: Draft) -> Response:
    """Return the study file. A study's name needs no quoting in a header."""
    named = {"content-disposition": f'attachment; filename="{draft.name}"'}
    return Response(draft.text, media_type="application/toml", headers=named)
