"""Other hospitals with keys of their own, and a coordinator that says for which of them to mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.key_cards import SiteKeyCard
from eigenveil.numerics.encoding import IntArray
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.masking import Attempt, masked
from eigenveil.secure_aggregation.study_keys import StudyKey
from eigenveil.study.study import Federation, Trust
from eigenveil_client.site.daemon.answers import MaskedAnswer
from eigenveil_client.site.daemon.worker import Reply, SiteWorker
from eigenveil_client.site.roster.peers import PEERS, SiteKeys
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import RELEASE_KEY, STUDY_KEYS, work
from tests.client.site.support import FEDERATION, SITE, Stage, a_plan, a_study, store_identity

OTHERS = ("hospital-b", "hospital-c", "hospital-d")
EVERY = (SITE, *OTHERS)
SPARES = 2


def masked_plan(submission: str = "", **changes: object) -> Plan:
    values: dict[str, object] = {
        "trust": Trust.SECURE_AGGREGATION, "spare_attempts": SPARES,
        "federation": Federation(sites=EVERY, quorum=3, required=(OTHERS[0],)),
    }  # fmt: skip
    return a_plan(a_study(**(values | changes)), submission=submission)


PLAN = masked_plan()
QUESTIONS = tuple(rehearse(PLAN))


def keys_of(stage: Stage, name: str, folder: str = "") -> SiteKeys:
    place = stage.config.identity if name == SITE else stage.folder / (folder or name)
    if name != SITE:
        store_identity(stage.authority, place, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/site/{name}")
    return SiteKeys.make(place)


def confirm(roster: Roster[SiteKeyCard], keys: SiteKeys, own: SiteKeys, *, replacing: bool = False) -> None:
    roster.import_cards([keys.signed], own.card.federation, own.card, replacing=replacing)
    roster.confirm(keys.card.site, keys.card.fingerprint, "a person")


@dataclass
class Peers:
    stage: Stage
    confirmed: Iterable[str] = OTHERS
    keys: dict[str, SiteKeys] = field(init=False)
    _own: dict[str, StudyKey] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = {name: keys_of(self.stage, name) for name in EVERY}
        for name in self.confirmed:
            confirm(self.roster, self.keys[name], self.keys[SITE])

    @property
    def roster(self) -> Roster[SiteKeyCard]:
        return Roster(PEERS, self.stage.config.identity)

    def attempt(
        self,
        round_query: RoundQuery,
        number: int = 1,
        members: Iterable[str] = EVERY,
        keys: Mapping[str, str] | None = None,
    ) -> Attempt:
        """An attempt at a question; `keys` are digests other than the true ones."""
        true = {name: self.study_key(name, round_query.plan_digest).digest for name in members}
        return Attempt(
            plan=round_query.plan_digest, round=round_query.round, query=round_query.digest, number=number,
            members=true | dict(keys or {}),
        )  # fmt: skip

    def study_key(self, name: str, plan: str = PLAN.digest) -> StudyKey:
        if name != SITE:
            return stated_key(self.keys[name], plan)
        if plan not in self._own:
            with closing(self.stage.store()) as store:
                self._own[plan] = store.study_keys.get_or_make(plan, self.keys[SITE]).stated
        return self._own[plan]

    def unmasked(self, reply: MaskedAnswer, attempt: Attempt) -> IntArray:
        """Answer without masks, as all others together could learn it."""
        own = X25519PublicKey.from_public_bytes(self.study_key(SITE, attempt.plan).agreement)
        others = [name for name in attempt.sites if name != SITE]
        secrets = {name: private_key(self.keys[name], attempt.plan).exchange(own) for name in others}
        none = np.zeros(reply.contribution.values.size, dtype=np.int64)
        return reply.contribution.values - masked(none, none.copy(), SITE, secrets, attempt)


def private_key(keys: SiteKeys, plan: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(sha256(f"{keys.card.digest}{plan}".encode()).digest())


def stated_key(keys: SiteKeys, plan: str) -> StudyKey:
    """The key of another site for a study, which the coordinator could pass on from now on."""
    public = private_key(keys, plan).public_key().public_bytes_raw()
    stated = StudyKey(plan=plan, site=keys.card.site, card=keys.card.digest, agreement=public)
    STUDY_KEYS[stated.digest] = stated.signed(keys.signing.sign)
    return stated


def assignment(
    round_query: RoundQuery, attempt: Attempt | None = None, plan: pb.SignedPlan | None = None
) -> pb.NextWorkResponse:
    response = work(round_query, plan)
    if attempt is not None:
        signed = attempt.signed(RELEASE_KEY.sign)
        response.attempt.CopyFrom(
            pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
        )
    return response


@contextmanager
def process(stage: Stage) -> Iterator[tuple[SiteStore, SiteWorker]]:
    store = stage.store()
    try:
        worker = stage.worker(store)
        assert worker.work(work(None, stage.signed(PLAN))) is None
        yield store, worker
    finally:
        store.close()


def reply_to(worker: SiteWorker, round_query: RoundQuery, attempt: Attempt | None = None) -> Reply | None:
    return worker.work(assignment(round_query, attempt))


def answered(worker: SiteWorker, round_query: RoundQuery, attempt: Attempt) -> MaskedAnswer:
    reply = reply_to(worker, round_query, attempt)
    assert isinstance(reply, MaskedAnswer), reply
    return reply


def left(store: SiteStore) -> tuple[int, list[str]]:
    return store.ledger.ledger.spent.micro_rho, [row.kind for row in store.egress.rows()]


def row_count(store: SiteStore, table: str) -> int:
    return int(store.database.rows(f"SELECT COUNT(*) FROM {table}")[0][0])


def spoil(stage: Stage) -> Path:
    return stage.records.rename(stage.folder / "taken-away.csv")
