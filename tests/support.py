"""Values and helpers that several test folders share."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import queries as q
from eigenveil.dictionary.site_limits import StatedLimits
from eigenveil.errors import Code, EigenveilError
from eigenveil.key_cards import AnalystKeyCard, SignedAnalystKeyCard
from eigenveil.noise import source
from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.reporting.release_file import read_archive, write_archive
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Column, Federation, Study
from eigenveil.study_authorization import SignedAuthorization, authorize
from eigenveil_common.rpc import VERSION_MAX, VERSION_MIN
from eigenveil_proto.v1 import eigenveil_pb2 as pb

if TYPE_CHECKING:
    from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorAsyncStub

Capture: TypeAlias = pytest.CaptureFixture[str]
Log: TypeAlias = pytest.LogCaptureFixture
Patch: TypeAlias = pytest.MonkeyPatch
DIGEST = "ab" * 32
# The ledgers' unit, how prices add up, a matrix: words of PRIVACY.md, and of nobody's daily work.
JARGON = re.compile(r"micro.?(?:rho|ρ)|zcdp|zero-concentrated|\bgram\b|atto", re.IGNORECASE)


def a_hello(**more: Any) -> pb.HelloRequest:
    """Greeting of a coordinator by a program of this version."""
    return pb.HelloRequest(version_min=VERSION_MIN, version_max=VERSION_MAX, **more)


def a_column(name: str = "age", lower: float = 0.0, upper: float = 100.0, **changes: Any) -> Column:
    """A column with sensible public bounds."""
    return Column(name=name, unit="year", lower=lower, upper=upper, **changes)


def a_study(d: int = 3, sites: tuple[str, ...] = ("north", "south"), **changes: Any) -> Study:
    """A small study that every check accepts, with `changes` made to it."""
    values: dict[str, Any] = {
        "name": "tiny",
        "columns": tuple(a_column(f"c{i}") for i in range(d)),
        "epsilon": 1.0,
        "delta": 1e-6,
        "components": 1,
        "federation": Federation(sites=sites),
        "algorithm": Algorithm.GAUSS_COV,
    }
    return Study(**(values | changes))


def a_plan(study: Study | None = None, **changes: Any) -> Plan:
    """The plan of `study`, or of `a_study(**changes)`."""
    return make_plan(study or a_study(**changes), federation="test", submission="first")


def limits(**changes: Any) -> StatedLimits:
    """Stated limits of a site that `a_study` fits, with `changes` made to them."""
    values: dict[str, Any] = {
        "person_column": "", "sites_per_person": 1, "minimum_records": 20, "maximum_records": 100_000,
        "max_columns_per_record": 2.0, "minimum_records_per_batch": 20, "memory_mib": 64,
    }  # fmt: skip
    return StatedLimits(**(values | changes))


def analyst_key(analyst: str) -> Ed25519PrivateKey:
    """An analyst's private key, which everybody may know."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(analyst.encode()).digest())


def analyst_card(analyst: str, federation: str, key: Ed25519PrivateKey | None = None) -> SignedAnalystKeyCard:
    """An analyst's card, of the key that everybody may know or of `key`."""
    key = key or analyst_key(analyst)
    public = key.public_key().public_bytes_raw()
    card = AnalystKeyCard(federation=federation, analyst=analyst, signing=public)
    return SignedAnalystKeyCard.of(card, key.sign)


def signed_by_analyst(
    plan: Plan, key: Ed25519PrivateKey | None = None, *, expires: int | None = None
) -> SignedAuthorization:
    """A plan's authorization by its analyst's own key, or by `key`, for an hour or until `expires`."""
    key = key or analyst_key(plan.analyst)
    until = int(time.time()) + 3600 if expires is None else expires
    return authorize(plan, analyst_card(plan.analyst, plan.federation, key), until, key.sign)


async def signed_request(
    stub: CoordinatorAsyncStub, toml: str, submission: str = "one", key: Ed25519PrivateKey | None = None
) -> pb.SubmitStudyRequest:
    """The request that submits a study as its analyst does: explained, then signed."""
    round_query = pb.ExplainStudyRequest(study_toml=toml, submission=submission)
    plan = plan_from_json((await stub.ExplainStudy(round_query)).plan_json)
    signed = signed_by_analyst(plan, key).to_proto()
    return pb.SubmitStudyRequest(study_toml=toml, submission=submission, authorization=signed)


