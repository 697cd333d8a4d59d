"""Test vectors: values that another implementation must compute, and messages that it must refuse. `python -m
tests.vectors.make` writes the files anew; a change of any of them is a change of the protocol and belongs in
the changelog. Integers are written as decimal text where JSON's numbers would not hold them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.ledger import Ledger, LedgerEntry
from eigenveil.accounting.zcdp import Cost, Neighbours
from eigenveil.aggregation import Contribution
from eigenveil.numerics.encoding import canonical, digest, frozen, to_bytes
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.protocol.plan import Plan, plan_to_dict
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.protocol.rounds import ROUND_SIGNED, Release, RoundStatement
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import NAMES, Batch, Frame, Gradient
from eigenveil.queries.gradients import pass_key
from eigenveil.site.batches import HASH_RANGE, assign_batches
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import GridRows
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Federation, Missing, Study
from eigenveil.study.toml import study_to_dict
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.queries.kinds import every_query
from tests.support import DIGEST, a_column, a_field
from tests.vectors.authorizations import authorization_vectors, signed_vector
from tests.vectors.masked import masked_vectors

FOLDER = Path(__file__).resolve().parent

# The records of every answer below: grid integers, written out so that no generator is needed.
ROWS: GridRows = np.array(
    [[4096, -4096, 4096, -4096], [0, 0, 0, 0], [1, -1, 2, -2], [2457, 3276, -5, 900], [-4096, 4096, 0, 77]],
    dtype=np.int16,
)


def a_vector_plan() -> Plan:
    """A plan in which no field has its default."""
    study = Study(
        name="vector",
        purpose="test vector \u00e9\u4e2d",
        columns=(a_column("age", 0.0, 120.0, fill=40.5), a_column("pulse \u03bc", -1e-3, 1e21, fill=0.0)),
        epsilon=1.5,
        delta=1e-7,
        components=2,
        algorithm=Algorithm.GAUSS_COV,
        neighbours=Neighbours.REPLACE_ONE,
        max_sites_per_person=2,
        missing=Missing.FILL,
        person_column="person",
        centring=False,
        radius=0.8,
        max_records=100_000,
        expected_records=5000,
        federation=Federation(
            sites=("north", "south"),
            required=("south",),
            quorum=1,
            deadline_seconds=90.5,
            minimum_cohort=30,
            decide_by="2027-01-31",
            loading_seconds=900.0,
        ),
    )
    return make_plan(study, federation="vectors", submission="one", analyst="maria")


def plan_vector() -> dict[str, Any]:
    """The plan's canonical bytes and digest, and those of a study that states a norm."""
    plan = a_vector_plan()
    stated = make_plan(
        replace(plan.study, radius=PublicNorm(norm=1.25)), federation="vectors", submission="two"
    )
    return {
        "plan_json": plan.to_json().decode(),
        "digest": plan.digest,
        "stated norm": {"plan_json": stated.to_json().decode(), "digest": stated.digest},
    }


def query_vectors() -> dict[str, Any]:
    """Every kind: message bytes, digest, and the exact answer over ROWS."""
    out: dict[str, Any] = {}
    for round, (name, query) in enumerate(every_query().items()):
        round_query = RoundQuery(PricedQuery(query=query, micro_rho=1000 + round), DIGEST, round)
        out[name] = {
            "message": query_to_proto(round_query).SerializeToString(deterministic=True).hex(),
            "digest": round_query.digest,
            "answer": Site(ROWS).answer(query).tolist(),
        }
    frame = Frame(middles=frozen([0, -4096, 7, 900]), factors=frozen([2**20, 2**17, 3 * 2**19, 2**30]))
    round_query = RoundQuery(PricedQuery(query=every_query()["gram"], micro_rho=5, frame=frame), DIGEST, 99)
    out["gram, through a frame"] = {
        "message": query_to_proto(round_query).SerializeToString(deterministic=True).hex(),
        "digest": round_query.digest,
        "answer": Site(ROWS).answer(round_query.query, frame=frame).tolist(),
    }
    return {"rows": ROWS.tolist(), "queries": out}


def contribution_vector() -> dict[str, Any]:
    query = every_query()["gradient"]
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=7), DIGEST, 2)
    values = Site(ROWS).answer(query)
    sent = Contribution(plan_digest=DIGEST, round=2, query=round_query.digest, site="north", values=values)
    return {
        "plan": DIGEST, "round": 2, "query": round_query.digest, "site": "north",
        "values": to_bytes(values).hex(), "digest": sent.digest,
    }  # fmt: skip


def release_vector() -> dict[str, Any]:
    """A release with numbers at both ends of their range."""
    values = frozen([-(2**63), 2**63 - 1, 0, -1])
    made = Release(
        round=5,
        query=DIGEST,
        values=values,
        sigma=12345.678,
        micro_rho=9,
        atto_delta=0,
        present=("north", "south"),
    )
    return {
        "round": 5, "query": DIGEST, "values": to_bytes(values).hex(), "sigma": 12345.678,
        "micro_rho": 9, "atto_delta": "0", "present": ["north", "south"], "digest": made.digest,
    }  # fmt: skip


