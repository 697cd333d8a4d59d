"""Pages and actions: studies, submission, cancelling, the record; others' words stay words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from html import unescape
from pathlib import Path
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.identity import Role
from eigenveil.reporting.loadings import component_loadings, release_warnings
from eigenveil.reporting.verify import load_release
from eigenveil.study.study import Scaling
from eigenveil.study.toml import parse_study
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.admin.status import report
from eigenveil_server.console.study_pages import in_pieces
from tests.server.console.test_live import status, until, watching
from tests.server.console.visits import Answer, Browser, Visits, a_dictionary, visited
from tests.server.planning.test_stated_settings import own
from tests.server.rig import SITES, Client, answering, study_toml
from tests.server.rpc.test_directory import state
from tests.support import a_hello

SCRIPT = "<script>alert(1)</script>"
BREAKING = "\"'><img src=x onerror=alert(1)>{{7*7}}"


async def typed(browser: Browser, do: str, columns: Iterable[str] = (), **changes: str) -> Answer:
    """Open the form, fill it in, and press a button."""
    form = await browser.get("/submit")
    fields = {"name": "first", "purpose": "to see", "components": "2", "epsilon": "1", "delta": "1e-6"}
    fields |= {"expected_records": "10000", "submission": form.submission, "do": do} | changes
    chosen = list(columns) or ["c0", "c1", "c2", "c3"]
    sent = [("csrf", form.csrf), *fields.items(), *(("column", one) for one in chosen)]
    return await browser.post("/submit", [*sent, *(("site", one) for one in SITES)])


async def an_analyst(visits: Visits, name: str) -> tuple[Browser, Client]:
    """Somebody's browser, and the machine on which their key lies."""
    stored = await visits.rig.credentials(Role.ANALYST, name)
    return visits.browser(stored), visits.rig.connect(stored)


async def submitted(browser: Browser, client: Client, submission: str = "one", **changes: Any) -> str:
    """Draft a study in the form, submit its file as the page says; the path of its page."""
    file = await typed(browser, "file", submission=submission, **changes)
    assert file.status == 200, file.text
    return f"/studies/{await client.submit(file.text, submission, agreed=False)}"


async def shown(browser: Browser, path: str, words: str) -> Answer:
    async with asyncio.timeout(30):
        while words not in (found := await browser.get(path)).text:
            await asyncio.sleep(0.1)
    return found


async def test_a_study_from_the_form_is_the_study_from_a_file_and_its_release_is_the_signed_one(
    visits: Visits,
) -> None:
    sites = await visits.rig.sites()
    analyst, client = await an_analyst(visits, "ada")
    predicted = await typed(analyst, "predict")
    assert predicted.status == 200
    assert "sees each site&#39;s totals before it adds noise" in predicted.text
    masked = await typed(analyst, "predict", masked="yes")
    assert "nobody sees a site&#39;s totals" in masked.text
    assert 'value="yes" checked' in masked.text
    async with answering(sites):
        path = await submitted(analyst, client)
        await shown(analyst, path, 'id="found"')
        remaining = await analyst.get(f"{path}/release.zip")
        report_page = await analyst.get(f"{path}/report")
    digest = path.rpartition("/")[2]
    data = remaining.text.encode(errors="surrogateescape")
    assert data == await client.release(digest)
    study = load_release(data).document["plan"]["study"]
    assert (study["name"], study["purpose"], study["components"]) == ("first", "to see", 2)
    assert [one["name"] for one in study["columns"]] == ["c0", "c1", "c2", "c3"]
    assert study["federation"]["sites"] == list(SITES)
    policy = report_page.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "script-src" not in policy, "nothing but default-src speaks of scripts"
    assert "default-src 'none'" in policy


UNITS = Dictionary(
    name="units",
    version=1,
    columns=tuple(
        DictionaryColumn(
            name=f"c{i}", meaning="", unit=unit, lower=-1, upper=1, source="known",
            plausible_lower=-wide, plausible_upper=wide,
        )
        for i, (unit, wide) in enumerate([("a", 0.9), ("kg", 0.2), ("m", 0.2), ("", 0.2)])
    ),
)  # fmt: skip


