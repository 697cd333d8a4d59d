"""Conversion of queries, releases and authority lists to protocol messages and back, with validation. The
message of a query has the query's name and fields: integers and flags unchanged, vectors as bytes, matrices
as `Matrix`, inner values as messages. A new kind of query needs its message only, no code here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from google.protobuf.message import Message

from eigenveil.errors import Code, PeerError, round_label
from eigenveil.numerics.encoding import IntArray, from_bytes, to_bytes
from eigenveil.protocol.authorities import SignedAuthorityList
from eigenveil.protocol.query import NoiseDistribution, PricedQuery, RoundQuery
from eigenveil.protocol.rounds import Release, RoundStatement, SignedRound
from eigenveil.queries import KINDS, Batch, CrossSpec, GradientSpec
from eigenveil.queries.columns import Frame
from eigenveil.queries.papers.fingerprints import Cells, Pool, Subsamples
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SPECS = (GradientSpec, CrossSpec, Batch, Subsamples, Cells, Pool)
INNER: dict[str, type[Any]] = {one.__name__: one for one in SPECS}
_SENT_FIELDS: dict[Any, tuple[tuple[str, bool], ...]] = {}


def query_to_proto(round_query: RoundQuery) -> pb.Query:
    priced = round_query.priced
    message = pb.Query(
        plan_digest=bytes.fromhex(round_query.plan_digest),
        round=round_query.round,
        micro_rho=priced.micro_rho,
        atto_delta=priced.atto_delta,
        distribution=priced.distribution.value,
    )
    _fill(getattr(message, priced.query.kind), priced.query)
    if priced.frame is not None:
        _fill(message.frame, priced.frame)
    return message


def _fill(message: Message, value: Any) -> None:
    message.SetInParent()
    for name, _ in _sent_fields(type(value)):
        content = getattr(value, name)
        if isinstance(content, np.ndarray):
            if content.ndim == 1:
                setattr(message, name, to_bytes(content))
            else:
                matrix = pb.Matrix(values=to_bytes(content), rows=content.shape[0], columns=content.shape[1])
                getattr(message, name).CopyFrom(matrix)
        elif type(content) in INNER.values():
            _fill(getattr(message, name), content)
        elif content is not None:
            setattr(message, name, content)


def query_from_proto(message: pb.Query) -> RoundQuery:
    """Return the query in a message. Raises PeerError: a malformed array, an unknown kind or noise
    distribution; RequestError: a value out of range."""
    field = message.WhichOneof("kind")
    if field is None:
        raise PeerError(Code.VERSION, "the kind of the query is unknown to this version")
    if message.distribution not in [distribution.value for distribution in NoiseDistribution]:
        raise PeerError(
            Code.VERSION,
            f"the query's noise distribution is unknown to this version: {message.distribution[:40]!r}",
        )
    priced = PricedQuery(
        query=_value(KINDS[field.replace("_", "-")], getattr(message, field)),
        micro_rho=message.micro_rho,
        atto_delta=message.atto_delta,
        distribution=NoiseDistribution(message.distribution),
        frame=_value(Frame, message.frame) if message.HasField("frame") else None,
    )
    return RoundQuery(priced, digest_from_bytes(message.plan_digest), message.round)


def _value(kind: type[Any], message: Message) -> Any:
    return kind(**{name: _content(message, name, required) for name, required in _sent_fields(kind)})


def _sent_fields(kind: type[Any]) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields of a value's message, and if each is required."""
    if kind not in _SENT_FIELDS:
        _SENT_FIELDS[kind] = tuple((one.name, one.default is MISSING) for one in fields(kind) if one.init)
    return _SENT_FIELDS[kind]


def _content(message: Message, name: str, required: bool) -> Any:
    content = getattr(message, name)
    if isinstance(content, bytes):
        return _vector(content)
    if not isinstance(content, Message):
        return content
    if not message.HasField(name):
        if required:
            raise PeerError(Code.PROTOCOL, f"the query has no field {name}")
        return None
    if isinstance(content, pb.Matrix):
        return from_bytes(content.values, (content.rows, content.columns))
    return _value(INNER[type(content).__name__], content)


def round_to_proto(release: Release, statement: SignedRound) -> pb.SealedRound:
    """Return the message of a release and its signed statement [R21]."""
    return pb.SealedRound(
        signed_round=pb.SignedRound(signed_json=statement.signed_json, signature=statement.signature),
        values=to_bytes(release.values),
        sigma=release.sigma,
        micro_rho=release.micro_rho,
        atto_delta=release.atto_delta,
        present=release.present,
    )


def round_from_proto(message: pb.SealedRound, statement: RoundStatement) -> Release:
    """Return the release in a message, if its digest is the one in the statement. Raises PeerError: the
    digests differ."""
    release = Release(
        round=statement.round,
        query=statement.query,
        values=_vector(message.values),
        sigma=message.sigma,
        micro_rho=message.micro_rho,
        atto_delta=message.atto_delta,
        present=tuple(message.present),
    )
    if not _is_stated(release, statement):
        raise PeerError(
            Code.PROTOCOL,
            f"the release of {round_label(statement.round)} does not match its signed statement",
        )
    return release


def _is_stated(release: Release, statement: RoundStatement) -> bool:
    """Return True if the statement has the digest of the release; False if it has no canonical JSON."""
    try:
        return release.digest == statement.release
    except ValueError:
        return False


def lists_to_proto(lists: Sequence[SignedAuthorityList]) -> list[pb.SignedAuthorities]:
    return [pb.SignedAuthorities(list_json=one.list_json, signatures=one.signatures) for one in lists]


def lists_from_proto(messages: Sequence[pb.SignedAuthorities]) -> list[SignedAuthorityList]:
    """Return the inverse of `lists_to_proto`; signatures are not checked."""
    return [
        SignedAuthorityList(list_json=one.list_json, signatures=tuple(one.signatures)) for one in messages
    ]


def digest_from_bytes(data: bytes) -> str:
    """Return the hexadecimal form of a 32-byte digest. Raises PeerError: not 32 bytes."""
    if len(data) != 32:
        raise PeerError(Code.PROTOCOL, f"a digest must have 32 bytes, got {len(data)}")
    return data.hex()


def _vector(data: bytes) -> IntArray:
    if len(data) % np.dtype(np.int64).itemsize:
        raise PeerError(Code.PROTOCOL, "an integer array must be a multiple of 8 bytes")
    return from_bytes(data, (len(data) // 8,))
