"""Queries between values and protocol messages. Decoding ends in the validating constructors.

A query's message has its name and its fields: integers and flags as they are, vectors as bytes, matrices
as `Matrix`, inner values as messages of their own. So a new kind needs its message and nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from google.protobuf.message import Message

from eigenveil.errors import Code, PeerError, spoken
from eigenveil.numerics.encoding import IntArray, from_bytes, octets, to_bytes
from eigenveil.protocol.authorities import SignedList
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.protocol.statements import RoundStatement, SignedRound
from eigenveil.queries import KINDS, Batch, CrossSpec, GradientSpec
from eigenveil.queries.columns import Frame
from eigenveil.queries.fingerprints import Cells, Pool, Subsamples
from eigenveil_proto.v1 import eigenveil_pb2 as pb

SPECS = (GradientSpec, CrossSpec, Batch, Subsamples, Cells, Pool)
INNER: dict[str, type[Any]] = {one.__name__: one for one in SPECS}
ALL = slice(None)


def query_to_proto(asked: RoundQuery) -> pb.Query:
    message = pb.Query(
        plan_digest=bytes.fromhex(asked.plan_digest),
        round=asked.round,
        micro_rho=asked.micro_rho,
        atto_delta=asked.atto_delta,
        law=asked.law.value,
    )
    _fill(getattr(message, asked.query.kind), asked.query)
    if asked.frame is not None:
        _fill(message.frame, asked.frame)
    return message


def _fill(message: Message, value: Any) -> None:
    message.SetInParent()
    for name in (f.name for f in fields(value) if f.init):
        held = getattr(value, name)
        if isinstance(held, np.ndarray):
            if held.ndim == 1:
                setattr(message, name, to_bytes(held))
            else:
                matrix = pb.Matrix(values=to_bytes(held), rows=held.shape[0], columns=held.shape[1])
                getattr(message, name).CopyFrom(matrix)
        elif type(held) in INNER.values():
            _fill(getattr(message, name), held)
        elif held is not None:
            setattr(message, name, held)


def query_from_proto(message: pb.Query) -> RoundQuery:
    """The query that a message says.

    Raises:
        PeerError: a malformed array, an unknown kind or law.
        RequestError: a value outside the vocabulary's limits.
    """
    field = message.WhichOneof("kind")
    if field is None:
        raise PeerError(Code.VERSION, "the query's kind is unknown here")
    if message.law not in [law.value for law in NoiseLaw]:
        raise PeerError(Code.VERSION, f"the query's law is unknown here: {message.law[:40]!r}")
    return RoundQuery(
        plan_digest=digest_from_bytes(message.plan_digest),
        round=message.round,
        query=_value(KINDS[field.replace("_", "-")], getattr(message, field)),
        micro_rho=message.micro_rho,
        atto_delta=message.atto_delta,
        law=NoiseLaw(message.law),
        frame=_value(Frame, message.frame) if message.HasField("frame") else None,
    )


def _value(kind: type[Any], message: Message) -> Any:
    return kind(**{f.name: _held(message, f.name, f.default is MISSING) for f in fields(kind) if f.init})


def _held(message: Message, name: str, required: bool) -> Any:
    held = getattr(message, name)
    if isinstance(held, bytes):
        return _vector(held)
    if not isinstance(held, Message):
        return held
    if not message.HasField(name):
        if required:
            raise PeerError(Code.PROTOCOL, f"the query misses its {name}")
        return None
    if isinstance(held, pb.Matrix):
        return from_bytes(held.values, (held.rows, held.columns))
    return _value(INNER[type(held).__name__], held)


def round_to_proto(release: Release, stated: SignedRound, part: slice = ALL) -> pb.SealedRound:
    """The message that says a release, with the statement that covers it [R21]; of its values the bytes in
    `part`, and nothing longer is made."""
    return pb.SealedRound(
        stated=pb.SignedRound(said=stated.said, signature=stated.signature),
        values=bytes(octets(release.values)[part]),
        sigma=release.sigma,
        micro_rho=release.micro_rho,
        atto_delta=release.atto_delta,
        present=release.present,
    )


def round_from_proto(message: pb.SealedRound, stated: RoundStatement) -> Release:
    """The release that a message says and `stated` covers.

    Raises:
        PeerError: it is not what was stated.
    """
    release = Release(
        round=stated.round,
        query=stated.query,
        values=_vector(message.values),
        sigma=message.sigma,
        micro_rho=message.micro_rho,
        atto_delta=message.atto_delta,
        present=tuple(message.present),
    )
    if not _is_stated(release, stated):
        raise PeerError(
            Code.PROTOCOL, f"the release of {spoken(stated.round)} is not the one that was stated"
        )
    return release


def _is_stated(release: Release, stated: RoundStatement) -> bool:
    """Whether `stated` covers a release; no release has a number that canonical JSON does not have."""
    try:
        return release.digest == stated.release
    except ValueError:
        return False


def lists_to_proto(lists: Sequence[SignedList]) -> list[pb.SignedAuthorities]:
    return [pb.SignedAuthorities(list_json=one.list_json, signatures=one.signatures) for one in lists]


def lists_from_proto(messages: Sequence[pb.SignedAuthorities]) -> list[SignedList]:
    """The inverse of `lists_to_proto`; nothing is believed yet."""
    return [SignedList(list_json=one.list_json, signatures=tuple(one.signatures)) for one in messages]


def digest_from_bytes(data: bytes) -> str:
    """The hexadecimal form of a 32-byte digest.

    Raises:
        PeerError: not 32 bytes.
    """
    if len(data) != 32:
        raise PeerError(Code.PROTOCOL, f"a digest has 32 bytes, got {len(data)}")
    return data.hex()


def _vector(data: bytes) -> IntArray:
    if len(data) % np.dtype(np.int64).itemsize:
        raise PeerError(Code.PROTOCOL, "an integer array must be a multiple of 8 bytes")
    return from_bytes(data, (len(data) // 8,))
