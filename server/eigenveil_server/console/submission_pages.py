"""The form for the draft of a study: without a script it is sent to search, to predict and to make the file;
with the script the prediction follows what is typed."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from eigenveil.dictionary.admission import Directory
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.errors import Code, RequestError
from eigenveil.study.toml import study_to_toml
from eigenveil_server.console.access import page
from eigenveil_server.console.desk import Desk
from eigenveil_server.console.rooms import Rooms
from eigenveil_server.console.submission import (
    Draft,
    Prediction,
    Typed,
    column_choices,
    draft_of,
    prediction,
    same_before,
    site_choices,
    study_of,
    typed,
)
from eigenveil_server.planning.planner import DRAFT
from eigenveil_server.planning.submissions import Submission, check_submission

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
        """The form, empty or as it was sent: searched, with its prediction, or with its draft; or the draft's
        file."""
        if request.method != "POST":
            every = tuple(sorted((await self._current()).sites))
            return await self._page(request, Typed(submission=uuid.uuid4().hex, sites=every))
        form = await request.form()
        said = typed(form)
        try:
            match form.get("do"):
                case "predict":
                    return await self._page(request, said, foreseen=await self._predict(request, said))
                case "draft":
                    return await self._drafted(request, said)
                case "file":
                    return _file(await self._draft(said))
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
        wish = await self._wish(who, said, directory)
        found = await self._desk.serving.engine.submissions.foreseen(wish)
        return await self._desk.look(prediction, found, self._desk.books, directory)

    async def _current(self) -> Directory:
        return await self._desk.look(self._desk.serving.directory.current)

    async def _wish(self, who: str, said: Typed, directory: Directory) -> Submission:
        text = study_to_toml(study_of(said, await self._dictionary()))
        return Submission(analyst=who, id=DRAFT, study_toml=text, directory=directory)

    async def _dictionary(self) -> Dictionary:
        found = await self._desk.look(self._desk.serving.directory.published)
        if found is None:
            raise RequestError(Code.NOT_READY, NO_DICTIONARY)
        return found

    async def _drafted(self, request: Request, said: Typed) -> Response:
        """The form with the draft of a study that the coordinator would take, and whether the very same one
        has a result."""
        draft, who = await self._draft(said), request.state.visitor.identity.name
        foreseen = await self._predict(request, said)
        study = study_of(said, await self._dictionary())
        same = await self._desk.look(same_before, self._desk.books, study, who)
        return await self._page(request, said, foreseen=foreseen, draft=draft, same=same)

    async def _draft(self, said: Typed) -> Draft:
        check_submission(said.submission)
        return draft_of(study_of(said, await self._dictionary()), said.submission)

    async def _page(self, request: Request, said: Typed, status: int = 200, **more: Any) -> Response:
        directory = await self._current()
        dictionary = await self._desk.look(self._desk.serving.directory.published)
        values: dict[str, Any] = {"foreseen": None, "problem": "", "same": None, "draft": None} | more
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


def _file(draft: Draft) -> Response:
    """A study's name has no letter that a header could not hold."""
    named = {"content-disposition": f'attachment; filename="{draft.name}"'}
    return Response(draft.text, media_type="application/toml", headers=named)
