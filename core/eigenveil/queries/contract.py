"""What every kind of query says of itself; the type checker refuses a kind that leaves any of it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.describe import Description
from eigenveil.study.study import Study

if TYPE_CHECKING:
    from eigenveil_proto.v1 import eigenveil_pb2 as pb

    Kind = pb.Query._WhichOneofReturnType_kind  # a kind that the protocol's messages know
else:
    Kind = str


class Contract(Protocol):
    """A kind of query: what is asked of every record, and what the answer of a site can be.

    An additive one also has `l1` and `l2_squared`, how far its sum moves between neighbours; a trusted one
    `released`, how many integers its mechanism releases. Both follow from its own clip and from nothing else.
    """

    kind: ClassVar[Kind]
    meaning: ClassVar[str]
    """What is asked, in words for those who must consent."""

    @property
    def length(self) -> int:
        """Integers in a site's answer."""

    @property
    def bound(self) -> int:
        """The largest magnitude that one record adds to an entry."""

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site that holds some number of `records` could answer this."""

    def check_honest(self) -> None:
        """Refuse what no honest study asks, whatever releases its algorithm was fed [P25].

        Raises:
            RequestError: code `plan-overflow`.
        """

    def imagined(self, records: int) -> IntArray:
        """The release that a dry run goes on with: public numbers for `records` unremarkable records."""

    def describe(self, study: Study) -> Description:
        """What each number of an answer is, and what a value of 1 is, in a study's words."""
