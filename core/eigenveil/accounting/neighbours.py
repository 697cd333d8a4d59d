"""Which two data sets must look alike, and what that makes of a sensitivity."""

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
