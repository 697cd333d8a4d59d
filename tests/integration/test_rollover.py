"""A certificate authority is replaced while a site serves, and nobody restarts or enrols again [R19]."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.identity import Role
from eigenveil_client.connection.identity import load_identity, open_channel
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.daemon import service as site_daemon
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.pki.authority_lists import rotation_status
from eigenveil_server.pki.rotation import retire, rotate, switch
from tests.client.site.support import killed_at, until
from tests.integration.offline import Root
from tests.integration.running_site import DAY, enrolled, listening, running_site
from tests.server.process import command
from tests.server.rig import Rig, made, refusal, serving, study_toml
from tests.support import a_hello

HELLO = a_hello()


def ca(rig: Rig, *words: str) -> tuple[int, str]:
    """`eigenveil-coordinator ca ...` beside the serving process; exit code and what it said."""
    code, out, err = command("ca", *words, "--config", str(rig.config.files.folder / "coordinator.toml"))
    return code, out + err


def shown(rig: Rig) -> dict[str, list[object]]:
    return json.loads(ca(rig, "show", "--json")[1])


async def a_study_works(rig: Rig, submission: str) -> None:
    ada = await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(study_toml(sites=("anna",), epsilon=0.3), submission)
    assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
    rig.daemon.registry.deny(Role.ANALYST, "ada")
    rig.token(Role.ANALYST, "ada", lift_denial=True)


async def rollover(rig: Rig, bring: list[tuple[str, ...]], folder: Path) -> None:
    """From one authority to the next, with a site at work; `bring` makes the next one trusted."""
    identity = folder / "anna"
    await enrolled(rig, identity)
    old = rig.ca
    async with running_site(identity) as daemon:
        await until(lambda: not shown(rig)["without_current_list"])
        for words in bring:
            code, message = ca(rig, *words)
            assert code == 0, message
        assert len(shown(rig)["authorities"]) == 2
        assert "ca rotate, ca csr" not in ca(rig, "rotate")[1], "one change at a time"
        await until(lambda: not shown(rig)["without_current_list"])
        assert ca(rig, "switch")[0] == 0
        await until(lambda: not shown(rig)["with_old_certificate"])
        assert ca(rig, "retire")[0] == 0
        await until(lambda: not shown(rig)["without_current_list"])
        assert rig.ca not in old
        assert load_identity(identity).ca_pem == rig.ca != old
        await a_study_works(rig, "after")
        # A channel is made of two handshakes, between which the certificate can change: one more attempt, at
        # most once for each command.
        assert set(daemon.contact.disconnects) <= {Code.UNREACHABLE.value}
        assert daemon.contact.disconnects.total() <= len(bring) + 2
    assert rig.config.files.ca_key.read_bytes().count(b"BEGIN PRIVATE KEY") == 1
    newcomer = await enrolled(rig, folder / "bert", "bert")
    async with await open_channel(newcomer):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("by_root", [False, True], ids=["rotated", "signed by an offline root"])
async def test_a_whole_rollover_with_a_site_that_never_restarts(tmp_path: Path, by_root: bool) -> None:
    with (
        mock.patch.object(connection, "CONNECTION_SECONDS", 0.5),
        mock.patch.object(site_daemon, "STABLE_SECONDS", 0.1),
    ):
        config = made(tmp_path / "c", certificate_days=20 / DAY, long_poll_seconds=0.2)
        async with serving(config) as rig:
            bring: tuple[str, ...] = ("rotate",)
            if by_root:
                csr = tmp_path / "ca.csr"
                assert ca(rig, "csr", "--out", str(csr))[0] == 0
                signed = await asyncio.to_thread(Root(tmp_path / "root").certify, csr)
                bring = ("import", "--cert", str(signed))
            await rollover(rig, [bring], tmp_path)
            (only,) = shown(rig)["authorities"]
            assert ("Hospital Root" in str(only)) is by_root


async def test_a_switch_waits_for_everybody_and_a_retirement_too(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        assert ca(rig, "switch")[0] == ca(rig, "retire")[0] == 9
        bert = await rig.client(Role.SITE, "bert")
        assert ca(rig, "rotate")[0] == 0
        assert "site/bert" in ca(rig, "switch")[1]
        async with asyncio.timeout(60):
            while len(result := (await bert.stub.Hello(HELLO)).authorities) < 2:
                await asyncio.sleep(0.05)
        assert result[-1].list_json.decode() == rig.list_json, "who greets is told"
        assert ca(rig, "switch", "--anyway")[0] == 0
        assert "site/bert" in ca(rig, "retire")[1]
        await bert.stub.Hello(HELLO)
        assert ca(rig, "retire", "--anyway")[0] == 0
        assert (await refusal(bert.stub.Hello(HELLO))).code is Code.IDENTITY


@pytest.mark.parametrize(
    ("step", "passage"),
    [("file-replacing", 1), ("authorities-listed", 1), ("file-replacing", 2), ("file-replacing", 3)],
)
async def test_a_retirement_that_crashed_shuts_out_the_old_one_and_is_finished_by_another(
    tmp_path: Path, step: str, passage: int
) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        bert = await rig.client(Role.SITE, "bert")
        await bert.stub.Hello(HELLO)
        rotate(rig.config)
        switch(rig.config, anyway=True)
        with killed_at(step, passage):
            retire(rig.config, anyway=True)
        assert (await refusal(bert.stub.Hello(HELLO))).code is Code.IDENTITY
        retire(rig.config, anyway=False)
        assert len(rotation_status(rig.config).authorities) == 1
        assert rig.ca.count(b"BEGIN CERTIFICATE") == 1
        assert rig.config.files.ca_key.read_bytes().count(b"BEGIN PRIVATE KEY") == 1
        with pytest.raises(RequestError, match="only one"):
            retire(rig.config, anyway=False)


async def test_what_is_no_authority_is_not_imported(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        wrong = {"a leaf": stored.pair, "the one there is": rig.config.files.ca}
        external = made(tmp_path / "d").files.ca
        for path, word in ((wrong["a leaf"], "not an authority"), (external, "has no key for")):
            code, message = ca(rig, "import", "--cert", str(path))
            assert (code, word in message) == (4, True), message
        code, message = ca(rig, "import", "--cert", str(wrong["the one there is"]))
        assert (code, "trusted already" in message) == (9, True)


async def test_a_damaged_authority_stops_a_start_and_not_a_serving_process(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    async with listening() as lines, serving(config) as rig:
        anna = await rig.client(Role.SITE, "anna")
        good = config.files.ca.read_bytes()
        config.files.ca.write_bytes(b"rubbish")
        await until(lambda: lines.count("authorities-unusable"))
        await anna.stub.Hello(HELLO)
        config.files.ca.write_bytes(good)
        await until(lambda: lines.count("authorities-changed"))
    config.files.ca.write_bytes(b"rubbish")
    with pytest.raises(EigenveilError, match="no certificate"):
        async with serving(config):
            pass
