"""Queries between values and protocol messages. Decoding ends in the validating constructors."""

from __future__ import annotations

import numpy as np

from eigenveil.errors import Code, PeerError
from eigenveil.ints import IntArray, from_bytes, to_bytes
from eigenveil.query import (
    Ask,
    ClippedSum,
    Count,
    Energy,
    Field,
    Gradient,
    GradientNorms,
    Gram,
    Query,
    RowNorms,
)
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def query_to_proto(query: Query) -> pb.Query:
    """The message that says exactly this query."""
    message = pb.Query(
        plan_digest=bytes.fromhex(query.plan_digest), round=query.round, micro_rho=query.micro_rho
    )
    match query.ask:
        case Count():
            message.count.SetInParent()
        case RowNorms(centre=centre, edges=edges):
            message.row_norms.CopyFrom(pb.RowNorms(centre=to_bytes(centre), edges=to_bytes(edges)))
        case ClippedSum(centre=centre, radius=radius):
            message.clipped_sum.CopyFrom(pb.ClippedSum(centre=to_bytes(centre), radius=radius))
        case Energy(centre=centre, radius=radius):
            message.energy.CopyFrom(pb.Energy(centre=to_bytes(centre), radius=radius))
        case Gram(centre=centre, radius=radius):
            message.gram.CopyFrom(pb.Gram(centre=to_bytes(centre), radius=radius))
        case GradientNorms(field=field, edges=edges):
            message.gradient_norms.CopyFrom(
                pb.GradientNorms(field=_field_to_proto(field), edges=to_bytes(edges))
            )
        case Gradient(field=field, radius=radius):
            message.gradient.CopyFrom(pb.Gradient(field=_field_to_proto(field), radius=radius))
    return message


def query_from_proto(message: pb.Query) -> Query:
    """The query that a message says.

    Raises:
        PeerError: a malformed array or an unknown kind.
        RequestError: a value outside the vocabulary's limits.
    """
    return Query(
        plan_digest=digest_from_bytes(message.plan_digest),
        round=message.round,
        ask=_ask(message),
        micro_rho=message.micro_rho,
    )


def digest_from_bytes(data: bytes) -> str:
    """The hexadecimal form of a 32-byte digest.

    Raises:
        PeerError: not 32 bytes.
    """
    if len(data) != 32:
        raise PeerError(Code.PROTOCOL, f"a digest has 32 bytes, got {len(data)}")
    return data.hex()


def _ask(message: pb.Query) -> Ask:
    match message.WhichOneof("ask"):
        case "count":
            return Count()
        case "row_norms":
            rows = message.row_norms
            return RowNorms(centre=_vector(rows.centre), edges=_vector(rows.edges))
        case "clipped_sum":
            part = message.clipped_sum
            return ClippedSum(centre=_vector(part.centre), radius=part.radius)
        case "energy":
            return Energy(centre=_vector(message.energy.centre), radius=message.energy.radius)
        case "gram":
            return Gram(centre=_vector(message.gram.centre), radius=message.gram.radius)
        case "gradient_norms":
            norms = message.gradient_norms
            return GradientNorms(field=_field(norms.field), edges=_vector(norms.edges))
        case "gradient":
            return Gradient(field=_field(message.gradient.field), radius=message.gradient.radius)
        case unknown:
            raise PeerError(Code.VERSION, f"the query's kind is unknown here: {unknown}")


def _field_to_proto(field: Field) -> pb.Field:
    return pb.Field(
        centre=to_bytes(field.centre),
        directions=to_bytes(field.directions),
        pull=to_bytes(field.pull),
        components=field.directions.shape[1],
        shift=field.shift,
    )


def _field(message: pb.Field) -> Field:
    centre = _vector(message.centre)
    shape = (centre.size, message.components)
    return Field(
        centre=centre,
        directions=from_bytes(message.directions, shape),
        pull=from_bytes(message.pull, shape),
        shift=message.shift,
    )


def _vector(data: bytes) -> IntArray:
    if len(data) % np.dtype(np.int64).itemsize:
        raise PeerError(Code.PROTOCOL, "an integer array must be a multiple of 8 bytes")
    return from_bytes(data, (len(data) // 8,))
