"""Shutting somebody out: tokens, certificates, calls and streams under way [R1] [R2]."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.numerics.encoding import frozen
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.pki.authority import new_key
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry, current_enrolments
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import open_store
from tests.server.process import command
from tests.server.rig import HOUR, Rig, made, refusal, request_for, serving, study_toml

DAY_MS = 86_400_000


async def test_a_new_token_and_a_denial_void_the_unused_ones(rig: Rig) -> None:
    first = rig.token(Role.SITE, "anna")
    remaining = rig.token(Role.SITE, "bert"), rig.token(Role.ANALYST, "anna")
    second = rig.token(Role.SITE, "anna")
    assert "was replaced" in str(await refusal(rig.enrol(first, request_for(new_key()))))
    rig.daemon.registry.deny(Role.SITE, "anna")
    third = rig.daemon.registry.new_token(Role.SITE, "anna", 60_000, lift_denial=True)
    for stolen in (first, second):
        assert (await refusal(rig.enrol(stolen, request_for(new_key())))).code is Code.IDENTITY
    for token in (*remaining, third):
        await rig.enrol(token, request_for(new_key()))


def test_every_change_of_who_may_call_is_seen_at_the_next_look(tmp_path: Path) -> None:
    """A look reads the tables again only if the audit has grown."""
    config, now = made(tmp_path / "c"), unix_ms()
    authority, life = load_keys(config.files).authority, 90.0
    with closing(open_store(config.files.database)) as store:
        registry = Registry(store, config.federation, lambda: now)
        seen = [current_enrolments(store.reader, None)]

        def look() -> None:
            seen.append(current_enrolments(store.reader, seen[-1]))
            assert seen[-1] == current_enrolments(store.reader, None)
            assert (seen[-1].denied, seen[-1].certificates) != (seen[-2].denied, seen[-2].certificates)

        def enrolled() -> str:
            token = registry.new_token(Role.SITE, "anna", HOUR)
            registry.enrol(token, request_for(new_key()), authority, lambda role: life)
            look()
            ((_, fingerprints),) = seen[-1].certificates.items()
            return next(print for print, stored in fingerprints.items() if not stored.superseded)

        anna, shown = Identity(federation=config.federation, role=Role.SITE, name="anna"), enrolled()
        shown = enrolled()  # anew: the first one is superseded
        now += int(life * DAY_MS * 2 / 3)
        for _ in range(2):  # the answer to the first is lost, and it is replaced
            registry.renew(anna, shown, request_for(new_key()), authority, life)
            look()
        (_, fingerprints), *_ = seen[-1].certificates.items()
        registry.mark_used(
            anna, next(print for print, stored in fingerprints.items() if stored.renewal_unused)
        )
        look()
        registry.deny(Role.SITE, "anna")
        look()
        registry.new_token(Role.SITE, "anna", HOUR, lift_denial=True)
        look()


async def test_a_denied_name_is_not_invited_or_enrolled_until_the_denial_is_lifted(rig: Rig) -> None:
    csr = request_for(new_key())
    used = rig.token(Role.SITE, "anna")
    await rig.enrol(used, csr)
    rig.daemon.registry.deny(Role.SITE, "anna")
    assert "deny-list" in str(await refusal(rig.enrol(used, csr)))
    with pytest.raises(RequestError, match="--lift-denial") as refused:
        rig.token(Role.SITE, "anna")
    assert refused.value.code is Code.CONFLICT
    with pytest.raises(RequestError, match="no site zoe"):
        rig.daemon.registry.deny(Role.SITE, "zoe")


async def test_a_key_that_was_certified_before_is_not_enrolled_again_for_anybody(rig: Rig) -> None:
    csr = request_for(new_key())
    await rig.enrol(rig.token(Role.SITE, "anna"), csr)
    for role, name in ((Role.SITE, "anna"), (Role.SITE, "bert"), (Role.ANALYST, "anna")):
        assert "certified before" in str(await refusal(rig.enrol(rig.token(role, name), csr)))


async def opened(rig: Rig) -> str:
    ada = await rig.client(Role.ANALYST, "ada")
    return await ada.submit(study_toml(sites=("anna",)))


async def test_a_denial_by_another_process_ends_calls_under_way(tmp_path: Path) -> None:
    config = made(tmp_path / "c", long_poll_seconds=50.0)
    async with serving(config) as rig:
        anna, bert = [await rig.client(Role.SITE, name) for name in ("anna", "bert")]
        eve = await rig.client(Role.ANALYST, "eve")
        digest = await opened(rig)
        query = await anna.query()
        await anna.contribute(query, frozen([60]))
        calls = [asyncio.create_task(call) for call in (bert.query(), eve.events(digest))]
        polling = asyncio.create_task(anna.query())
        await asyncio.sleep(0.3)
        where = ("--config", str(config.files.folder / "coordinator.toml"))
        for role, name in (("site", "bert"), ("analyst", "eve")):
            code, _, err = await asyncio.to_thread(command, "deny", *where, "--role", role, "--name", name)
            assert code == 0, err
        for call in calls:
            assert "deny-list" in str(await refusal(asyncio.wait_for(call, 45)))
        assert not polling.done() or polling.exception() is None, "nobody else is disturbed"
        polling.cancel()


async def test_a_call_that_outlives_its_certificate_is_ended(tmp_path: Path) -> None:
    ahead = [0]

    config = made(tmp_path / "c", long_poll_seconds=50.0)
    async with serving(config, clock=lambda: unix_ms() + ahead[0]) as rig:
        anna = await rig.client(Role.SITE, "anna")
        polling = asyncio.create_task(anna.query())
        await asyncio.sleep(0.3)
        ahead[0] = 8 * 24 * HOUR
        assert "not valid now" in str(await refusal(asyncio.wait_for(polling, 45)))


async def test_a_second_device_leaves_the_first_one_valid_and_a_denial_ends_both(
    rig: Rig,
) -> None:
    first = await rig.client(Role.ANALYST, "ada")
    credentials = await rig.credentials(Role.ANALYST, "ada", device="laptop")
    second = rig.connect(credentials)
    for client in (first, second):
        await client.stub.ListStudies(pb.ListStudiesRequest())
    anew = rig.connect(await rig.credentials(Role.ANALYST, "ada", device="laptop"))
    assert (await refusal(second.stub.ListStudies(pb.ListStudiesRequest()))).code is Code.IDENTITY
    for client in (first, anew):
        await client.stub.ListStudies(pb.ListStudiesRequest())
    devices = [row["device"] for row in rig.rows("SELECT DISTINCT device FROM certificates ORDER BY device")]
    assert devices == ["", "laptop"]
    rig.daemon.registry.deny(Role.ANALYST, "ada")
    for client in (first, anew):
        assert (await refusal(client.stub.ListStudies(pb.ListStudiesRequest()))).code is Code.IDENTITY


async def test_a_site_has_one_device(rig: Rig) -> None:
    with pytest.raises(RequestError, match="one daemon"):
        rig.token(Role.SITE, "anna", device="laptop")
    with pytest.raises(EigenveilError):
        rig.token(Role.ANALYST, "ada", device="not a name")
