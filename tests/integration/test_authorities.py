"""[R19] Whom a federation trusts is said by those it trusted before: not by whoever holds the coordinator's
key or its connection, and, with an offline root, not by whoever holds its whole folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import grpc
import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.protocol.authorities import ListedAuthority, SignedAuthorityList, list_from_json
from eigenveil.protocol.wire import lists_to_proto
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import StoredIdentity, load_identity, open_channel
from eigenveil_client.connection.identity_files import reset_authorities
from eigenveil_client.connection.session_start import Generation, greet_coordinator, renew
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_common.doctor import Level
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.admin.doctor import coordinator_checks
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config
from eigenveil_server.daemon import Daemon
from eigenveil_server.pki import authority_lists, rotation
from eigenveil_server.pki.authority import sign_list
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.authority_lists import parse_draft, rotation_status
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.rotation import (
    Signers,
    accept,
    extend,
    import_authority,
    retire,
    rotate,
    sign_draft,
    switch,
)
from tests.client.site.command_line import site, written
from tests.client.site.support import Context, Coordinator, a_stage, until
from tests.integration.offline import Root
from tests.integration.running_site import enrolled, listening, running_site
from tests.server.process import command
from tests.server.rig import FEDERATION, Rig, made, serving
from tests.support import refused
from tests.torture.peers.forge import impostor


@dataclass
class Thief(Coordinator):
    """A coordinator that holds the real one's server.key, and announces these lists."""

    lists: list[pb.SignedAuthorities] = field(default_factory=list)

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        hello = await super().Hello(request, context)
        hello.authorities.extend(self.lists)
        return hello

    async def Renew(self, request: object, context: Context) -> pb.RenewResponse:
        return pb.RenewResponse(authorities=self.lists)


@asynccontextmanager
async def impersonating(rig: Rig, sent: list[SignedAuthorityList], *identities: Path) -> AsyncIterator[Thief]:
    """Put the thief of server.key at the address that these identities call."""
    thief, files = Thief(lists=lists_to_proto(sent)), rig.config.files
    listener = grpc.aio.server()
    rpc.add_CoordinatorServicer_to_server(thief, listener)
    shown = [(files.server_key.read_bytes(), files.server.read_bytes())]
    port = listener.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(shown))
    await listener.start()
    for folder in identities:
        about = json.loads((folder / "identity.json").read_text())
        (folder / "identity.json").write_text(json.dumps(about | {"coordinator": f"127.0.0.1:{port}"}))
    try:
        yield thief
    finally:
        await listener.stop(0)


WORST = "signed by the attacker's authority"


async def refreshed(stored: StoredIdentity) -> StoredIdentity:
    async with await open_channel(stored) as channel:
        await greet_coordinator(rpc.CoordinatorStub(channel), "test", stored, Generation(stored.folder))
    return load_identity(stored.folder)


def forgeries(rig: Rig) -> dict[str, list[SignedAuthorityList]]:
    """Lists that whoever holds server.key and the connection can send; two are in force."""
    current_list, attacker = Authorities(rig.config.files).current_list, impostor(FEDERATION)
    own = ListedAuthority(certificate=attacker.certificate, issues=True, signs=True)
    both = replace(
        current_list, version=current_list.version + 1, authorities=(*current_list.authorities, own)
    )
    message = both.to_json()
    key = load_keys(rig.config.files).release
    return {
        WORST: [SignedAuthorityList(list_json=message, signatures=(sign_list(attacker.key, message),))],
        "unsigned": [SignedAuthorityList(list_json=message, signatures=())],
        "signed by the release key": [
            SignedAuthorityList(list_json=message, signatures=(key.sign(message),))
        ],
        "the first one again": list(Authorities(rig.config.files).since(0)[:1]),
    }


