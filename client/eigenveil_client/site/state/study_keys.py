"""Private keys of this site for masked studies that have not ended, in the site's database [R36]. SQLite
overwrites a deleted key with zeros, and its write-ahead log is emptied; a copy of the disk may still have
it."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.secure_aggregation.study_keys import SignedStudyKey, StudyKey
from eigenveil_client.site.roster.peers import SiteKeys
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection, Database

SCHEMA = """
CREATE TABLE study_keys (
  plan TEXT PRIMARY KEY,
  private BLOB NOT NULL,
  signed_json BLOB NOT NULL,
  signature BLOB NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStudyKey:
    """This site's key for one study: the private part, and what other sites get."""

    private: X25519PrivateKey
    stated: StudyKey
    signed: SignedStudyKey

    @classmethod
    def make(cls, plan: str, site: SiteKeys) -> OwnStudyKey:
        """Return a new key for the study `plan`, signed by the key of the site's card."""
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        stated = StudyKey(plan=plan, site=site.card.site, card=site.card.digest, agreement=public)
        return cls(private=private, stated=stated, signed=stated.signed(site.signing.sign))

    def secret_with(self, other: StudyKey) -> bytes:
        """Return the raw X25519 secret shared with another site: 32 bytes, the same at both ends.

        Hash it together with both statements' digests before use: a site can state another's key."""
        return self.private.exchange(X25519PublicKey.from_public_bytes(other.agreement))


@dataclass(eq=False)
class StudyKeys:
    """This site's keys in `database` (whose schema includes `SCHEMA`)."""

    _database: Database

    def get_or_make(self, plan: str, site: SiteKeys) -> OwnStudyKey:
        """Return the key for a study; make it, durable on return, if there is none under this card."""
        found = self._stored(plan)
        if found is not None and found.stated.card == site.card.digest:
            return found
        made = OwnStudyKey.make(plan, site)
        with self._database.transaction() as change:
            self.delete(plan, change)
            row = {"plan": plan, "private": made.private.private_bytes_raw()}
            row |= {"signed_json": made.signed.signed_json, "signature": made.signed.signature}
            change.insert("study_keys", row)
            failpoint("study-key-storing")
        failpoint("study-key-stored")
        return made

    def _stored(self, plan: str) -> OwnStudyKey | None:
        rows = self._database.rows("SELECT * FROM study_keys WHERE plan = ?", (plan,))
        if not rows:
            return None
        signed = SignedStudyKey(signed_json=rows[0]["signed_json"], signature=rows[0]["signature"])
        private = X25519PrivateKey.from_private_bytes(rows[0]["private"])
        return OwnStudyKey(private=private, stated=signed.read(), signed=signed)

    def has(self, plan: str) -> bool:
        """Return True if there is a key for a study."""
        return bool(self._database.rows("SELECT 1 FROM study_keys WHERE plan = ?", (plan,)))

    @staticmethod
    def delete(plan: str, change: Connection) -> None:
        """Delete the key of a study, within the transaction that ends it."""
        change.execute("DELETE FROM study_keys WHERE plan = ?", (plan,))
