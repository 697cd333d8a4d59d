"""Known networks: those from which a member was connected within the last hour.

Nobody knows who a connection is from before its TLS handshake. Its address is a hint: who comes from a known
network has places and handshakes that strangers, who may have any number of addresses, cannot take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

KNOWN_SECONDS = 3600.0


@dataclass(eq=False)
class KnownNetworks:
    _until: dict[str, float] = field(default_factory=dict)  # monotonic clock, by network

    def __contains__(self, network: str) -> bool:
        return network in self._until

    def record(self, network: str) -> None:
        """Record that a member is connected from this network."""
        self._until[network] = time.monotonic() + KNOWN_SECONDS

    def forget(self) -> None:
        """Forget networks from which no member was connected for `KNOWN_SECONDS`."""
        now = time.monotonic()
        self._until = {network: until for network, until in self._until.items() if until > now}
