"""Enrolment and the stored identity: the key stays here, and nothing unproven is believed."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import JOIN_FORMAT, Role
from eigenveil.protocol.wire import lists_to_proto
from eigenveil.signatures import formatted
from eigenveil_client.connection import key_files
from eigenveil_client.connection.channel import MAX_BACKOFF_SECONDS, backoff_seconds, call
from eigenveil_client.connection.identity import enrol, load_identity, open_channel
from eigenveil_client.connection.identity_files import read_pair
from eigenveil_client.connection.tls import verified_channel
from eigenveil_common.files import write_secret
from eigenveil_common.rpc import CODE_KEY
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from tests.client.site.support import (
    FEDERATION,
    SITE,
    Authority,
    Context,
    Coordinator,
    Leaf,
    Stage,
    signed,
    store_identity,
)
from tests.support import Log, refused

URI = f"eigenveil://{FEDERATION}/site/{SITE}"


class Enrolment(rpc.EnrolmentServicer):
    """Certifies whoever asks, as `uri`; loses the first `lost` answers."""

    def __init__(self, authority: Authority, uri: str = URI, lost: int = 0) -> None:
        self.authority, self.uri, self.lost, self.federation = authority, uri, lost, FEDERATION
        self.lists: list[pb.SignedAuthorities] = []
        self.requests: list[pb.EnrolRequest] = []

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.EnrolResponse:
        self.requests.append(request)
        if not request.token.startswith("right"):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no such token", ((CODE_KEY, "identity"),))
        if len(self.requests) <= self.lost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        key = x509.load_der_x509_csr(request.csr_der).public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        pem = self.authority.certify(self.uri, key)
        return pb.EnrolResponse(certificate_pem=pem, federation=self.federation, authorities=self.lists)


@asynccontextmanager
async def listening(servicer: Enrolment, leaf: Leaf) -> AsyncIterator[int]:
    server = grpc.aio.server()
    rpc.add_EnrolmentServicer_to_server(servicer, server)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(leaf.key, leaf.certificate)]))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


def enrolling(folder: Path, servicer: Enrolment, leaf: Leaf | None = None, **join: str) -> None:
    """Enrol `folder` at `servicer` with a join file of these values."""
    authority = servicer.authority

    async def scenario() -> None:
        async with listening(servicer, leaf or authority.coordinator()) as port:
            values = {
                "token": "right", "role": "site", "name": SITE, "federation": FEDERATION,
                "coordinator": "127.0.0.1:7443", "enrol": f"127.0.0.1:{port}",
                "authorities": authority.trusting().to_json().decode(),
            }  # fmt: skip
            path = folder.parent / "join.json"
            write_secret(path, json.dumps(formatted(JOIN_FORMAT, values | join)).encode())
            await asyncio.to_thread(enrol, path, folder, (Role.SITE,))

    asyncio.run(scenario())


def test_enrolment_stores_a_complete_identity(tmp_path: Path) -> None:
    authority = Authority()
    servicer = Enrolment(authority, lost=2)
    folder = tmp_path / "deep" / "identity"
    folder.parent.mkdir()
    enrolling(folder, servicer)
    stored = load_identity(folder)
    assert (stored.identity.uri, stored.coordinator) == (URI, "127.0.0.1:7443")
    assert stored.authorities.release_key == authority.release_public
    assert (stat.S_IMODE(stored.pair.stat().st_mode), stat.S_IMODE(folder.stat().st_mode)) == (0o600, 0o700)
    assert len({request.csr_der for request in servicer.requests}) == 1
    assert b"PRIVATE" not in servicer.requests[0].SerializeToString()
    assert not (folder / "pending.pem").exists()
    key = stored.key_print
    enrolling(folder, servicer)
    assert load_identity(folder).key_print == key, "the same join file again is the same key"
    enrolling(folder, servicer, token="right too")
    assert load_identity(folder).key_print != key, "a new one is a new key"


def test_a_join_file_of_other_authorities_is_logged(tmp_path: Path, caplog: Log) -> None:
    first, second = Authority(), Authority()
    enrolling(tmp_path / "identity", Enrolment(first))
    assert "authorities-changed" not in caplog.text
    enrolling(tmp_path / "identity", Enrolment(second), token="right too")
    assert f"no longer: {first.listed.fingerprint}" in caplog.text


def test_a_folder_has_one_identity(tmp_path: Path) -> None:
    servicer = Enrolment(Authority())
    enrolling(tmp_path / "identity", servicer)
    with refused(Code.CONFLICT, "already belongs to"):
        enrolling(tmp_path / "identity", servicer, name="hospital-b")


def theirs() -> pb.SignedAuthorities:
    """The next list, by an authority that nobody trusts."""
    one = Authority()
    (message,) = lists_to_proto([signed(one.trusting(version=2), one)])
    return message


@pytest.mark.parametrize(("change", "message"), [
    ({"uri": "eigenveil://test-federation/site/hospital-b"}, "not for"),
    ({"uri": "eigenveil://test-federation/analyst/hospital-a"}, "not for"),
    ({"federation": "other"}, "another federation"),
    ({"lists": [pb.SignedAuthorities(list_json=b"none")]}, "cannot be read"),
    ({"lists": [theirs()]}, "too few signatures"),
])  # fmt: skip
def test_a_contradicting_answer_is_not_stored(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    servicer = Enrolment(Authority())
    for name, value in change.items():
        setattr(servicer, name, value)
    with pytest.raises(PeerError, match=message):
        enrolling(tmp_path / "identity", servicer)
    with pytest.raises(RequestError, match="holds no identity"):
        load_identity(tmp_path / "identity")


def test_a_certificate_of_another_authority_is_not_stored(tmp_path: Path) -> None:
    authority = Authority()
    leaf, authority.certify = authority.coordinator(), Authority().certify  # type: ignore[method-assign]
    with pytest.raises(PeerError, match="not signed by the federation"):
        enrolling(tmp_path / "identity", Enrolment(authority), leaf=leaf)


def test_the_token_is_shown_to_the_coordinator_only(tmp_path: Path) -> None:
    authority = Authority()
    for uri in (URI, "eigenveil://other/coordinator/main"):
        servicer = Enrolment(authority)
        with pytest.raises(PeerError, match="not the coordinator"):
            enrolling(tmp_path / "identity", servicer, leaf=authority.leaf(uri, server=True))
        assert servicer.requests == []
    with refused(Code.IDENTITY, "CN=test CA signed it, not the authority of the join file"):
        enrolling(tmp_path / "identity", servicer, leaf=Authority().coordinator())
    assert servicer.requests == []


@pytest.mark.parametrize(("join", "message"), [
    ({"role": "analyst"}, "enrols an analyst; this command enrols a site"),
    ({"role": "king"}, "not a join file"),
    ({"name": "Not A Name"}, "not a join file"),
    ({"required": "surplus"}, "requires surplus, which this version does not know"),
    ({"enrol": "nowhere"}, "write host:port"),
])  # fmt: skip
def test_a_join_file_that_is_none_is_refused(tmp_path: Path, join: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        enrolling(tmp_path / "identity", Enrolment(Authority()), None, **join)


def test_a_damaged_or_expired_identity_is_refused(stage: Stage) -> None:
    folder = stage.config.identity
    (folder / "key.pem").chmod(0o640)
    with pytest.raises(RequestError, match="chmod 600"):
        load_identity(folder)
    store_identity(stage.authority, folder, "127.0.0.1:1", life=-1)
    with refused(Code.IDENTITY, "expired on"):
        load_identity(folder)
    store_identity(stage.authority, folder, "127.0.0.1:1")
    (folder / "key.pem").write_bytes(stage.authority.leaf(URI).key + stage.authority.leaf(URI).certificate)
    with pytest.raises(PeerError, match="not for"):
        load_identity(folder)
    (folder / "key.pem").write_bytes(b"rubbish")
    with pytest.raises(RequestError, match="damaged"):
        load_identity(folder)


async def test_a_call_is_repeated_until_it_is_answered_and_no_longer(stage: Stage) -> None:
    coordinator = Coordinator(lose=["Contribute"] * 2)
    async with (
        stage.serving(coordinator),
        await open_channel(load_identity(stage.config.identity)) as channel,
    ):
        stub = rpc.CoordinatorStub(channel)
        await call(stub.Contribute, pb.ContributeRequest(), attempts=3)
        coordinator.lose = ["Contribute"] * 2
        with refused(Code.UNREACHABLE):
            await call(stub.Contribute, pb.ContributeRequest(), attempts=2)
        with pytest.raises(PeerError, match="unimplemented"):
            await call(stub.ListStudies, pb.ListStudiesRequest())
    with refused(Code.UNREACHABLE):
        await open_channel(load_identity(stage.config.identity))


async def test_a_channel_stays_with_the_certificate_that_was_checked(stage: Stage) -> None:
    async with stage.serving(Coordinator()) as port:
        channel = await open_channel(load_identity(stage.config.identity))
        await call(rpc.CoordinatorStub(channel).Hello, pb.HelloRequest())
    async with channel, stage.serving(Coordinator(), port):
        with refused(Code.UNREACHABLE):
            await call(rpc.CoordinatorStub(channel).Hello, pb.HelloRequest(), attempts=2)


def connect_at_most(version: ssl.TLSVersion, folder: Path) -> None:
    """Dial a coordinator whose server speaks TLS up to `version`."""
    authority = Authority()
    leaf = authority.coordinator()
    (folder / "key.pem").write_bytes(leaf.key)
    (folder / "certificate.pem").write_bytes(leaf.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    context.maximum_version = version

    async def scenario() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        async with server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            channel = await verified_channel(address, FEDERATION, authority.pem, None)
            await channel.close()

    asyncio.run(scenario())


def test_tls_1_3_is_accepted_and_tls_1_2_is_not(tmp_path: Path) -> None:
    connect_at_most(ssl.TLSVersion.TLSv1_3, tmp_path)
    with pytest.raises(PeerError):
        connect_at_most(ssl.TLSVersion.TLSv1_2, tmp_path)


def test_pauses_grow_are_bounded_and_jitter() -> None:
    for attempt in (0, 3, 50, 10_000):
        pauses = [backoff_seconds(attempt) for _ in range(200)]
        ceiling = min(MAX_BACKOFF_SECONDS, 0.1 * 2.0 ** min(attempt, 30))
        assert 0 <= min(pauses) < ceiling / 2 < max(pauses) < ceiling  # fails once in 2**199
        assert len(set(pauses)) > 190


PASSWORD = "correct horse"


def test_the_file_holds_key_and_issuer_privately(stage: Stage, tmp_path: Path) -> None:
    out, ca = tmp_path / "me.p12", tmp_path / "ca.pem"
    key_files.export_pkcs12(stage.config.identity, out, ca, PASSWORD)
    key, certificate, issuers = pkcs12.load_key_and_certificates(out.read_bytes(), PASSWORD.encode())
    own, leaf = read_pair(stage.config.identity)
    assert key is not None
    assert key.private_numbers() == own.private_numbers()  # type: ignore[union-attr]  # P-256, as ours are
    assert (certificate, [leaf.issuer]) == (leaf, [one.subject for one in issuers])
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_key_and_certificates(out.read_bytes(), b"wrong")
    with refused(Code.CONFLICT):
        key_files.export_pkcs12(stage.config.identity, out, None, PASSWORD)


def test_a_short_password_leaves_no_file(stage: Stage, tmp_path: Path) -> None:
    with refused(Code.BAD_ARGUMENT, "8"):
        key_files.export_pkcs12(stage.config.identity, tmp_path / "me.p12", None, "short")
    assert list(tmp_path.glob("me.p12")) == []