async def test_pages_say_what_a_result_s_card_says_and_warn_before_a_study_is_paid_for(
    tmp_path: Path,
) -> None:
    async with visited(tmp_path / "c", UNITS) as visits:
        sites = await visits.rig.sites()
        analyst, client = await an_analyst(visits, "ada")
        assert "widths of the bounds" not in (await typed(analyst, "predict")).text
        warned = await typed(analyst, "predict", scaling="bounds")
        assert "c0 will dominate them" in warned.text
        study = parse_study((await typed(analyst, "file")).text)
        assert study.scaling is Scaling.STANDARD
        async with answering(sites, rows=2000, widths=(1, 0.2, 0.2, 0.2)):
            path = await submitted(analyst, client, scaling="bounds")
            page = await shown(analyst, path, 'id="found"')
            report_page = await analyst.get(f"{path}/report")
        release = load_release(await client.release(path.rpartition("/")[2]))
    *_, warning = release_warnings(release)
    assert "c0 varies most" in warning
    assert warning in unescape(page.text)
    assert warning in unescape(report_page.text)
    for one in component_loadings(release.result):
        for text in (one.sentence, one.strongest_text):
            assert text in unescape(page.text)
            assert text in unescape(report_page.text)


async def test_the_form_makes_a_draft_and_no_study(visits: Visits) -> None:
    """A coordinator that could make a study of what a form says could ask in anybody's name."""
    await visits.rig.sites()
    analyst, client = await an_analyst(visits, "ada")
    drafted = await typed(analyst, "draft", submission="from-the-form", epsilon="0.5")
    assert drafted.status == 200
    command = "eigenveil study submit first.toml --submission from-the-form"
    assert f"<code>{command}</code>" in drafted.text
    assert "epsilon 0.5" in drafted.text, "what it would be is shown beside it"
    file = await typed(analyst, "file", submission="from-the-form", epsilon="0.5")
    assert file.headers["content-disposition"] == 'attachment; filename="first.toml"'
    assert command in file.text
    study = parse_study(file.text)
    assert (study.name, study.epsilon, study.federation.sites) == ("first", 0.5, SITES)
    for gone in ("submit", "", "Submit"):
        assert (await typed(analyst, gone)).status == 200
    assert report(visits.rig.config)["studies"] == []
    assert report(visits.rig.config)["budget"]["reserved_micro_rho"] == 0
    twice = [await client.submit(file.text, "from-the-form", agreed=False) for _ in range(2)]
    assert twice[0] == twice[1]


async def test_a_draft_warns_of_an_identical_study(visits: Visits) -> None:
    await visits.rig.sites()
    analyst, client = await an_analyst(visits, "ada")
    assert "very same" not in (await typed(analyst, "draft")).text
    path = await submitted(analyst, client)
    for words, result in (({}, True), ({"purpose": "another"}, False)):
        text = (await typed(analyst, "draft", **words)).text
        assert (path in text, "An identical study is already running" in text) == (result, result)
    other, _ = await an_analyst(visits, "bea")
    assert path not in (await typed(other, "draft")).text


async def test_a_form_shows_what_is_wrong_and_loses_nothing_typed(visits: Visits) -> None:
    await visits.rig.sites()
    analyst = await visits.visitor(Role.ANALYST, "ada")
    for wrong in (
        {"components": "many"},
        {"components": "9"},
        {"epsilon": "1e9"},
        {"epsilon": "nan"},
        {"delta": ""},
        {"name": ""},
        {"submission": "../x"},
    ):
        answer = await typed(analyst, "draft", purpose="kept words", **wrong)
        assert answer.status == 400, wrong
        assert "kept words" in answer.text
        assert 'class="note care"' in answer.text
    for wrong in ({"components": "many"}, {"submission": "../x"}, {"submission": 'x"; reboot'}):
        assert (await typed(analyst, "file", **wrong)).status == 400
    assert (await typed(analyst, "draft", columns=["nowhere"])).status == 400
    assert report(visits.rig.config)["studies"] == []
    assert report(visits.rig.config)["budget"]["reserved_micro_rho"] == 0