def round_vectors() -> dict[str, Any]:
    """Statements on a query and on a release, under a key that every reader may know [R21]."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    round_query = RoundStatement(
        plan=DIGEST, round=0, query="cd" * 32, after="", release="", ledger="ef" * 32, size=1
    )
    sealed = replace(round_query, round=1, after="12" * 32, release="34" * 32, size=2**40)
    stated = {name: one.signed(key.sign) for name, one in (("asked", round_query), ("released", sealed))}
    bad = {
        "first round after another": round_query.signed(key.sign).signed_json.replace(
            b'"round":0', b'"round":1'
        ),
        "no such field": round_query.signed(key.sign).signed_json.replace(b'{"after"', b'{"extra":1,"after"'),
        "a digest too short": round_query.signed(key.sign).signed_json.replace(b"cd" * 32, b"cd"),
        "a ledger without rows": round_query.signed(key.sign).signed_json.replace(b'"size":1', b'"size":0'),
    }
    return {
        "release_key": key.public_key().public_bytes_raw().hex(),
        "stated": {n: signed_vector(s) for n, s in stated.items()},
        "bad": {
            n: {"signed_json": s.decode(), "signature": key.sign(ROUND_SIGNED + s).hex()}
            for n, s in bad.items()
        },
    }


def revision_vectors() -> dict[str, Any]:
    """Each algorithm's revision, and what it asks in a rehearsal: kinds, prices, laws and lengths. Where
    these change, a study must not begin under one version and go on under another: raise the revision."""
    out: dict[str, Any] = {}
    for algorithm in Algorithm:
        traits = algorithm.properties
        if not traits.private:
            continue
        one = traits.one_site
        study = Study(
            name="revision", columns=tuple(a_column(f"c{i}") for i in range(4)), epsilon=2.0, delta=1e-6,
            components=1, max_records=20_000, expected_records=3000,
            federation=Federation(sites=("north",) if one else ("north", "south")),
            neighbours=Neighbours.REPLACE_ONE if traits.single_records else Neighbours.ADD_REMOVE,
        ).with_algorithm(algorithm)  # fmt: skip
        plan = make_plan(study, federation="vectors", submission="one", analyst="maria")
        paths = possible_rehearsals(plan)
        if algorithm is Algorithm.DP_PCA:  # the stored vectors are of its expected records alone
            paths = paths[:1]
        queries = [round_query for path in paths for round_query in path]
        round_query = [
            [
                NAMES[type(q.query)],
                q.priced.micro_rho,
                str(q.priced.atto_delta),
                q.priced.distribution.value,
                q.query.length,
            ]
            for q in queries
        ]
        out[algorithm.value] = {
            "revision": traits.revision, "rounds": len(round_query), "asked": digest("asked", round_query),
        }  # fmt: skip
    return out


def ledger_chain() -> list[LedgerEntry]:
    """Reserve, charge, settle; with an atto-delta beyond 53 bits."""
    ledger = Ledger(budget=PrivacyBudget(mixed=Cost(micro_rho=10**6, atto_delta=10**18)))
    out: list[LedgerEntry] = []
    steps: list[Callable[[], LedgerEntry | None]] = [
        lambda: ledger.reserve(DIGEST, Cost(micro_rho=500, atto_delta=10**17), at=1_700_000_000),
        lambda: ledger.charge(DIGEST, 0, "cd" * 32, Cost(micro_rho=200, atto_delta=10**16), at=1_700_000_001),
        lambda: ledger.charge(DIGEST, 1, "ef" * 32, Cost(micro_rho=300), at=1_700_000_002),
        lambda: ledger.settle(DIGEST, at=1_700_000_003),
    ]
    for step in steps:
        entry = step()
        assert entry is not None
        ledger.apply(entry)
        out.append(entry)
    return out


def ledger_vector() -> dict[str, Any]:
    """The chain's rows; numbers as decimal text, as they are hashed."""
    rows = [{f: str(getattr(e, f)) for f in LedgerEntry._fields} for e in ledger_chain()]
    for row, entry in zip(rows, ledger_chain(), strict=True):
        row["kind"] = entry.kind.value
    return {"rows": rows}


def spoiled(change: Callable[[pb.Query], None]) -> bytes:
    query = RoundQuery(PricedQuery(query=every_query()["gram"], micro_rho=1), DIGEST, 0)
    message = query_to_proto(query)
    change(message)
    return message.SerializeToString(deterministic=True)


def deal_vectors() -> dict[str, Any]:
    """Part of each of ROWS and of some equals, by pass; and the hash itself, as text."""
    rows = np.vstack([ROWS, ROWS[[1, 4, 1, 1]]])
    passes = {}
    for first, batches in ((2, 1), (2, 7), (5, 7), (2, 2**20)):
        key = pass_key(DIGEST, first, batches)
        passes[f"{batches} batches from round {first}"] = {
            "plan": DIGEST, "first": first, "batches": batches, "key": to_bytes(key).hex(),
            "batch": assign_batches(rows, batches, key).tolist(),
            "subset hash": [str(hashed) for hashed in assign_batches(rows, HASH_RANGE, ~key)],
        }  # fmt: skip
    return {"rows": rows.tolist(), "passes": passes}


