"""Whether the database is as it was written: pages and indexes, then whatever is kept under its own digest.

The ledger's chain is replayed apart from this, wherever it is opened.
"""

from __future__ import annotations

import json
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError

from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil.numerics.encoding import canonical, digest
from eigenveil.protocol.wire import query_from_proto
from eigenveil.reporting.document import SIGNED
from eigenveil_common.storage.database import Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.database import Store
from eigenveil_server.storage.study_reads import Studies


def check_whole(store: Store) -> None:
    """Look at every page, plan, question, sealed round and release.

    Raises:
        InternalError: code `storage`, one is not what was written.
    """
    store.check_whole()
    studies = Studies(store.reader)
    for study in store.reader.rows("SELECT digest, plan_json, release FROM studies ORDER BY submitted_at"):
        if not _is_plan(study["digest"], study["plan_json"]):
            raise _changed("plan", study["digest"])
        studies.sealed_rounds(study["digest"])
        if study["release"] is not None and not _is_signed(study["release"]):
            raise _changed("release", study["digest"])
        rounds = "SELECT query, query_digest FROM rounds WHERE study = ?"
        if not all(map(_is_query, store.reader.rows(rounds, (study["digest"],)))):
            raise _changed("question", study["digest"])


def _is_plan(expected: Any, plan: bytes) -> bool:
    try:
        return bool(digest("plan", json.loads(plan)) == expected)
    except ValueError:
        return False


def _is_signed(release: bytes) -> bool:
    """By whichever key and in whatever format: an old one stays as it is."""
    try:
        bundle = json.loads(release)
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(bundle["public_key"]))
        public.verify(bytes.fromhex(bundle["signature"]), SIGNED + canonical(bundle["document"]))
    except (ValueError, KeyError, TypeError, InvalidSignature):
        return False
    return canonical(bundle) == release


def _is_query(row: Row) -> bool:
    try:
        query = query_from_proto(pb.Query.FromString(row["query"]))
    except (EigenveilError, DecodeError):
        return False
    return bool(query.digest == row["query_digest"])


def _changed(what: str, study: str) -> InternalError:
    return InternalError(
        Code.STORAGE, f"a stored {what} of study {study[:12]} was changed; restore the database"
    )
