"""The form for a new study: without a script it is sent to search, to predict and to submit; with the script
the prediction follows what is typed."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from eigenveil.dictionary.admission import Directory
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.errors import Code, RequestError
from eigenveil.study.toml import study_to_toml
from eigenveil_server.console.access import page
from eigenveil_server.console.desk import Desk
from eigenveil_server.console.rooms import Rooms
from eigenveil_server.console.submission import (
    Prediction,
    Typed,
    column_choices,
    prediction,
    same_before,
    site_choices,
    study_of,
    typed,
)
from eigenveil_server.planning.planner import DRAFT
from eigenveil_server.planning.submissions import Submission

NO_DICTIONARY = (
    "The operator has published no dictionary yet, from which the columns could be chosen. Write a study "
    "file and use: eigenveil study submit"
)


class SubmissionPages:
    def __init__(self, desk: Desk, rooms: Rooms) -> None:
        self._desk = desk
        self._rooms = rooms
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._latest: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        return [
            page("/submit", self.form, "GET", "POST"),
            page("/submit/preview", self.preview, "POST"),
        ]

    async def form(self, request: Request) -> Response:
        """The form, empty or as it was sent: searched, with its prediction, or submitted."""
        if request.method != "POST":
            every = tuple(sorted((await self._current()).sites))
            return await self._page(request, Typed(submission=uuid.uuid4().hex, sites=every))
        form = await request.form()
        said = typed(form)
        try:
            match form.get("do"):
                case "predict":
                    return await self._page(request, said, foreseen=await self._predict(request, said))
                case "submit":
                    return await self._submit(request, said)
                case _:
                    return await self._page(request, said)
        except RequestError as problem:
            return await self._page(request, said, problem=str(problem), status=400)

    async def preview(self, request: Request) -> Response:
        """The prediction alone, or what is wrong with what was typed so far."""
        said = typed(await request.form())
        foreseen, problem = None, ""
        try:
            foreseen = await self._predict(request, said)
        except RequestError as wrong:
            problem = str(wrong)
        html = self._rooms.piece("prediction.html", foreseen=foreseen, problem=problem)
        return HTMLResponse(html)

    async def _predict(self, request: Request, said: Typed) -> Prediction:
        """What the study would be. Of what somebody typed while another prediction was made, the last counts.

        Raises:
            RequestError: as `Submissions.foreseen`; code `not-ready`, they have typed on.
        """
        who = request.state.visitor.identity.name
        mine = self._latest[who] = self._latest[who] + 1
        async with self._turns[who]:
            if mine != self._latest[who]:
                raise RequestError(Code.NOT_READY, "the study was changed meanwhile")
            return await self._foreseen(who, said)

    async def _foreseen(self, who: str, said: Typed) -> Prediction:
        directory = await self._current()
        wish = await self._wish(who, replace(said, submission=DRAFT), directory)
        found = await self._desk.serving.engine.submissions.foreseen(wish)
        return await self._desk.look(prediction, found, self._desk.books, directory)

    async def _current(self) -> Directory:
        return await self._desk.look(self._desk.serving.directory.current)

    async def _wish(self, who: str, said: Typed, directory: Directory) -> Submission:
        text = study_to_toml(study_of(said, await self._dictionary()))
        return Submission(analyst=who, id=said.submission, study_toml=text, directory=directory)

    async def _dictionary(self) -> Dictionary:
        found = await self._desk.look(self._desk.serving.directory.published)
        if found is None:
            raise RequestError(Code.NOT_READY, NO_DICTIONARY)
        return found

    async def _submit(self, request: Request, said: Typed) -> Response:
        """Start the study, unless the very same one was asked before: that is asked about first."""
        serving, who = self._desk.serving, request.state.visitor.identity.name
        wish = await self._wish(who, said, await self._current())
        study = study_of(said, await self._dictionary())
        same = await self._desk.look(same_before, self._desk.books, study, who, said.submission)
        if same is not None and not said.again:
            return await self._page(request, said, same=same, status=409)
        made = await serving.engine.submit(wish)
        return RedirectResponse(f"/studies/{made.stored.digest}", status_code=303)

    async def _page(self, request: Request, said: Typed, status: int = 200, **more: Any) -> Response:
        directory = await self._current()
        dictionary = await self._desk.look(self._desk.serving.directory.published)
        values: dict[str, Any] = {"foreseen": None, "problem": "", "same": None} | more
        return await self._rooms.render(
            request,
            "submit.html",
            status,
            said=said,
            columns=() if dictionary is None else column_choices(said, dictionary),
            many=0 if dictionary is None else len(dictionary.usable()),
            sites=site_choices(said, directory),
            missing="" if dictionary is not None else NO_DICTIONARY,
            **values,
        )
