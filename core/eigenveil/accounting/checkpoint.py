"""Signed checkpoint of the coordinator's ledger, which its sites store [R20]. After a restore of an older
ledger, the coordinator receives its own later signature from a site. It must not continue as if nothing had
been spent since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import is_digest
from eigenveil.signatures import Extensible, Keys, SignedStatement

CHECKPOINT_SIGNED = b"eigenveil/ledger-checkpoint/v1\n"
MOST_BYTES = 16 * 1024
SHORT = 16  # hexadecimal characters of a digest in the trail: enough for the rows of one program
NEAR, STEP = 16, 9 / 8


def trail_sizes(size: int) -> list[int]:
    """Return the sizes below `size` at which a checkpoint repeats the last row's digest: fewer with distance.
    Two diverging ledgers are compared at these sizes."""
    distance, sizes = 1, []
    while distance < size:
        sizes.append(size - distance)
        distance = distance + 1 if distance < NEAR else int(distance * STEP)
    return sizes


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Extensible):
    """End of a ledger: its number of rows, last digest and committed cost.

    `committed` is spent or reserved for running studies. Reservations count, because a site may see no
    checkpoint after a round that it answers. `gaussian`: only Gaussian noise was ever admitted. `trail` has
    the first characters of the digests at `trail_sizes(size)`. Raises PeerError: code `protocol`, a field is
    invalid."""

    format, noun = "eigenveil-checkpoint/1", "the checkpoint of the ledger"

    federation: str
    size: int
    digest: str
    committed: Cost
    gaussian: bool
    trail: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1 or not is_digest(self.digest) or len(self.trail) != len(trail_sizes(self.size)):
            raise PeerError(Code.PROTOCOL, "the checkpoint of a ledger has an invalid field; it was rejected")

    @classmethod
    def known(cls) -> tuple[str, ...]:
        return ("federation", "size", "digest", "micro_rho", "atto_delta", "gaussian", "trail")

    def to_dict(self) -> dict[str, Any]:
        """Return the known keys, with numbers as text: JSON has no integers beyond 2**53."""
        return {
            "federation": self.federation,
            "size": str(self.size),
            "digest": self.digest,
            "micro_rho": str(self.committed.micro_rho),
            "atto_delta": str(self.committed.atto_delta),
            "gaussian": self.gaussian,
            "trail": list(self.trail),
        }

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], unknown: Mapping[str, Any]) -> Checkpoint:
        """Return the inverse of `to_dict`. Raises as `Extensible.from_dict`."""
        trail, gaussian = stated["trail"], stated["gaussian"]
        if not isinstance(trail, list) or not all(
            isinstance(one, str) and len(one) == SHORT for one in trail
        ):
            raise ValueError("the trail is not a list of digests")
        if not isinstance(gaussian, bool):
            raise ValueError("gaussian is neither true nor false")
        size, micro_rho, atto_delta = (int(str(stated[name])) for name in ("size", "micro_rho", "atto_delta"))
        if min(micro_rho, atto_delta) < 0:
            raise ValueError("a cost is negative")
        return cls(
            federation=str(stated["federation"]),
            size=size,
            digest=str(stated["digest"]),
            committed=Cost(micro_rho=micro_rho, atto_delta=atto_delta),
            gaussian=gaussian,
            trail=tuple(trail),
            unknown=unknown,
        )

    def is_in(self, digests: list[str]) -> bool:
        """Return True if a ledger with these digests, oldest first, contains this checkpoint's row."""
        return self.size <= len(digests) and digests[self.size - 1] == self.digest

    def follows(self, earlier: Checkpoint) -> bool:
        """Return True if the trail proves that this ledger continues the one of `earlier`."""
        if earlier.size >= self.size:
            return (earlier.size, earlier.digest) == (self.size, self.digest)
        return self._at(earlier.size) == earlier.digest[:SHORT]

    def contradicts(self, earlier: Checkpoint) -> bool:
        """Return True if the trail proves that this ledger has another row at the end of `earlier`."""
        return self._at(earlier.size) not in (None, earlier.digest[:SHORT])

    def _at(self, size: int) -> str | None:
        return dict(zip(trail_sizes(self.size), self.trail, strict=True)).get(size)

    def last_shared_row(self, digests: list[str]) -> int:
        """Return the largest number of rows that this ledger provably shares with one of these digests."""
        places = zip(trail_sizes(self.size), self.trail, strict=True)
        shared = (n for n, short in places if n <= len(digests) and digests[n - 1].startswith(short))
        return max(shared, default=0)


def checkpoint_of(
    federation: str, digests: list[str], costs: Iterable[Cost], *, gaussian: bool
) -> Checkpoint:
    """Return the checkpoint of a ledger with these digests, at least one. `costs` are its charges and open
    reservations. `gaussian`: all studies had Gaussian noise only."""
    size = len(digests)
    return Checkpoint(
        federation=federation,
        size=size,
        digest=digests[-1],
        committed=sum(costs, NO_COST),
        gaussian=gaussian,
        trail=tuple(digests[n - 1][:SHORT] for n in trail_sizes(size)),
    )


class SignedCheckpoint(SignedStatement[Checkpoint]):
    """Signed checkpoint of a ledger."""

    __slots__ = ()
    kind, prefix, most_bytes = Checkpoint, CHECKPOINT_SIGNED, MOST_BYTES


def verify_checkpoint(checkpoint_json: bytes, signature: bytes, release_keys: Keys) -> Checkpoint:
    """Return the checkpoint, if a release key of the federation signed its exact bytes. Raises PeerError: as
    `SignedStatement.check`."""
    return SignedCheckpoint(signed_json=checkpoint_json, signature=signature).check(release_keys)