async def test_the_form_shows_which_sites_are_ready_by_what_they_state(visits: Visits) -> None:
    sites, analyst = await visits.rig.sites(), await visits.visitor(Role.ANALYST, "ada")
    shown = await state(sites["anna"], own())
    page = await typed(analyst, "predict")
    rows = [row.partition("</tr>")[0] for row in page.text.split('<tr><th scope="row">')[1:]]
    fits = {row.partition("<")[0]: "<td>fit</td>" in row for row in rows}
    assert fits == {"anna": True, "bert": False, "carl": False}, "the others state nothing"
    await state(sites["anna"], own(person_column="patient"), shown)
    answer = await typed(analyst, "predict")
    assert (answer.status, "anna: person_column" in answer.text) == (400, True)


async def test_a_query_is_shown_to_its_analyst_and_operators_alone_until_its_release(
    visits: Visits,
) -> None:
    question = ("to see", "c0, -1 to 1", "2 of 4 columns", "anna, bert, carl</dd>", "Delta 1e-06")
    sites = await visits.rig.sites()
    analyst, client = await an_analyst(visits, "ada")
    other, operator = (await visits.visitor(Role.ANALYST, "bea"), await visits.visitor(Role.OPERATOR, "ada"))
    cancelled = await submitted(analyst, client)
    await analyst.send(cancelled, f"{cancelled}/cancel")
    path = await submitted(analyst, client, "two")
    for one in (cancelled, path):
        for browser in (analyst, operator):
            result = (await browser.get(one)).text
            assert [word for word in question if word not in result] == []
        for page in (one, "/", "/studies", "/budget"):
            assert [word for word in question if word in (await other.get(page)).text] == [], page
    async with answering(sites):
        released = await shown(other, path, 'id="found"')
    assert all(word in released.text for word in question)


async def test_only_its_analyst_cancels_a_study(visits: Visits) -> None:
    await visits.rig.sites()
    analyst, client = await an_analyst(visits, "ada")
    other = await visits.visitor(Role.ANALYST, "bea")
    operator = await visits.visitor(Role.OPERATOR, "olga")
    path = await submitted(analyst, client)
    assert "/cancel" not in (await other.get(path)).text
    csrf = (await other.get("/submit")).csrf
    assert (await other.post(f"{path}/cancel", [("csrf", csrf)])).status == 404
    csrf = (await operator.get("/people/analyst/ada/deny")).csrf
    assert (await operator.post(f"{path}/cancel", [("csrf", csrf)])).status == 403
    assert report(visits.rig.config)["studies"][0]["state"] == "running"
    assert (await analyst.send(path, f"{path}/cancel")).status == 303
    assert report(visits.rig.config)["studies"][0]["state"] == "cancelled"


async def test_no_word_of_anybody_becomes_a_part_of_a_page(tmp_path: Path) -> None:
    """In every field that takes text: of the form, of the dictionary, of a file, of a denial."""
    script = SCRIPT + BREAKING
    column = f"c{script}"[:60]
    async with visited(tmp_path / "c", a_dictionary("c0", column, meaning=script)) as visits:
        sites = await visits.rig.sites()
        analyst, client = await an_analyst(visits, "ada")
        operator = await visits.visitor(Role.OPERATOR, "olga")
        pages = [await typed(analyst, "find", columns=["c0"], **dict.fromkeys(TEXTS, script))]
        message: dict[str, Any] = {"columns": ["c0", column], "purpose": script}
        pages += [await typed(analyst, do, name="n", **message) for do in ("predict", "draft")]
        async with answering(sites, columns=2):
            path = await submitted(analyst, client, name="scripted", **message)
            await shown(analyst, path, 'id="found"')
        deny = "/people/analyst/ada/deny"
        assert (await operator.send(deny, deny, why=script)).status == 303
        for one in ("/", "/studies", "/budget", path, f"{path}/report", "/people", "/refusals", "/audit"):
            pages.append(await operator.get(one))
        pages.append(await operator.get(f"/audit?before={script.replace(' ', '+')}".replace('"', "%22")))
        for raw in (SCRIPT, BREAKING.split("{{")[0]):
            assert [page.text[:200] for page in pages if raw in page.text] == []
        assert any("&lt;" in page.text for page in pages), "it is shown, as what it is"


TEXTS = ("name", "purpose", "search", "components", "epsilon", "delta", "expected_records", "submission")


