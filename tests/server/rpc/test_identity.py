"""Right to call: the certificate decides, on every call [R1]."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.pki.authority import Authority, key_to_pem, new_key
from eigenveil_server.process import as_datetime, unix_ms
from eigenveil_server.rpc import callers
from tests.server.rig import FEDERATION, HOUR, Rig, made, refusal, request_for, serving, study_toml
from tests.support import a_hello

HELLO = a_hello()


async def test_each_role_is_refused_the_methods_of_others(rig: Rig) -> None:
    site = await rig.client(Role.SITE, "anna")
    analyst = await rig.client(Role.ANALYST, "anna")
    submitted = await refusal(
        site.stub.SubmitStudy(pb.SubmitStudyRequest(study_toml=study_toml(), submission="x"))
    )
    worked = await refusal(analyst.stub.NextWork(pb.NextWorkRequest()))
    assert (submitted.code, worked.code) == (Code.IDENTITY, Code.IDENTITY)
    assert "not allowed for a certificate of role site" in str(submitted)
    assert "not allowed for a certificate of role analyst" in str(worked)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "is unknown here"),
        ({"federation": "other-fed"}, "does not belong to federation"),
        ({"hosts": ("localhost",)}, "exactly one name"),
    ],
)
async def test_certificates_of_our_ca_that_were_not_enrolled_are_refused(
    rig: Rig, changes: dict[str, Any], message: str
) -> None:
    await rig.client(Role.SITE, "anna")
    refused = await refusal(rig.connect(rig.forged(**changes)).stub.Hello(HELLO))
    assert refused.code is Code.IDENTITY
    assert message in str(refused)


async def test_other_authoritys_expired_and_server_certificates_fail_in_tls(rig: Rig) -> None:
    external = Authority.create(FEDERATION, as_datetime(unix_ms()))
    for stored in (
        rig.forged(external),
        rig.forged(now=unix_ms() - 48 * HOUR, days=1.0),
        rig.forged(role=Role.COORDINATOR),
    ):
        refused = await refusal(rig.connect(stored).stub.Hello(HELLO))
        assert refused.code is Code.UNREACHABLE


async def test_a_certificate_that_expires_is_refused_on_the_connection_it_opened(tmp_path: Path) -> None:
    ahead = [0]

    async with serving(made(tmp_path / "c"), clock=lambda: unix_ms() + ahead[0]) as rig:
        site = await rig.client(Role.SITE, "anna")
        await site.stub.Hello(HELLO)
        ahead[0] = 8 * 24 * HOUR
        refused = await refusal(site.stub.Hello(HELLO))
        assert refused.code is Code.IDENTITY
        assert "not valid now" in str(refused)


async def test_the_first_call_with_a_renewed_certificate_shuts_out_the_one_before(tmp_path: Path) -> None:
    age = [4 * 24 * HOUR]
    config = made(tmp_path / "c", analyst_certificate_days=7.0)
    async with serving(config, clock=lambda: unix_ms() - age[0]) as rig:
        stored, key, nothing = await rig.credentials(Role.ANALYST, "ada"), new_key(), pb.ListStudiesRequest()
        age[0], old = 0, rig.connect(stored)
        answer = await old.stub.Renew(pb.RenewRequest(csr_der=request_for(key)))
        await old.stub.ListStudies(nothing)  # the answer may have been lost
        new = rig.connect(replace(stored, key=key_to_pem(key), certificate=answer.certificate_pem))
        await new.stub.ListStudies(nothing)
        assert (await refusal(old.stub.ListStudies(nothing))).code is Code.IDENTITY


async def test_one_caller_cannot_take_every_call(rig: Rig) -> None:
    anna = await rig.client(Role.SITE, "anna")
    polls = [
        asyncio.ensure_future(anna.stub.NextWork(pb.NextWorkRequest()))
        for _ in range(callers.MAX_CALLS_PER_CALLER + 1)
    ]
    done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    assert (await refusal(done.pop())).code is Code.NOT_READY
    bert = await rig.client(Role.SITE, "bert")
    await bert.stub.Hello(HELLO)
    for poll in waiting:
        poll.cancel()
