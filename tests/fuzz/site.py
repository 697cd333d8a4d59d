"""Everything that a site is sent by a coordinator it has no reason to trust.

`NextWorkResponse` and signed plans go through `SiteWorker.work`, with a store on disk and real records;
queries also through the decoder alone, which is where most of them end; the other answers are decoded."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf.message import Message
from rfc8785 import CanonicalizationError

from eigenveil.errors import Code, EigenveilError, error
from eigenveil.numerics.encoding import canonical
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.authorities import list_from_json
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil.queries import EigenvalueVotes, Query, ShuffledRecord
from eigenveil.queries.gradients import Batch, pass_key
from eigenveil.secure_aggregation.masking import ATTEMPT_SIGNED
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.identity_files import verified_certificate
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.policy_sections import KNOWN, TrustRules
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import PLAN as MASKED
from tests.client.site.masking import QUESTIONS, Peers, assignment, confirm
from tests.client.site.stated import RELEASE_KEY
from tests.client.site.support import SITE, Stage, a_plan, a_stage, work
from tests.core.queries.kinds import covariance_queries, every_query
from tests.core.queries.test_subspaces import QUERIES as SUBSPACE_QUERIES
from tests.fuzz.coordinator import check_round_trip
from tests.fuzz.hunt import ChangedMeaning, Kind
from tests.fuzz.mutations import mutate_bytes, mutate_message, mutate_text
from tests.support import DIGEST, a_field, a_query
from tests.vectors.test_vectors import stored

FIRST = QUESTIONS[0]
SIGNED, SET = "SignedPlan", "SignedAttempt"
PEM = "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n"
ANSWERS = tuple(
    method.output_type
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.output_type.name != "NextWorkResponse"
)


class Surprise(Exception):
    """The site met an error that nobody foresaw. It refused and lived, and it is a bug all the same."""


class Lines(logging.Handler):
    """Remembers what a worker logs of a refusal: its code, and the line about an error nobody foresaw."""

    def __init__(self) -> None:
        super().__init__()
        self.bug = self.code = ""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line.startswith("bug "):
            self.bug = line
        elif found := re.search(r" code=([a-z-]+)", line):
            self.code = found[1]


@contextmanager
def site_kinds(folder: Path) -> Iterator[dict[str, Kind]]:
    folder.mkdir(parents=True, exist_ok=True)
    stage, lines, logger = (
        a_stage(folder, secrecy=TrustRules(trust=KNOWN)),
        Lines(),
        logging.getLogger("eigenveil"),
    )
    store = stage.store()
    logger.addHandler(lines)
    logger.propagate = False
    try:
        worker = stage.worker(store)
        yield {
            "Query": Kind(seeds=query_seeds(), mutate=mutate_message, feed=feed_query, weight=10.0),
            **_worked(stage, partial(_feed_work, worker, lines)),
            **{answer.name: _decoded(answer) for answer in ANSWERS},
            "certificate": _certificate(stage),
            "list": Kind(
                seeds=(stage.authority.trusting().to_json(),), mutate=mutate_json, feed=_feed_list, weight=0.3
            ),
        }
    finally:
        logger.removeHandler(lines)
        logger.propagate = True
        store.close()


def query_seeds() -> tuple[bytes, ...]:
    key, alone = pass_key(DIGEST, 0, 4), a_field(4, 1, pulls=False)
    part = Batch(first_round=0, index=0, batches=4, key=key)
    edges = np.array([10, 1000])
    requests: list[Query] = [
        *every_query().values(),
        *covariance_queries().values(),
        *SUBSPACE_QUERIES.values(),
    ]
    requests.append(ShuffledRecord(spec=alone, radius=2**20, batch=part))
    requests.append(EigenvalueVotes(spec=alone, edges=edges, subsets=5, batch=part))
    vectors = (bytes.fromhex(one["message"]) for one in stored("query")["queries"].values())
    return (*(query_to_proto(a_query(query)).SerializeToString() for query in requests), *vectors)


@lru_cache(maxsize=1)
def _originals() -> dict[str, bytes]:
    messages = map(pb.Query.FromString, query_seeds())
    return {query_from_proto(message).digest: _canonical(message) for message in messages}


async def feed_query(data: bytes) -> None:
    """An accepted query is written again as it was read, and has the digest of no other one."""
    message = pb.Query.FromString(data)
    query = query_from_proto(message)
    message.DiscardUnknownFields()
    statement = _canonical(message)
    if _canonical(query_to_proto(query)) != statement:
        raise ChangedMeaning("an accepted query is written otherwise than it was read")
    if _originals().get(query.digest, statement) != statement:
        raise ChangedMeaning("an accepted query has the digest of another one")


def _canonical(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _worked(stage: Stage, feed: Any) -> dict[str, Kind]:
    plan, peers = a_plan(), Peers(stage)
    signed = stage.signed(plan)
    end = pb.StudyEnd(plan_digest=bytes.fromhex(DIGEST), state=pb.STUDY_STATE_RELEASED)
    queries = list(rehearse(plan))[:3]
    others = (pb.Query.FromString(data) for data in query_seeds()[::5])
    responses = [
        *(work(query, signed) for query in queries),
        pb.NextWorkResponse(query=query_to_proto(queries[0]), ended=[end] * 3, deadline_unix_ms=2**41),
        *(pb.NextWorkResponse(plan=signed, query=other) for other in others),
        assignment(FIRST, None, stage.signed(MASKED)),
        *(assignment(FIRST, peers.attempt(FIRST, number)) for number in (1, 2)),
    ]
    plans = [a_plan(submission=f"s{number}").to_json() for number in range(3)]
    plans.append(stored("plan")["plan_json"].encode())
    return {
        "NextWorkResponse": Kind(
            seeds=tuple(response.SerializeToString() for response in responses),
            mutate=mutate_message,
            feed=feed,
            weight=2.0,
        ),
        SIGNED: Kind(
            seeds=tuple(plans), mutate=mutate_json, feed=partial(_feed_plan, stage, feed), weight=0.3
        ),
        SET: Kind(
            seeds=tuple(peers.attempt(FIRST, number).signed_json for number in (1, 2, 3)),
            mutate=mutate_json,
            feed=partial(_feed_set, peers, feed),
        ),
    }


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    text = mutate_text(data.decode(), rng)
    if rng.random() < 0.7:
        return text.encode(errors="replace")
    value = json.loads(data)
    _change_value(value, rng)
    with suppress(CanonicalizationError):
        return canonical(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, 1e308, 2**53, 2**63, "", "x", "\ud800", [], {}, "9" * 5000)


def _change_value(value: Any, rng: random.Random) -> None:
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], dict | list) and rng.random() < 0.8:
        _change_value(value[key], rng)
    elif isinstance(value, dict) and rng.random() < 0.2:
        del value[key]
    else:
        value[key] = rng.choice(ODD)


async def _feed_work(worker: SiteWorker, lines: Lines, data: bytes) -> None:
    response = pb.NextWorkResponse.FromString(data)
    check_round_trip(response)
    lines.bug = lines.code = ""
    await asyncio.to_thread(worker.work, response)
    if lines.bug:
        raise Surprise(lines.bug)
    if lines.code:
        raise error(Code(lines.code), "the site declined")


async def _feed_plan(stage: Stage, feed: Any, data: bytes) -> None:
    """A plan that the federation's own key signed: a coordinator may have signed anything. Beside it stands
    its first question, where it has one."""
    signed = pb.SignedPlan(plan_json=data, signature=stage.authority.sign(data).signature)
    try:
        query = next(iter(rehearse(plan_from_json(data))))
    except EigenveilError:
        query = a_query(every_query()["count"])
    await feed(pb.NextWorkResponse(plan=signed, query=query_to_proto(query)).SerializeToString())


async def _feed_set(peers: Peers, feed: Any, data: bytes) -> None:
    """A set of sites that the federation's own key signed, beside its question."""
    response = assignment(FIRST, None, peers.stage.signed(MASKED))
    signature = RELEASE_KEY.sign(ATTEMPT_SIGNED + data)
    response.attempt.CopyFrom(pb.SignedAttempt(signed_json=data, signature=signature))
    try:
        await feed(response.SerializeToString())
    finally:
        for name in peers.roster.changed():  # the daemon would have ended until a person did this
            confirm(peers.roster, peers.keys[name], peers.keys[SITE])