async def test_the_record_is_read_a_page_at_a_time_and_every_line_once(visits: Visits) -> None:
    for number in range(60):
        visits.rig.token(Role.ANALYST, f"a{number}")
    operator = await visits.visitor(Role.OPERATOR, "olga")
    first = await operator.get("/audit")
    older = first.text.partition('href="/audit?before=')[2].partition('"')[0]
    second = await operator.get(f"/audit?before={older}")
    for number in range(60):
        line = f"<code>analyst/a{number}</code>"
        assert first.text.count(line) + second.text.count(line) == 1
    assert "<code>certificate " in first.text, "the digest of an enrolment is of no key"
    assert (await operator.get("/audit?before=9" + "9" * 30)).status == 400


async def test_operators_see_who_is_online_and_analysts_only_the_hour(visits: Visits) -> None:
    sites = await visits.rig.sites()
    analyst, operator = (
        await visits.visitor(Role.ANALYST, "ada"),
        await visits.visitor(Role.OPERATOR, "olga"),
    )
    async with answering(sites):
        client = await visits.rig.client(Role.ANALYST, "bea")
        await client.events(await client.submit(study_toml()))
        greeting = a_hello(next_generation=b"g" * 32)
        await sites["anna"].stub.Hello(greeting)
    result = (await analyst.get("/")).text
    assert "online" not in result
    assert "in the hour of" in result
    assert "Certificate until" not in result
    result = (await operator.get("/")).text
    assert "Certificate until" in result
    assert result.count(">online<") == 1
    await sites["anna"].channel.close()
    async with asyncio.timeout(20):
        while ">online<" in (await operator.get("/")).text:
            await asyncio.sleep(0.1)


async def test_a_page_shows_who_a_study_waits_for_and_why_a_site_declined(visits: Visits) -> None:
    sites = await visits.rig.sites()
    analyst, client = await an_analyst(visits, "ada")
    other = await visits.visitor(Role.ANALYST, "bea")
    operator = await visits.visitor(Role.OPERATOR, "olga")
    path = await submitted(analyst, client)
    digest = bytes.fromhex(path.rpartition("/")[2])
    known, agreed = [digest], [pb.Agreed(plan_digest=digest)]
    await sites["anna"].stub.NextWork(
        pb.NextWorkRequest(known_plans=known, awaiting_approval=known), timeout=30
    )
    result = await shown(operator, path, "waits for a person at the site")
    assert "No round opens before" in result.text
    assert "Waiting for: anna, bert, carl." in result.text
    query = pb.NextWorkRequest(known_plans=known, agreed=agreed)
    waiting = sites["bert"].stub.NextWork(query)
    await shown(operator, path, "Waiting for: anna, carl.")
    declining = pb.DeclineRequest(
        plan_digest=digest, reason=pb.DECLINE_REASON_PERSON_PURPOSE, text=f"no {SCRIPT}"
    )
    browsers = (analyst, operator, other)
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(watching(one, f"{path}/live")) for one in browsers]
        for reader in readers:
            assert await status(reader) == 200
            await until(reader, b"Waiting for: anna, carl.")
        await sites["carl"].stub.Decline(declining)
        live = [await until(reader, b"\r\n0\r\n\r\n") for reader in readers]
    assert [b"<q>no &lt;script" in one for one in live] == [True, False, False]
    for browser in browsers:
        result = await shown(browser, path, "the purpose of the study is not covered there")
        assert SCRIPT not in result.text
        assert ("<q>no &lt;script" in result.text) is (browser is analyst), "it was written to the analyst"
    assert "purpose" in (await operator.get("/refusals")).text
    waiting.cancel()


async def test_other_calls_come_between_the_pieces_of_a_download() -> None:
    """A fast reader took a whole file in one step of the event loop, of 35 ms."""
    data, turns = memoryview(bytes(range(256)) * 1024), list[int]()

    async def others() -> None:
        while True:
            turns.append(len(found))
            await asyncio.sleep(0)

    found, task = list[bytes](), asyncio.ensure_future(others())
    async for piece in in_pieces(data):
        found.append(piece)
    task.cancel()
    assert b"".join(found) == data
    assert max(map(len, found)) <= 64 * 1024
    assert set(turns) >= set(range(1, len(found)))
