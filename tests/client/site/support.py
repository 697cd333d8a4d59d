"""A small federation for tests: a real CA, real TLS, and a coordinator that does what a test scripts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from threading import get_ident
from typing import Any, TypeAlias

import grpc
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenveil.dictionary.site_rules import ANY
from eigenveil.identity import parse_identity
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.authorities import (
    AuthorityList,
    KeyUse,
    ListedAuthority,
    ReleaseKey,
    SignedAuthorityList,
)
from eigenveil.protocol.plan import PLAN_SIGNED, Plan
from eigenveil.signatures import ReleaseKeys, formatted
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Study
from eigenveil.study.toml import study_digest
from eigenveil.study_authorization import SignedAuthorization
from eigenveil_client.connection.identity import IDENTITY_FORMAT, load_identity
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.daemon.worker import Reply, SiteWorker
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import arm, disarm, write_secret
from eigenveil_common.rpc import SERVER_OPTIONS
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.pki.authority import sign_list
from tests.client.site.scripted import FEDERATION as FEDERATION
from tests.client.site.scripted import Context as Context
from tests.client.site.scripted import Coordinator as Coordinator
from tests.client.site.stated import PLANS, RELEASE_KEY, keys_sent, rehearsal, released, sealed
from tests.client.site.stated import work as work
from tests.support import analyst_card

SITE = "hospital-a"
Log: TypeAlias = pytest.LogCaptureFixture
Patch: TypeAlias = pytest.MonkeyPatch
FULL_DISK = "CREATE TRIGGER full BEFORE INSERT ON egress BEGIN SELECT RAISE(ABORT, 'full'); END"
PRIVATE = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Leaf:
    key: bytes
    certificate: bytes


class Authority:
    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        builder = self._builder(name, name, self.key.public_key(), timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate = builder.sign(self.key, hashes.SHA256())
        self.pem = self.certificate.public_bytes(Encoding.PEM)
        self.release_key = RELEASE_KEY

    @property
    def release_public(self) -> bytes:
        return self.release_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def release_keys(self) -> ReleaseKeys:
        return ReleaseKeys((self.release_public,), (self.release_public,))

    @staticmethod
    def _builder(
        subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + life)
        )

    def certify(
        self, uri: str, key: ec.EllipticCurvePublicKey, *, server: bool = False, life: float = 7.0
    ) -> bytes:
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
        if server:
            names += [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(x509.Name([]), self.certificate.subject, key, timedelta(days=life))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def member(self, key: ec.EllipticCurvePublicKey) -> bytes:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a member")])
        builder = self._builder(name, self.certificate.subject, key, timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def leaf(self, uri: str, *, server: bool = False, life: float = 7.0) -> Leaf:
        key = ec.generate_private_key(ec.SECP256R1())
        return Leaf(
            key=key.private_bytes(*PRIVATE),
            certificate=self.certify(uri, key.public_key(), server=server, life=life),
        )

    def coordinator(self) -> Leaf:
        return self.leaf(f"eigenveil://{FEDERATION}/coordinator/main", server=True)

    def trusting(
        self, *others: ListedAuthority, federation: str = FEDERATION, **changes: Any
    ) -> AuthorityList:
        if (key := changes.pop("release_key", None)) is not None:
            changes["release_keys"] = (ReleaseKey(key=key, use=KeyUse.SIGNS),)
        values: dict[str, Any] = {
            "version": 1, "threshold": 1, "expires": int(time.time()) + 90 * 86_400,
            "release_keys": (ReleaseKey(key=self.release_public, use=KeyUse.SIGNS),),
            "authorities": (self.listed, *others),
        }  # fmt: skip
        return AuthorityList(federation=federation, **(values | changes))

    @property
    def listed(self) -> ListedAuthority:
        return ListedAuthority(certificate=self.certificate, issues=True, signs=True)

    def sign(self, plan_json: bytes) -> pb.SignedPlan:
        return pb.SignedPlan(plan_json=plan_json, signature=self.release_key.sign(PLAN_SIGNED + plan_json))


def signed(following: AuthorityList, *by: Authority) -> SignedAuthorityList:
    message = following.to_json()
    return SignedAuthorityList(list_json=message, signatures=tuple(sign_list(one.key, message) for one in by))


def store_identity(
    authority: Authority, folder: Path, address: str, *, uri: str = "", life: float = 7.0
) -> None:
    uri = uri or f"eigenveil://{FEDERATION}/site/{SITE}"
    folder.mkdir(exist_ok=True)
    leaf = authority.leaf(uri, life=life)
    write_secret(folder / "key.pem", leaf.key + leaf.certificate)
    federation = parse_identity(uri).federation
    (folder / "authorities.json").write_bytes(authority.trusting(federation=federation).to_json())
    (folder / "identity.json").write_text(
        json.dumps(formatted(IDENTITY_FORMAT, {"identity": uri, "coordinator": address}))
    )


def a_study(**changes: object) -> Study:
    federation = changes.pop("federation", None) or Federation(sites=(SITE, "hospital-b"))
    columns = changes.pop("columns", None) or tuple(
        Column(name=name, unit="mmol/L", lower=0.0, upper=10.0) for name in ("a", "b", "c")
    )
    values: dict[str, object] = {
        "name": "a-study", "epsilon": 1.0, "delta": 1e-6, "components": 1,
        "algorithm": Algorithm.GAUSS_COV, "max_records": 100_000,
    }  # fmt: skip
    return Study(columns=columns, federation=federation, **(values | changes))  # type: ignore[arg-type]


def a_plan(
    study: Study | None = None, *, federation: str = FEDERATION, submission: str = "", analyst: str = "ada"
) -> Plan:
    """A plan; unless an id is given, each study has one of its own, as a site runs an id once."""
    study = study or a_study()
    submission = submission or f"of-{study_digest(study)[:12]}"
    plan = make_plan(study, federation=federation, submission=submission, analyst=analyst)
    PLANS[plan.digest] = plan
    return plan


def ended(plan: Plan, state: pb.StudyState.ValueType = pb.STUDY_STATE_CANCELLED) -> pb.NextWorkResponse:
    end = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest), state=state)
    return pb.NextWorkResponse(ended=[end])


async def until(condition: object, seconds: float = 150.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def reason_of(reply: object) -> int:
    assert isinstance(reply, Refusal), reply
    return reply.reason


@contextmanager
def at_failpoint(point: str, action: Callable[[], None]) -> Iterator[None]:
    arm(point, action)
    try:
        yield
    finally:
        disarm()


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(point: str, passage: int = 1, *, any_thread: bool = False) -> Iterator[None]:
    """The process ends when this thread passes a failpoint so many times; or `any_thread`."""
    passages, here = count(1), get_ident()

    def kill() -> None:
        if (any_thread or get_ident() == here) and next(passages) == passage:
            raise Killed

    with at_failpoint(point, kill), pytest.raises(Killed):
        yield


class Driven(SiteWorker):
    """A worker that fetches the releases and keys that it lacks, as the daemon does for it."""

    def work(
        self,
        response: pb.NextWorkResponse,
        fetched: Sequence[pb.SealedRound] = (),
        keys: Sequence[pb.SignedStudyKey] = (),
    ) -> Reply | None:
        reply = super().work(response, fetched or self._fetched(response), keys or self._keys(response))
        missing = (self._fetched(response), self._keys(response)) if reply is None else ([], [])
        return super().work(response, *missing) if any(missing) else reply

    def _keys(self, response: pb.NextWorkResponse) -> list[pb.SignedStudyKey]:
        return keys_sent(self.missing_keys(response))

    def _fetched(self, response: pb.NextWorkResponse) -> list[pb.SealedRound]:
        plan = response.query.plan_digest.hex()
        there = rehearsal(plan) if plan in PLANS else ()
        return [
            sealed(there[round], released(plan))
            for round in self.missing_rounds(response)
            if round < len(there)
        ]


@dataclass
class Stage:
    folder: Path
    authority: Authority
    config: SiteConfig

    @property
    def records(self) -> Path:
        return self.config.records.files[0]

    def rule(self, **changes: Any) -> None:
        self.config = replace(self.config, policy=replace(self.config.policy, **changes))

    def store(self, clock: Callable[[], int] = lambda: 1_800_000_000) -> SiteStore:
        guard = RollbackGuard(self.config.identity)
        return SiteStore(self.config.state, self.config.policy.budget, guard, clock=clock)

    @contextmanager
    def process(self, *clock: Callable[[], int]) -> Iterator[tuple[SiteStore, SiteWorker]]:
        with closing(self.store(*clock)) as store:
            yield store, self.worker(store)

    def make_daemon(self, store: SiteStore) -> SiteDaemon:
        return SiteDaemon(self.worker(store), lambda: load_identity(self.config.identity))

    def worker(self, store: SiteStore) -> SiteWorker:
        identity = load_identity(self.config.identity)
        return Driven(identity, self.config.policy, store, make_engine(self.config))

    def signed(self, plan: Plan) -> pb.SignedPlan:
        return self.authority.sign(plan.to_json())

    def authorized(self, plan: Plan, signed: SignedAuthorization | None) -> pb.SignedPlan:
        sent = self.signed(plan)
        if signed is not None:
            sent.authorization.CopyFrom(signed.to_proto())
        return sent

    def know_analyst(self, analyst: str = "ada") -> None:
        roster, card = Roster(ANALYSTS, self.config.identity), analyst_card(analyst, FEDERATION)
        roster.import_cards([card], FEDERATION, replacing=False)
        roster.confirm(analyst, card.check().fingerprint, "Kim")

    @asynccontextmanager
    async def serving(self, coordinator: Coordinator, port: int = 0) -> AsyncIterator[int]:
        """A coordinator behind mutual TLS; the site's identity is pointed at it."""
        server = grpc.aio.server(options=SERVER_OPTIONS)
        rpc.add_CoordinatorServicer_to_server(coordinator, server)
        leaf = self.authority.coordinator()
        credentials = grpc.ssl_server_credentials(
            [(leaf.key, leaf.certificate)], self.authority.pem, require_client_auth=True
        )
        port = server.add_secure_port(f"127.0.0.1:{port}", credentials)
        await server.start()
        store_identity(self.authority, self.config.identity, f"127.0.0.1:{port}")
        try:
            yield port
        finally:
            await server.stop(0)

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[SiteStore]:
        with closing(self.store()) as store:
            task = asyncio.create_task(self.make_daemon(store).run())
            try:
                yield store
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def write_records(path: Path, rows: int = 40, columns: tuple[str, ...] = ("a", "b", "c")) -> None:
    values = 5 + 4 * np.sin(np.arange(rows * len(columns)).reshape(rows, -1))
    lines = [",".join(columns), *(",".join(f"{value:.4f}" for value in row) for row in values)]
    path.write_text("\n".join(lines) + "\n")


def a_stage(folder: Path, **policy: object) -> Stage:
    write_records(folder / "records.csv")
    config = SiteConfig(
        name=SITE,
        records=RecordsConfig(source=folder / "records.csv"),
        identity=folder / "identity",
        state=folder / "state.db",
        policy=Policy(**({"approval": Approval.AUTO, "analysts": (ANY,)} | policy)),  # type: ignore[arg-type]
    )
    stage = Stage(folder=folder, authority=Authority(), config=config)
    store_identity(stage.authority, config.identity, "127.0.0.1:1")
    return stage