async def _feed_list(data: bytes) -> None:
    if list_from_json(data).to_json() != data:
        raise ChangedMeaning("an accepted list is written otherwise than it was read")


def _certificate(stage: Stage) -> Kind:
    """The certificate in an answer to Enrol or Renew, and the authority beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    identity = load_identity(stage.config.identity).identity
    pem = stage.authority.certify(identity.uri, key.public_key())
    issued = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)

    async def feed(data: bytes) -> None:
        sent = PEM.format(base64.encodebytes(data).decode()).encode()
        if data != issued and data[-1:] in b"01234":  # now and then as an authority
            statement = json.loads(stage.authority.trusting().to_json())
            statement["authorities"][0]["certificate"] = sent.decode()
            list_from_json(canonical(statement))
        verified_certificate(sent, stage.authority.trusting(), identity, key)

    return Kind(seeds=(issued,), mutate=mutate_bytes, feed=feed, weight=0.3)


def _decoded(answer: Any) -> Kind:
    kind: type[Message] = getattr(pb, answer.name)

    async def feed(data: bytes) -> None:
        check_round_trip(kind.FromString(data))

    return Kind(seeds=(_filled(kind).SerializeToString(),), mutate=mutate_message, feed=feed)


def _filled(kind: type[Message], depth: int = 3) -> Message:
    message = kind()
    for one in kind.DESCRIPTOR.fields:
        if one.message_type is not None:
            inner = getattr(pb, one.message_type.name)
            if depth and one.is_repeated:
                getattr(message, one.name).append(_filled(inner, depth - 1))
            elif depth:
                getattr(message, one.name).CopyFrom(_filled(inner, depth - 1))
            continue
        values = {one.TYPE_STRING: "text", one.TYPE_BYTES: bytes(range(32)), one.TYPE_BOOL: True}
        value = values.get(one.type, 1)
        if one.is_repeated:
            getattr(message, one.name).extend([value, value])
        else:
            setattr(message, one.name, value)
    return message
