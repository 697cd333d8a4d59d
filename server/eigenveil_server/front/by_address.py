"""Connections grouped by address, with the oldest connection of the busiest address found in constant time.

A new connection beyond a limit ends an open one. Searching all of them for it would cost most when they come
fastest, and honest callers would wait for that.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class ByAddress(Generic[Connection]):
    """Each connection once, under its address. All methods take constant time."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Connection, None]] = {}  # the oldest first
        self._sized: defaultdict[int, dict[str, None]] = defaultdict(dict)  # addresses, by how many they have
        self._address: dict[Connection, str] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._address)

    def all(self) -> tuple[Connection, ...]:
        """Return all connections, the oldest first."""
        return tuple(self._address)

    def add(self, connection: Connection, address: str) -> None:
        """Add a connection; it must be a new one."""
        group = self._of.setdefault(address, {})
        group[connection] = None
        self._address[connection] = address
        self._moved(address, len(group) - 1, len(group))
        self._most = max(self._most, len(group))

    def remove(self, connection: Connection) -> None:
        """Remove a connection; one that is unknown is ignored."""
        address = self._address.pop(connection, None)
        if address is None:
            return
        group = self._of[address]
        del group[connection]
        self._moved(address, len(group) + 1, len(group))
        if self._most not in self._sized:
            self._most -= 1
        if not group:
            del self._of[address]

    def oldest_of_most(self) -> Connection:
        """Return the oldest connection of the address with the most; there must be one."""
        address = next(iter(self._sized[self._most]))
        return next(iter(self._of[address]))

    def _moved(self, address: str, before: int, after: int) -> None:
        """Record the new number of connections of an address."""
        if before:
            del self._sized[before][address]
            if not self._sized[before]:
                del self._sized[before]
        if after:
            self._sized[after][address] = None
