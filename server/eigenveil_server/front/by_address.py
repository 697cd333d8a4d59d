"""Things of many addresses, of which the oldest of the address with the most is known at once.

A newcomer beyond a limit ends one of those that are there. To look at all of them for it would cost most when
they come fastest, and whoever is honest would wait for that.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class ByAddress(Generic[Thing]):
    """Each thing once, under its address. All methods take constant time."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Thing, None]] = {}  # the oldest first
        self._sized: defaultdict[int, dict[str, None]] = defaultdict(dict)  # addresses, by how many they have
        self._address: dict[Thing, str] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._address)

    def all(self) -> tuple[Thing, ...]:
        """Return everything that is there, the oldest first."""
        return tuple(self._address)

    def add(self, thing: Thing, address: str) -> None:
        """Put it in; it must not be there yet."""
        there = self._of.setdefault(address, {})
        there[thing] = None
        self._address[thing] = address
        self._moved(address, len(there) - 1, len(there))
        self._most = max(self._most, len(there))

    def remove(self, thing: Thing) -> None:
        """Take it out, if it is there."""
        address = self._address.pop(thing, None)
        if address is None:
            return
        there = self._of[address]
        del there[thing]
        self._moved(address, len(there) + 1, len(there))
        if self._most not in self._sized:
            self._most -= 1
        if not there:
            del self._of[address]

    def oldest_of_most(self) -> Thing:
        """Return the oldest thing of the address with the most; there must be one."""
        address = next(iter(self._sized[self._most]))
        return next(iter(self._of[address]))

    def _moved(self, address: str, before: int, after: int) -> None:
        """Note that an address has so many now."""
        if before:
            del self._sized[before][address]
            if not self._sized[before]:
                del self._sized[before]
        if after:
            self._sized[after][address] = None
