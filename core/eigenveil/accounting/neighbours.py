"""Which two data sets must look alike, and what that makes of a sensitivity: the one home of the factor."""

from __future__ import annotations

from enum import Enum


class Neighbours(Enum):
    """Which two data sets must look alike: one with a person's record added or removed, so that the number
    of records is private, or one with it replaced by any other, so that this number is public.

    >>> Neighbours("replace-one") is Neighbours.REPLACE_ONE
    True
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @property
    def records(self) -> int:
        """How many records the two differ in: 1, or 2 (one out and one in).

        What one record moves by at most D, in any norm, moves by `records` D. Where the two records move
        different entries, or squared distances of any two from each other are twice those from nothing (as
        for positive semidefinite matrices), the square too grows by `records` alone and not by its square.
        """
        return 1 if self is Neighbours.ADD_REMOVE else 2