async def test_a_stolen_server_key_makes_no_authority(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig, listening() as lines:
        extend(rig.config, Signers())
        site = await enrolled(rig, tmp_path / "anna")
        analyst = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        files = [one.folder / "authorities.json" for one in (site, analyst)]
        before = [file.read_bytes() for file in files]
        for what, forged in forgeries(rig).items():
            async with impersonating(rig, forged, site.folder, analyst.folder) as thief:
                async with Analyst(load_identity(analyst.folder)) as caller:
                    with refused(Code.IDENTITY, "was rejected"):
                        await caller.studies()
                async with await open_channel(load_identity(site.folder)) as channel:
                    with refused(Code.IDENTITY, "was rejected"):
                        await renew(rpc.CoordinatorStub(channel), load_identity(site.folder))
                message = lines.count("authorities-refused")
                if what == WORST:
                    async with running_site(site.folder):
                        await until(lambda: lines.count("authorities-refused") > message)  # noqa: B023
            assert message == 2, what
            lines.seen.clear()
            assert [file.read_bytes() for file in files] == before, what
            assert thief.requests == [], "nor was any work taken from whoever sent it"
        assert load_identity(site.folder).ca_pem == rig.ca


async def test_who_was_away_walks_the_chain_and_who_enrols_late_too(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig, listening() as lines:
        first = rig.list_json
        away = await enrolled(rig, tmp_path / "anna")
        rotate(rig.config)
        extend(rig.config, Signers())
        extend(rig.config, Signers())
        await until(lambda: lines.count("authorities-changed"))
        rig.daemon.runtime.keys.authorities.refresh()
        now = await refreshed(away)
        late = await enrolled(rig, tmp_path / "bert", "bert", authorities=first)
        assert now.authorities == late.authorities == Authorities(rig.config.files).current_list
        assert now.authorities.version == 4
        assert rotation_status(rig.config).without_current_list == ("site/bert",), "who greeted has heard"
        (line,) = [one for one in lines.seen if "version=4" in one]
        assert all(print in line for print in now.authorities.fingerprints)


async def test_an_expired_list_is_reported_and_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(made(tmp_path / "c")) as rig, listening() as lines:
        stored = await enrolled(rig, tmp_path / "anna")
        monkeypatch.setattr(authority_lists, "LIST_VALIDITY", timedelta(days=-1))
        extend(rig.config, Signers())
        rig.daemon.runtime.keys.authorities.refresh()
        with refused(Code.IDENTITY, "expired on"):
            await refreshed(stored)
        with refused(Code.IDENTITY, "expired on"):
            await enrolled(rig, tmp_path / "bert", "bert")
        monkeypatch.setattr(authority_lists, "LIST_VALIDITY", timedelta(days=20))
        extend(rig.config, Signers())
        rig.daemon.runtime.keys.authorities.refresh()
        assert (await refreshed(stored)).authorities.version == 3
        async with running_site(stored.folder):
            await until(lambda: lines.count("authorities-end-soon"))


def without_a_root(folder: Path, root: Root) -> Config:
    """A new federation whose authority `root` has signed, and whose lists it signs."""
    create(
        folder, root.folder / "first.csr", federation=FEDERATION, host="127.0.0.1", port=0, enrol_port=0,
        budget_epsilon=10.0, budget_delta=1e-6,
    )  # fmt: skip
    config = Config(federation=FEDERATION, state=folder, port=0, enrol_port=0, long_poll_seconds=0.2)
    with refused(Code.BAD_CONFIG, "no list of authorities yet"):
        Daemon(config)
    signed = root.certify(root.folder / "first.csr")
    with refused(Code.BAD_ARGUMENT, "--signer"):
        import_authority(config, signed, Signers())
    assert not import_authority(config, signed, root.signers)
    signed_here(config, root)
    return config


def keys_in(config: Config) -> int:
    return config.files.ca_key.read_bytes().count(b"BEGIN PRIVATE KEY")


def signed_here(config: Config, root: Root) -> None:
    """The draft goes to the root, and its signature comes back."""
    signature = root.folder / "signature"
    signature.unlink(missing_ok=True)
    sign_draft(parse_draft(config.files.draft.read_bytes()), root.key, signature)
    accept(config, [signature])
    assert not config.files.draft.exists()


async def test_a_federation_below_an_offline_root_from_its_first_day_to_another_authority(
    tmp_path: Path,
) -> None:
    root = Root(tmp_path / "elsewhere")
    config = without_a_root(tmp_path / "c", root)

    async with serving(config) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        authorities = rig.daemon.runtime.keys.authorities
        old = authorities.issuing.certificate
        rotation.request(config, root.folder / "next.csr")
        assert not import_authority(config, root.certify(root.folder / "next.csr"), Signers())
        with refused(Code.CONFLICT, "only one"):
            switch(config, anyway=False)
        signed_here(config, root)
        authorities.refresh()
        assert (await refreshed(stored)).authorities.version == 2
        switch(config, anyway=False)
        authorities.refresh()
        rig.daemon.registry.deny(Role.SITE, "anna")
        again = await enrolled(rig, tmp_path / "anna", lift_denial=True)
        assert not retire(config, anyway=False)
        assert keys_in(config) == 2, "the old key stays until the list without it is signed"
        signed_here(config, root)
        authorities.refresh()
        after = (await refreshed(again)).authorities
        assert (after.version, old in after.issuers) == (3, False)
        assert [one.certificate for one in after.signers] == list(root.signers.certificates)
    folder = b"".join(file.read_bytes() for file in config.files.folder.iterdir())
    assert root.key.read_bytes() not in folder
    assert keys_in(config) == 1


async def test_a_copy_of_the_folder_below_an_offline_root_adds_no_authority(
    tmp_path: Path,
) -> None:
    root, other = Root(tmp_path / "elsewhere"), Root(tmp_path / "another")
    config = without_a_root(tmp_path / "c", root)

    async with serving(config) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        for attempt in (rotate, lambda config: extend(config, other.signers)):
            assert not attempt(config)
            signature = other.sign(config.files.draft)
            with refused(Code.CONFLICT, "too few signatures"):
                accept(config, [signature])
        assert (await refreshed(stored)).authorities.version == 1
        assert rotation_status(config).draft is not None


async def test_the_signing_of_lists_moves_from_the_coordinator_to_two_roots_elsewhere(tmp_path: Path) -> None:
    roots = [Root(tmp_path / name) for name in ("elsewhere", "another")]
    config = made(tmp_path / "c")
    both = Signers(certificates=tuple(one.signers.certificates[0] for one in roots), threshold=2)

    async with serving(config) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        assert not extend(config, both)
        with refused(Code.CONFLICT, "too few signatures"):
            accept(config, [roots[0].sign(config.files.draft)])
        many = [one.sign(config.files.draft) for one in roots * 9]
        accept(config, [tmp_path / "c" / "server.key", *many])
        assert len(Authorities(config.files).since(1)[0].signatures) == 3, "each who signed, once"
        rig.daemon.runtime.keys.authorities.refresh()
        current_list = (await refreshed(stored)).authorities
        assert (current_list.threshold, len(current_list.signers), current_list.issuers) == (
            2,
            2,
            stored.authorities.issuers,
        )
        assert not extend(config, Signers()), "the key that is here decides no more"


def answer_of(*words: str | Path) -> str:
    code, out, err = command("ca", *map(str, words))
    assert code == 0, err
    return out


def test_the_commands_of_an_operator_below_an_offline_root(tmp_path: Path) -> None:
    root, here = Root(tmp_path / "elsewhere"), tmp_path / "c"
    csr, toml, signature = tmp_path / "first.csr", here / "coordinator.toml", tmp_path / "signature"
    ports = ("--port", "0", "--enrol-port", "0")
    code, out, err = command("init", "--dir", str(here), "--federation", "north", "--csr", str(csr), *ports)
    assert (code, "--signer" in out) == (0, True), err
    assert not (here / "server.key").exists()
    cert = ("--cert", root.certify(csr), "--signer", root.certificate)
    message = answer_of("import", "--config", toml, *cert)
    assert "Not in force yet" in message
    draft = ("--draft", here / "authorities.draft", "--key", root.key)
    with mock.patch("click.confirm", side_effect=[False, True]):
        for expected in ("issue:", "Wrote"):
            assert not signature.exists()
            assert expected in answer_of("sign", *draft, "--out", signature)
    assert command("ca", "sign", *map(str, draft), "--out", str(signature), "--yes")[0] == 9, (
        "none is replaced"
    )
    answer_of("accept", "--config", toml, "--signature", signature)
    code, out, _ = command("token", "--config", str(toml), "--role", "site", "--name", "anna")
    trusted = list_from_json(json.loads(out)["authorities"].encode())
    assert json.loads(answer_of("show", "--config", toml, "--json"))["list"] == trusted.as_dict()
    waiting = json.loads(answer_of("extend", "--config", toml, "--json"))["list"]
    assert (waiting["version"], waiting["sign"]) == (2, [one.fingerprint for one in trusted.signers])
    assert "waits for signatures" in answer_of("show", "--config", toml)
    (check,) = [one for one in coordinator_checks(toml) if one.about == "authorities"]
    assert (check.level, "1 of 1" in check.text) == (Level.WARN, True)


def test_of_two_operators_at_once_neither_drops_the_other_ones_list(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    before = Authorities(config.files).current_list.version
    with ThreadPoolExecutor(4) as operators:
        assert all(operators.map(lambda _: extend(config, Signers()), range(12)))
    assert Authorities(config.files).current_list.version == before + 12


def test_a_site_shows_whom_it_trusts_and_until_when(tmp_path: Path) -> None:
    stage = a_stage(tmp_path)
    current_list = load_identity(stage.config.identity).authorities
    shown = site(written(stage), "authorities", "--json")
    assert (shown.code, shown.json) == (0, current_list.as_dict())
    assert current_list.fingerprints[0] in site(written(stage), "authorities").out
    for days, level in ((90, Level.OK), (20, Level.WARN), (-1, Level.FAIL)):
        ends = int(datetime.now(UTC).timestamp()) + days * 86_400
        reset_authorities(stage.config.identity, replace(current_list, version=7, expires=ends))
        (check,) = [one for one in site_checks(written(stage)) if one.about == "authorities"]
        assert (check.level, "version 7" in check.text) == (level, True)


@pytest.mark.parametrize("act", [lambda config: load_keys(config.files), lambda c: extend(c, Signers())])
def test_a_folder_without_a_list_of_authorities_is_refused(
    tmp_path: Path, act: Callable[[Config], object]
) -> None:
    config = made(tmp_path / "c")
    config.files.authorities.unlink()
    with refused(Code.BAD_CONFIG, "ca import"):
        act(config)
