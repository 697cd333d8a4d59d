"""Every kind of query is read back from its message with its digest, and malformed messages are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.message import Message

from eigenveil.errors import Code, EigenveilError
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.queries.kinds import every_query
from tests.support import a_query, refused


def message(name: str) -> pb.Query:
    return query_to_proto(a_query(every_query()[name]))


def arrays(sent: Message) -> Iterator[tuple[Message, str]]:
    """Every array of numbers in a message: the message that has it, and its field."""
    for one, content in sent.ListFields():
        if isinstance(content, Message):
            yield from arrays(content)
        elif isinstance(content, bytes) and one.name != "plan_digest":
            yield sent, one.name


@pytest.mark.parametrize("name", every_query())
def test_a_truncated_or_garbled_array_is_refused(name: str) -> None:
    """Half an integer, an integer far outside the limits, nothing at all."""
    for holder, key in arrays(sent := message(name)):
        honest = getattr(holder, key)
        for garbled in (honest[:-3], honest[:-8] + b"\x80" * 8, b""):
            setattr(holder, key, garbled)
            with pytest.raises(EigenveilError) as caught:
                query_from_proto(sent)
            assert caught.value.code in (Code.PROTOCOL, Code.BAD_CONTRIBUTION, Code.OVERFLOW)
        setattr(holder, key, honest)


@pytest.mark.parametrize("columns", [0, 1, 3, 2**32 - 1])
def test_a_wrong_number_of_columns_is_refused(columns: int) -> None:
    sent = message("gradient")
    sent.gradient.spec.directions.columns = columns
    with pytest.raises(EigenveilError):
        query_from_proto(sent)


@pytest.mark.parametrize(("name", "part"), [("gradient", "spec"), ("cross-norms", "spec")])
def test_a_query_without_a_required_field_is_refused(name: str, part: str) -> None:
    sent = message(name)
    getattr(sent, name.replace("-", "_")).ClearField(part)
    with refused(Code.PROTOCOL, f"has no field {part}"):
        query_from_proto(sent)
