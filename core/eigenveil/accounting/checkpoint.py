"""The coordinator's signature under the end of its ledger, which its sites keep for it [R20].

A coordinator whose ledger was put back to an older state meets its own signature in the hands of a site,
and must not go on as if nothing had been spent since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.signed import check_signature

CHECKPOINT_SIGNED = b"eigenveil/ledger-checkpoint/v1\n"
MOST_BYTES = 16 * 1024
HEX = 64
SHORT = 16  # hexadecimal characters of a digest in the trail: enough among rows that one program wrote
NEAR, STEP = 16, 9 / 8


def trail_sizes(size: int) -> list[int]:
    """Sizes below `size` at which a checkpoint repeats what the ledger's last row was: the nearest ones, then
    ever fewer. Two ledgers that parted are compared there."""
    back, sizes = 1, []
    while back < size:
        sizes.append(size - back)
        back = back + 1 if back < NEAR else int(back * STEP)
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The end of a ledger: how many rows, the digest of the last, what was spent by then or set aside for
    studies that still ran, and whether nothing but Gaussian noise was admitted for any. `trail` are the
    beginnings of the digests at `trail_sizes(size)`.

    What was set aside counts because a site that is asked in a round may see no checkpoint after it.

    Raises:
        PeerError: code `protocol`, the parts do not fit together.
    """

    federation: str
    size: int
    digest: str
    committed: Cost
    gaussian: bool
    trail: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1 or len(self.digest) != HEX or len(self.trail) != len(trail_sizes(self.size)):
            raise PeerError(
                Code.PROTOCOL, "the checkpoint of a ledger does not fit together; it was not believed"
            )

    def to_json(self) -> bytes:
        """Canonical JSON, with numbers as text: it has no integers beyond 2**53."""
        return canonical(
            {
                "federation": self.federation,
                "size": str(self.size),
                "digest": self.digest,
                "micro_rho": str(self.committed.micro_rho),
                "atto_delta": str(self.committed.atto_delta),
                "gaussian": self.gaussian,
                "trail": list(self.trail),
            }
        )

    def is_in(self, digests: list[str]) -> bool:
        """Whether a ledger with these digests, oldest first, has this checkpoint's row in its place."""
        return self.size <= len(digests) and digests[self.size - 1] == self.digest

    def follows(self, earlier: Checkpoint) -> bool:
        """Whether `earlier` lies on the way to this checkpoint, as far as the trail can tell for certain."""
        if earlier.size >= self.size:
            return (earlier.size, earlier.digest) == (self.size, self.digest)
        return self._at(earlier.size) == earlier.digest[:SHORT]

    def contradicts(self, earlier: Checkpoint) -> bool:
        """Whether this ledger certainly had another row where `earlier`, a smaller one, ends."""
        return self._at(earlier.size) not in (None, earlier.digest[:SHORT])

    def _at(self, size: int) -> str | None:
        return dict(zip(trail_sizes(self.size), self.trail, strict=True)).get(size)

    def parted(self, digests: list[str]) -> int:
        """The most rows that this checkpoint's ledger certainly shares with one of these digests."""
        places = zip(trail_sizes(self.size), self.trail, strict=True)
        shared = (n for n, short in places if n <= len(digests) and digests[n - 1].startswith(short))
        return max(shared, default=0)


def checkpoint_of(
    federation: str, digests: list[str], costs: Iterable[Cost], *, gaussian: bool
) -> Checkpoint:
    """The checkpoint of a ledger of at least one row with these digests, whose charges and open reservations
    are `costs` and whose studies were all `gaussian` or not."""
    size = len(digests)
    return Checkpoint(
        federation=federation,
        size=size,
        digest=digests[-1],
        committed=sum(costs, NOTHING),
        gaussian=gaussian,
        trail=tuple(digests[n - 1][:SHORT] for n in trail_sizes(size)),
    )


def verify_checkpoint(checkpoint_json: bytes, signature: bytes, release_key: bytes) -> Checkpoint:
    """The checkpoint, if the federation's release key (raw Ed25519) signed these very bytes.

    Raises:
        PeerError: code `identity`, signed by another key or changed; `protocol`, not a checkpoint.
    """
    check_signature(
        release_key,
        signature,
        CHECKPOINT_SIGNED + checkpoint_json,
        "the checkpoint of the ledger is not signed by this federation; it was not believed",
    )
    if len(checkpoint_json) > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"a checkpoint of {len(checkpoint_json)} bytes is too long")
    try:
        return _read(parse_json(checkpoint_json))
    except (ValueError, KeyError, TypeError, AttributeError, EigenveilError) as problem:
        raise PeerError(Code.PROTOCOL, "a signed checkpoint of the ledger cannot be read") from problem


def _read(said: dict[str, object]) -> Checkpoint:
    trail = said["trail"]
    if not isinstance(trail, list) or not all(isinstance(one, str) and len(one) == SHORT for one in trail):
        raise ValueError("the trail is no list of digests")
    return Checkpoint(
        federation=str(said["federation"]),
        size=int(str(said["size"])),
        digest=str(said["digest"]),
        committed=Cost(micro_rho=int(str(said["micro_rho"])), atto_delta=int(str(said["atto_delta"]))),
        gaussian=said.get("gaussian") is True,  # not said by checkpoints of before: they may be of any noise
        trail=tuple(trail),
    )
