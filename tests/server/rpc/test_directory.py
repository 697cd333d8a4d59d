"""Sites' statements, their readers, and refusals of studies because of them [R22] [R23]."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.formats import SignedDictionary
from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_common.examples import example
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import sites as rpc_sites
from tests.core.dictionary.test_admission import stated
from tests.server.process import command
from tests.server.rig import FEDERATION, HOUR, Client, Rig, Sites, made, refusal, serving, study_toml
from tests.support import a_hello

COLUMNS = tuple(f"c{i}" for i in range(4))


async def state(site: Client, statement: SiteStatement | None, shown: bytes = b"") -> bytes:
    """Greet as a daemon does; what the next greeting must show."""
    following = os.urandom(32)
    message = None if statement is None else statement.to_proto()
    await site.stub.Hello(a_hello(generation=shown, next_generation=following, statement=message))
    return following


async def listed(caller: Client) -> dict[str, pb.SiteRow]:
    """Every site, in as many calls as it takes."""
    found: dict[str, pb.SiteRow] = {}
    more = True
    while more:
        answer = await caller.stub.ListSites(pb.ListSitesRequest(after=max(found, default="")))
        assert not found.keys() & {row.name for row in answer.sites}
        found |= {row.name: row for row in answer.sites}
        more = answer.more
    return found


async def test_a_site_states_for_itself_alone_and_may_take_it_back(tmp_path: Path) -> None:
    config = made(tmp_path / "c")

    async with serving(config) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        await rig.credentials(Role.SITE, "dora")
        first, second = stated(("c0",)), stated(("c1",), manual=True)
        await state(sites["anna"], first)
        await state(sites["bert"], second)
        rows = await listed(ada)
        assert sorted(rows) == ["anna", "bert", "carl", "dora"]
        assert (rows["anna"].statement, rows["bert"].statement) == (first.to_proto(), second.to_proto())
        assert not rows["carl"].HasField("statement")
        assert all(
            rows[name].last_call_unix_ms % HOUR == 0 < rows[name].last_call_unix_ms
            for name in ("anna", "bert")
        )
        assert rows["dora"].last_call_unix_ms == 0
        assert rows == await listed(await rig.client(Role.OPERATOR, "olga"))
        assert (await refusal(sites["anna"].stub.ListSites(pb.ListSitesRequest()))).code is Code.IDENTITY
        rig.daemon.registry.deny(Role.SITE, "bert")
        assert "bert" not in await listed(ada)
    async with serving(config) as rig:  # durable; when a site was heard is not
        ada = await rig.client(Role.ANALYST, "ada")
        rows = await listed(ada)
        assert (rows["anna"].statement, rows["anna"].last_call_unix_ms) == (first.to_proto(), 0)
        anna = await rig.client(Role.SITE, "anna")  # enrolled anew: its generations begin anew
        await state(anna, None)
        assert not (await listed(ada))["anna"].HasField("statement")


async def test_who_is_no_sites_daemon_states_nothing(rig: Rig) -> None:
    message = stated(("c0",)).to_proto()
    ada, anna = await rig.client(Role.ANALYST, "ada"), await rig.client(Role.SITE, "anna")
    olga = await rig.client(Role.OPERATOR, "olga")
    for caller, more in ((ada, {"next_generation": bytes(32)}), (olga, {}), (anna, {})):
        refused = await refusal(caller.stub.Hello(a_hello(statement=message, **more)))
        assert (refused.code, "only a site's daemon" in str(refused)) == (Code.PROTOCOL, True)
    hostile = pb.SiteStatement(columns_stated=True, columns=["\x1b[2J"])
    large = pb.SiteStatement(columns_stated=True, columns=["x" * 200] * 400)
    for bad in (hostile, large):
        greeting = a_hello(next_generation=bytes(32), statement=bad)
        assert (await refusal(anna.stub.Hello(greeting))).code is Code.PROTOCOL
    assert not (await listed(ada))["anna"].HasField("statement")


async def test_a_list_that_no_message_holds_comes_in_parts(
    monkeypatch: pytest.MonkeyPatch, sites: Sites, ada: Client
) -> None:
    monkeypatch.setattr(rpc_sites, "ROOM", 300)

    wide = stated(tuple("x" * 150 for _ in range(3)))
    for site in sites.values():
        await state(site, wide)
    first = await ada.stub.ListSites(pb.ListSitesRequest())
    assert (len(first.sites), first.more) == (1, True)
    assert len(await listed(ada)) == len(sites)


async def test_the_coordinator_refuses_what_the_federation_does_not_have(tmp_path: Path) -> None:
    """A client is not trusted to have checked."""
    config = made(tmp_path / "c", approval_hours=0.5)

    async with serving(config) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        await state(sites["anna"], stated(COLUMNS[:3]))
        for call in (
            ada.submit(study_toml()),
            ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=study_toml())),
        ):
            refused = await refusal(call)
            result = (Code.BAD_STUDY, "anna does not offer 'c3'")
            assert (refused.code, str(refused)) == result
        aside = study_toml(columns=3) + f'\n[applicant]\ncontact = "ada{" " * 66}decide by: 2030-01-01"\n'
        assert "blanks in a row" in str(await refusal(ada.submit(aside, "aside")))
        await ada.submit(study_toml(columns=3), "three")
        await state(sites["bert"], stated(manual=True))
        slow = study_toml(columns=3, name="slow")
        assert "at bert a person decides" in str(await refusal(ada.submit(slow, "slow")))
        await ada.submit(study_toml(columns=3, name="slow", deadline_seconds=3600.0), "slow")
        # Carl states nothing, and nobody is held to it.
        await ada.submit(study_toml(sites=("carl",), name="carls"), "carls")
        assert rig.repository.ledger.ledger.committed().micro_rho > 0


async def test_a_dictionary_is_published_beside_a_serving_coordinator(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    where = ("--config", str(config.files.folder / "coordinator.toml"))

    def published(text: str, version: int) -> tuple[int, str, str]:
        path = tmp_path / "dictionary.toml"
        path.write_text(text.replace("version = 1", f"version = {version}"))
        return command("dictionary", "publish", str(path), *where)

    async with serving(config) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        query = pb.GetDictionaryRequest()
        assert not (await ada.stub.GetDictionary(query)).HasField("dictionary")
        assert "No dictionary" in command("dictionary", "history", *where)[1]
        assert command("dictionary", "show", *where)[0] == 8
        await ada.submit(study_toml(), "before")  # no dictionary, no rule
        assert published(example("dictionary"), 2)[0] == 0
        code, _, message = published(example("dictionary"), 2)
        assert (code, "raise it to 3" in message) == (9, True)
        code, _, message = published(example("dictionary").replace("upper = 120", 'upper = "fill in"', 1), 3)
        assert (code, "filled in, for 'age'" in message) == (2, True)
        for caller in (ada, await rig.client(Role.SITE, "anna"), await rig.client(Role.OPERATOR, "olga")):
            sent = (await caller.stub.GetDictionary(query)).dictionary
            signed = SignedDictionary(signed_json=sent.signed_json, signature=sent.signature)
            found = signed.check_federation(rig.daemon.runtime.keys.release_public, FEDERATION)
            assert (found.name, found.version) == ("clinical", 2)
        unknown = await refusal(ada.submit(study_toml(), "after"))
        assert "neither in the dictionary of test-fed nor offered by a site: 'c0'" in str(unknown)
        toml = study_toml(columns=1, components=1).replace('"c0"', '"age"')
        await ada.submit(toml, "age")
        forged = {"version": 9, "signed_json": sent.signed_json, "signature": bytes(64), "at": 0}
        with rig.repository.store.writer.transaction() as change:
            change.insert("dictionaries", forged)
        assert (await refusal(ada.submit(toml, "later"))).code is Code.NOT_READY
        with rig.repository.store.writer.transaction() as change:
            change.execute("DELETE FROM dictionaries WHERE version = 9")
        code, out, _ = command("dictionary", "show", "--version", "2", *where)
        assert (code, 'name = "clinical"' in out) == (0, True)
        assert "version 2  clinical" in command("dictionary", "history", *where)[1]
        assert published(out.replace("version = 2", "version = 1"), 3)[0] == 0