def spoiled_batch(change: Callable[[pb.Batch], None]) -> bytes:
    """A gradient of part 1, in its round, with one thing wrong."""
    part = Batch(first_round=4, index=1, batches=9, key=pass_key(DIGEST, 4, 9))
    query = Gradient(spec=a_field(4, 2), radius=1000, batch=part)
    message = query_to_proto(RoundQuery(PricedQuery(query=query, micro_rho=1), DIGEST, 5))
    change(message.gradient.batch)
    return message.SerializeToString(deterministic=True)


def normed(norm: float, **more: str) -> dict[str, Any]:
    """Changes to a plan whose study states this norm."""
    study = study_to_dict(a_vector_plan().study)
    study["privacy"]["radius"] = {"norm": norm, **more}
    return {"study": study}


def bad_vectors() -> dict[str, Any]:
    """Plans and queries that must be refused, with the code of the refusal."""
    good = plan_to_dict(a_vector_plan())
    plans = {
        "not canonical": (canonical(good) + b"\n", "protocol"),
        "unknown required key": (canonical(good | {"extra": 1, "required": ["extra"]}), "version"),
        "unknown version": (canonical(good | {"version": 99}), "version"),
        "revision of another version": (canonical(good | {"revision": 99}), "version"),
        "price beyond the promise": (canonical(good | {"micro_rho": good["micro_rho"] + 1}), "bad-study"),
        "fractional price": (canonical(good | {"micro_rho": 1.5}), "bad-study"),
        "batches of 10 records": (canonical(good | crowded(100)), "bad-study"),
        "norm of no length": (canonical(good | normed(0)), "bad-study"),
        "norm below the floor": (canonical(good | normed(1e-4)), "bad-study"),
        "norm in another unit": (canonical(good | normed(1.0, unit="mm")), "bad-study"),
        "nothing to choose": (canonical(good | {"study": good["study"] | {"choose": "during"}}), "bad-study"),
        "algorithm not chosen": (canonical(good | {"algorithm": "auto", "revision": 1}), "bad-study"),
    }
    queries = {
        "free": (spoiled(lambda m: setattr(m, "micro_rho", 0)), "bad-study"),
        "radius": (spoiled(lambda m: setattr(m.gram, "radius", 2**40)), "plan-overflow"),
        "centre": (
            spoiled(lambda m: setattr(m.gram, "centre", bytes(7) + b"\x80" + bytes(24))),
            "plan-overflow",
        ),
        "half an integer": (spoiled(lambda m: setattr(m.gram, "centre", bytes(12))), "protocol"),
        "digest": (spoiled(lambda m: setattr(m, "plan_digest", bytes(31))), "protocol"),
        "kind": (spoiled(lambda m: m.ClearField("gram")), "version"),
        "batch out of its turn": (spoiled_batch(lambda m: setattr(m, "index", 2)), "plan-overflow"),
        "batch beyond the last": (spoiled_batch(lambda m: setattr(m, "batches", 1)), "plan-overflow"),
        "key of another pass": (spoiled_batch(lambda m: setattr(m, "key", bytes(32))), "plan-overflow"),
        "key of three integers": (spoiled_batch(lambda m: setattr(m, "key", bytes(24))), "plan-overflow"),
    }
    return {
        "plans": {n: {"plan_json": d.decode(), "code": c} for n, (d, c) in plans.items()},
        "queries": {n: {"message": d.hex(), "code": c} for n, (d, c) in queries.items()},
    }


def crowded(batches: int) -> dict[str, Any]:
    """The plan's study by parts, of its 2,000 expected records at two sites."""
    study = replace(a_vector_plan().study, algorithm=Algorithm.PRIVATE_OJA, expected_records=2000)
    algorithm, revision = study.algorithm.value, study.algorithm.properties.revision
    changed = study_to_dict(replace(study, batches=batches))
    return {"algorithm": algorithm, "revision": revision, "study": changed}


VECTORS = {
    "deal": deal_vectors,
    "plan": plan_vector,
    "query": query_vectors,
    "contribution": contribution_vector,
    "release": release_vector,
    "round": round_vectors,
    "revisions": revision_vectors,
    "ledger": ledger_vector,
    "masked": masked_vectors,
    "authorization": lambda: authorization_vectors(a_vector_plan()),
    "bad": bad_vectors,
}


def text(name: str) -> str:
    """The content of a vector's file: a line for each value on its first two levels."""
    return laid_out(VECTORS[name](), levels=2) + "\n"


def laid_out(value: Any, *, levels: int) -> str:
    if not levels or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    lines = [f"{json.dumps(key)}: {laid_out(value[key], levels=levels - 1)}" for key in sorted(value)]
    return "{\n" + ",\n".join(lines) + "\n}"


def main() -> None:
    for name in VECTORS:
        (FOLDER / f"{name}.json").write_text(text(name))


if __name__ == "__main__":
    main()
