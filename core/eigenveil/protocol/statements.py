"""What the coordinator says of a round, under its release key: first the question, then its release [R21].

A site computes the next question itself, from the plan and these releases. So a coordinator that wants
another question has to state a release that was never drawn, with its signature, and the document that it
publishes states what was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.signed import Sign, check_signature

ROUND_SIGNED = b"eigenveil/round-signature/v1\n"
HEX = 64
MOST_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStatement:
    """A round of a study: digests of its question, of the release before it, and, once sealed, of its own.

    `after` is empty in the first round, `release` as long as the round is only asked; `ledger` is the last
    row of the coordinator's ledger at that moment, and `size` how many rows that makes.

    Raises:
        PeerError: code `protocol`, a field is not of its form.
    """

    plan: str
    round: int
    query: str
    after: str
    release: str
    ledger: str
    size: int

    def __post_init__(self) -> None:
        always, sometimes = (self.plan, self.query, self.ledger), (self.after, self.release)
        texts = all(len(one) == HEX for one in always) and all(len(one) in (0, HEX) for one in sometimes)
        whole = all(type(number) is int and 0 <= number < 2**53 for number in (self.round, self.size))
        if not (texts and whole and self.size >= 1 and bool(self.after) == (self.round > 0)):
            raise PeerError(Code.PROTOCOL, "a statement about a round does not fit together")

    def signed(self, sign: Sign) -> SignedRound:
        """The statement under the release key."""
        said = canonical(asdict(self))
        return SignedRound(said=said, signature=sign(ROUND_SIGNED + said))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRound:
    """A statement's canonical JSON and the Ed25519 signature over it."""

    said: bytes
    signature: bytes

    def check(self, release_key: bytes) -> RoundStatement:
        """What it states, if the federation's release key (raw Ed25519) signed these very bytes.

        Raises:
            PeerError: code `identity`, signed by another key or changed; `protocol`, not a statement.
        """
        if len(self.said) > MOST_BYTES:
            raise PeerError(Code.PROTOCOL, f"a statement of {len(self.said)} bytes is too long")
        check_signature(
            release_key,
            self.signature,
            ROUND_SIGNED + self.said,
            "what is stated of a round is not signed by this federation; it was not believed",
        )
        return self.read()

    def read(self) -> RoundStatement:
        """What it states, signed or not.

        Raises:
            PeerError: code `protocol`, it is not a statement.
        """
        try:
            return RoundStatement(**parse_json(self.said))
        except (ValueError, TypeError) as problem:
            raise PeerError(Code.PROTOCOL, "a statement about a round cannot be read") from problem
