"""Which two data sets must look alike, and what that makes of a sensitivity."""

from __future__ import annotations

from enum import Enum


class Neighbours(Enum):
    """Which two data sets must look alike."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