async def submitted(
    stub: CoordinatorAsyncStub, toml: str, submission: str = "one", key: Ed25519PrivateKey | None = None
) -> pb.SubmitStudyResponse:
    return await stub.SubmitStudy(await signed_request(stub, toml, submission, key))


def a_query(
    query: q.Query, *, plan_digest: str = DIGEST, round: int = 0, micro_rho: int = 1000, **priced: Any
) -> RoundQuery:
    """`query` as one of a study; `priced` are other fields of its priced query."""
    return RoundQuery(PricedQuery(query=query, micro_rho=micro_rho, **priced), plan_digest, round)


def changed_query(round_query: RoundQuery, **changes: Any) -> RoundQuery:
    """The same query with other fields, its own or those of its priced query."""
    own = {name: changes.pop(name) for name in ("plan_digest", "round") if name in changes}
    return replace(round_query, priced=replace(round_query.priced, **changes), **own)


def a_field(d: int, k: int, *, pulls: bool = True) -> q.GradientSpec:
    """A field with directions and pull whose every entry differs from its neighbours."""
    steps = np.arange(d * k).reshape(d, k)
    return q.GradientSpec(
        centre=(np.arange(d) * 37) % 101 - 50,
        directions=(steps * 331) % 2003 - 1001,
        offset=(steps * 57) % 211 - 105 if pulls else np.zeros((d, k), dtype=np.int64),
        shift=6,
    )


def reflection(v: IntArray) -> IntArray:
    """Orthogonal directions without floats: the axes, mirrored along v. Shape: (d, d)."""
    mirrored: IntArray = 2**20 * np.eye(v.size, dtype=np.int64) - 2**21 * np.outer(v, v) // int(v @ v)
    return mirrored


def a_cross(d: int, k: int, fraction_bits: int = 0) -> q.CrossSpec:
    """k leading directions and a spare one, no two scales alike."""
    return q.CrossSpec(
        centre=(np.arange(d) * 53) % 97 - 48,
        directions=reflection(np.arange(1, d + 1))[:, : k + 1],
        scales=np.arange(k) * 100 + 700,
        retained=np.array([300]),
        shift=20,
        fraction_bits=fraction_bits,
    )


def changed_member(file: bytes, name: str, old: bytes, new: bytes) -> bytes:
    """A release's file with `new` for `old` in its member `name`, otherwise in order."""
    members = read_archive(file)
    data = bytes(members[name])
    assert old in data
    return write_archive(members | {name: data.replace(old, new, 1)})


def random_rows(n: int, d: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Uniform integer rows of the whole box. Shape: (n, d) int16."""
    return np.random.default_rng(seed).integers(-S, S, (n, d), dtype=np.int16, endpoint=True)


class FixedNoise(OsNoise):
    """A test's noise source: the same integer for every entry, each draw another one."""

    private = False

    def __init__(self, start: int = 1000) -> None:
        self.draws = start

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        self.draws += 1
        return np.full(spec.length, self.draws, dtype=np.int64)


class MemoryStore:
    """The durable half of a journal: it survives the crashes that a test stages."""

    def __init__(self) -> None:
        self.charged: dict[int, str] = {}
        self.releases: dict[int, Release] = {}
        self.events: list[str] = []

    def sealed(self, round: int) -> Release | None:
        """The stored release of a round, if any."""
        return self.releases.get(round)

    def seal(self, round_query: RoundQuery, release: Release) -> None:
        assert release.round not in self.releases
        self.charge(round_query)
        self.releases[release.round] = release
        self.events.append("seal")

    def charge(self, round_query: RoundQuery) -> None:
        assert self.charged.setdefault(round_query.round, round_query.digest) == round_query.digest
        self.events.append("charge")


@contextmanager
def refused(code: Code, *words: str) -> Iterator[None]:
    """The block must raise one of our errors, with this code and with each of `words` in its message."""
    with pytest.raises(EigenveilError) as caught:
        yield
    assert caught.value.code is code, f"{caught.value.code}: {caught.value}"
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def the_same_bits(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Fair bits where noise takes the operating system's, but the same on each run: what they were once found
    to be like they are for ever, and no test of a law fails by chance."""
    draw = np.random.default_rng(list(name.encode()))
    monkeypatch.setattr(source, "words", lambda count: draw.integers(2**64, size=count, dtype=np.uint64))
