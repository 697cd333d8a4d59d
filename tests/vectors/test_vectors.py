"""The stored vectors: the code writes them, reads them, and refuses the bad ones. A failure here means that a
digest, a message or an answer changed: other versions, stored ledgers and signed releases would no longer be
understood. `python -m tests.vectors.make` writes new files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.ledger import EntryKind, LedgerEntry, replay
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code
from eigenveil.key_cards import SignedAnalystKeyCard
from eigenveil.numerics.encoding import digest
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.rounds import SignedRound
from eigenveil.protocol.wire import query_from_proto
from eigenveil.signatures import formatted
from eigenveil.study_authorization import SignedAuthorization, check_authorization
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core import reference
from tests.core.queries import kinds
from tests.support import refused
from tests.vectors.make import FOLDER, VECTORS, text

Signed = TypeVar("Signed")


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def read(kind: Callable[..., Signed], one: dict[str, str], **more: Any) -> Signed:
    """The signed statement in a vector."""
    return kind(signed_json=one["signed_json"].encode(), signature=bytes.fromhex(one["signature"]), **more)


@pytest.mark.parametrize("name", VECTORS)
def test_the_code_still_writes_the_stored_vector(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text(name)


def test_every_file_has_its_vector() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(VECTORS)


def test_stored_round_statements_are_read_and_bad_ones_refused() -> None:
    vector = stored("round")
    key = bytes.fromhex(vector["release_key"])
    for one in vector["stated"].values():
        signed = read(SignedRound, one)
        found = signed.check(key)
        assert formatted(found.format, found.to_dict()) == json.loads(one["signed_json"])
        with refused(Code.IDENTITY):
            signed.check(bytes(31) + b"\x01")
        with refused(Code.IDENTITY):
            replace(signed, signed_json=signed.signed_json + b" ").check(key)
    for one in vector["bad"].values():
        with refused(Code.PROTOCOL):
            read(SignedRound, one).check(key)


@pytest.mark.parametrize("name", stored("query")["queries"])
def test_a_query_reads_and_its_answer_follows_from_the_definition(name: str) -> None:
    """By the reference in plain Python integers, not by the kernels that wrote the file."""
    vector = stored("query")["queries"][name]
    round_query = query_from_proto(pb.Query.FromString(bytes.fromhex(vector["message"])))
    assert round_query.digest == vector["digest"]
    rows, frame = stored("query")["rows"], round_query.priced.frame
    shown = rows if frame is None else [reference.seen(row, frame) for row in rows]
    assert kinds.answer(shown, round_query.query) == vector["answer"]


@pytest.mark.parametrize("name", stored("deal")["passes"])
def test_stored_batches_follow_the_protocol(name: str) -> None:
    rows, vector = stored("deal")["rows"], stored("deal")["passes"][name]
    header = {"batches": vector["batches"], "first": vector["first"], "plan": vector["plan"]}
    assert digest("pass", header) == vector["key"]
    key = bytes.fromhex(vector["key"])
    numbers = [rows[:place].count(row) for place, row in enumerate(rows)]
    pairs = list(zip(rows, numbers, strict=True))
    assert [dealt(row, m, key) % vector["batches"] for row, m in pairs] == vector["batch"]
    flipped = bytes(255 - byte for byte in key)
    assert [str(dealt(row, m, flipped) % 2**62) for row, m in pairs] == vector["subset hash"]


def dealt(row: list[int], number: int, key: bytes) -> int:
    stream = hashlib.shake_256(b"eigenveil/deal/v1" + key).digest(8 * (len(row) + 1))
    factors = [int.from_bytes(stream[i : i + 8], "little") | 1 for i in range(0, len(stream), 8)]
    h = sum(f * z for f, z in zip(factors, [number, *row], strict=True)) % 2**64
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    h = (h ^ h >> 27) * 0x94D049BB133111EB % 2**64
    return h ^ h >> 31


def test_the_ledger_replays() -> None:
    numbers = ("index", "round", "micro_rho", "atto_delta", "at")
    rows = [
        LedgerEntry(**{**row, **{n: int(row[n]) for n in numbers}, "kind": EntryKind(row["kind"])})
        for row in stored("ledger")["rows"]
    ]
    ledger = replay(PrivacyBudget(mixed=Cost(micro_rho=500, atto_delta=10**17)), rows)
    assert ledger.spent == Cost(micro_rho=500, atto_delta=10**16)
    assert ledger.head == rows[-1].digest


@pytest.mark.parametrize("name", stored("bad")["plans"])
def test_a_bad_plan_is_refused(name: str) -> None:
    vector = stored("bad")["plans"][name]
    with refused(Code(vector["code"])):
        plan_from_json(vector["plan_json"].encode())


@pytest.mark.parametrize("name", stored("bad")["queries"])
def test_a_bad_query_is_refused(name: str) -> None:
    vector = stored("bad")["queries"][name]
    with refused(Code(vector["code"])):
        query_from_proto(pb.Query.FromString(bytes.fromhex(vector["message"])))


# Key cards and authorizations of analysts [R30] [R31].


VECTOR: dict[str, Any] = json.loads((FOLDER / "authorization.json").read_text())
PLAN = plan_from_json(VECTOR["plan"].encode())
CARD = read(SignedAnalystKeyCard, VECTOR["card"])


def test_stored_card_and_authorization_follow_the_protocol() -> None:
    card, stated = VECTOR["card"], json.loads(VECTOR["authorization"]["signed_json"])
    message = card["signed_json"].encode()
    digest = sha256(b"eigenveil/analyst-card/v1\n" + len(message).to_bytes(8, "little") + message).hexdigest()
    assert (digest, stated["key"], stated["plan"]) == (card["digest"], digest, VECTOR["plan_digest"])
    assert card["fingerprint"].replace(" ", "") == f"{int(digest, 16) % 10**40:040d}"
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTOR["key"]))
    assert key.sign(b"eigenveil/analyst-card/v1\n" + message).hex() == card["signature"]
    signing = b"eigenveil/study-authorization/v1\n" + VECTOR["authorization"]["signed_json"].encode()
    assert key.sign(signing).hex() == VECTOR["authorization"]["signature"]
    assert json.dumps(stated, sort_keys=True, separators=(",", ":")) == VECTOR["authorization"]["signed_json"]


@pytest.mark.parametrize("bad", VECTOR["bad"], ids=lambda bad: bad["signed_json"][-60:])
def test_bad_authorization_vectors_are_refused(bad: dict[str, str]) -> None:
    with refused(Code(bad["code"])):
        check_authorization(read(SignedAuthorization, bad, card=CARD), PLAN, VECTOR["now"])
