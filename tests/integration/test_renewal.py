"""Certificates are renewed at two thirds of their life, on both ends, without a restart [R17]."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.identity import Role
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection import identity_files
from eigenveil_client.connection.channel import negotiate_version
from eigenveil_client.connection.identity import StoredIdentity, load_identity, open_channel
from eigenveil_client.connection.session_start import due, renew
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.process import unix_ms
from tests.client.site.support import killed_at, until
from tests.integration.running_site import DAY, enrolled, listening, running_site
from tests.server.rig import HOUR, Rig, made, serving, study_toml

STEPS = [
    *(("file-replacing", passage) for passage in (1, 2)),  # the pending key, the pair
    *(
        (step, 1)
        for step in ("identity-keyed", "identity-granted", "identity-replacing", "identity-replaced")
    ),
]


async def hello(stored: StoredIdentity) -> Code | None:
    """Say Hello with a certificate; how it is refused, if it is."""
    try:
        async with await open_channel(stored) as channel:
            await negotiate_version(rpc.CoordinatorStub(channel), "test")
    except EigenveilError as problem:
        return problem.code
    return None


async def renewed(stored: StoredIdentity) -> None:
    async with await open_channel(stored) as channel:
        await renew(rpc.CoordinatorStub(channel), stored)


def copied_identity(stored: StoredIdentity, folder: Path) -> StoredIdentity:
    """A copy of an identity's files, to be used when they have been replaced."""
    folder.mkdir()
    for file in stored.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
        (folder / file.name).chmod(0o600)
    return load_identity(folder)


async def test_a_running_site_renews_repeatedly_and_goes_on_working(tmp_path: Path) -> None:
    config = made(tmp_path / "c", certificate_days=6 / DAY, long_poll_seconds=0.3)
    async with listening() as lines, serving(config) as rig:
        first = await enrolled(rig, tmp_path / "anna")
        server = config.files.server.read_bytes()
        async with running_site(tmp_path / "anna") as daemon:
            await until(lambda: lines.count("renewed") >= 2)
            await until(lambda: daemon.contact.connections >= 3)
            # A new certificate of the coordinator ends a channel that was about to open.
            assert set(daemon.contact.disconnects) <= {Code.UNREACHABLE.value}
            ada = await rig.client(Role.ANALYST, "ada")
            digest = await ada.submit(study_toml(sites=("anna",)))
            assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
        last = load_identity(tmp_path / "anna")
        assert last.key_print != first.key_print
        assert last.pair.stat().st_mode & 0o777 == 0o600
        assert config.files.server.read_bytes() != server


class Past:
    """The coordinator's clock: some days ago, until it is `over`."""

    def __init__(self, days: int = 4) -> None:
        self.ms = days * 24 * HOUR

    def __call__(self) -> int:
        return unix_ms() - self.ms

    def over(self) -> None:
        self.ms = 0


async def half_over(rig: Rig, clock: Past, folder: Path) -> StoredIdentity:
    """An identity whose certificate is more than half over."""
    stored = await enrolled(rig, folder)
    clock.over()
    return stored


async def test_a_lost_answer_does_no_harm_and_the_old_certificate_ends_with_the_first_use_of_the_new(
    tmp_path: Path,
) -> None:
    clock = Past()
    async with serving(made(tmp_path / "c"), clock=clock) as rig:
        stored = await half_over(rig, clock, tmp_path / "anna")
        old = copied_identity(stored, tmp_path / "old")
        with (
            mock.patch.object(
                identity_files, "verified_certificate", side_effect=PeerError(Code.UNREACHABLE, "lost")
            ),
            pytest.raises(PeerError, match="lost"),
        ):
            await renewed(stored)
        assert load_identity(stored.folder).key_print == stored.key_print
        assert await hello(stored) is None
        await renewed(stored)
        new = load_identity(stored.folder)
        assert new.key_print != old.key_print
        assert await hello(old) is None, "nobody has used the new one yet"
        assert await hello(new) is None
        assert await hello(old) is Code.IDENTITY


async def test_the_same_request_gets_the_same_certificate_and_one_without_answer_leaves_no_trace(
    tmp_path: Path,
) -> None:
    clock = Past()
    async with serving(made(tmp_path / "c"), clock=clock) as rig:
        stored = await half_over(rig, clock, tmp_path / "anna")
        keys = [identity_files.pending_key(tmp_path, name) for name in ("one", "two")]
        async with await open_channel(stored) as channel:
            stub = rpc.CoordinatorStub(channel)
            first, again, second = [
                (await stub.Renew(pb.RenewRequest(csr_der=identity_files.request_for(key)))).certificate_pem
                for key in (keys[0], keys[0], keys[1])
            ]
        assert first == again != second
        rows = rig.daemon.runtime.repository.store.reader.rows(
            "SELECT renewal_unused FROM certificates ORDER BY renewal_unused"
        )
        assert [row["renewal_unused"] for row in rows] == [0, 1]


async def test_too_early_and_an_old_key_are_refused(tmp_path: Path) -> None:
    clock = Past()
    async with serving(made(tmp_path / "c"), clock=clock) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        bert = await enrolled(rig, tmp_path / "bert", "bert")
        with pytest.raises(EigenveilError, match="two thirds") as early:
            await renewed(stored)
        assert early.value.code is Code.NOT_READY
        clock.over()
        theirs = identity_files.read_pair(bert.folder)[0]
        with (
            mock.patch.object(identity_files, "pending_key", return_value=theirs),
            pytest.raises(PeerError, match="certified before"),
        ):
            await renewed(stored)
        rig.daemon.registry.deny(Role.SITE, "anna")
        with pytest.raises(PeerError, match="deny-list"):
            await renewed(stored)


@pytest.mark.parametrize(("step", "passage"), STEPS)
async def test_a_crash_at_any_step_leaves_an_identity_that_works_and_renews(
    tmp_path: Path, step: str, passage: int
) -> None:
    clock = Past()
    async with serving(made(tmp_path / "c"), clock=clock) as rig:
        stored = await half_over(rig, clock, tmp_path / "anna")
        with killed_at(step, passage):
            await renewed(stored)
        survivor = load_identity(stored.folder)
        assert await hello(survivor) is None
        if survivor.key_print == stored.key_print:
            await renewed(survivor)
            assert not (stored.folder / "pending.pem").exists()
        assert load_identity(stored.folder).key_print != stored.key_print
        assert await hello(load_identity(stored.folder)) is None


async def test_an_analyst_renews_by_the_way_and_a_watch_with_the_old_certificate_goes_on(
    tmp_path: Path,
) -> None:
    clock = Past(days=5)
    async with serving(made(tmp_path / "c", analyst_certificate_days=7.0), clock=clock) as rig:
        stored = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        clock.over()
        await rig.client(Role.SITE, "anna")
        async with Analyst(stored) as before:
            with mock.patch("eigenveil_client.analyst.client.due", return_value=False):
                plan, _ = await before.submit(study_toml(sites=("anna",)), "one")
            assert due(stored)
            async with Analyst(stored) as renewing:
                await renewing.studies()
            assert load_identity(stored.folder).key_print != stored.key_print
            async with Analyst(load_identity(stored.folder)) as after:
                assert len(await after.studies()) == 1
            assert [row.plan_digest.hex() for row in await before.studies()] == [plan.digest]
