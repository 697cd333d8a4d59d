"""Sent answers can be shown, computed again and verified; a missing byte, row or end is found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eigenveil.accounting.ledger import GENESIS
from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil.queries import Gram
from eigenveil.study.grid import S
from eigenveil_client.site.commands.evidence import sbom
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.command_line import site, written
from tests.client.site.support import Stage, a_plan, work

PLAN = a_plan()
QUERIES = rehearse(PLAN)


@pytest.fixture
def answered(stage: Stage) -> Path:
    store = stage.store()
    worker = stage.worker(store)
    for query in (*QUERIES, QUERIES[-1]):
        assert isinstance(worker.work(work(query, stage.signed(PLAN))), Contribution)
    store.close()
    return written(stage)


def test_a_round_is_shown_and_its_numbers_are_computed_again(answered: Path, stage: Stage) -> None:
    shown = site(answered, "egress", "show", "--round", "3", "--study", "a-study")
    assert QUERIES[2].digest not in shown.out
    assert f"{8 * QUERIES[2].query.length} bytes of numbers" in shown.out
    last = len(QUERIES) - 1
    assert site(answered, "egress", "show", "--round", last + 1, "--json").json["messages"] == 2
    decoded = site(answered, "egress", "show", "--round", last + 1, "--numbers", "--json").json
    assert decoded["query"] == QUERIES[-1].digest
    names = [number["is"] for number in decoded["numbers"]]
    assert names[:4] == ["a squared", "b squared", "c squared", "a x b"]
    store = stage.store()
    values = np.array([number["value"] for number in decoded["numbers"]], dtype="<i8").tobytes()
    assert (
        store.keyed_digests.of_answer(QUERIES[last], values)
        == store.egress.rows()[-1].contribution
        == decoded["digest"]
        != store.keyed_digests.of_answer(replace(QUERIES[last], plan_digest="0" * 64), values)
    ), "of another study the same numbers have another digest"
    store.close()
    assert "usable records" in site(answered, "egress", "show", "--round", 1, "--numbers").out
    several = site(answered, "egress", "show", "--numbers", "--json")
    assert (several.code, several.json["error"]) == (8, "not-found")


def change(stage: Stage, *statements: str) -> None:
    store = SiteStore(stage.config.state, stage.config.policy.budget, RollbackGuard(stage.config.identity))
    with store.database.transaction() as connection:
        for table in ("egress", "ledger"):
            for event in ("update", "delete"):
                connection.execute(f"DROP TRIGGER {table}_is_append_only_{event}")
        for statement in statements:
            connection.execute(statement)
    store.close()


SWAP = [f'UPDATE TABLE SET "index" = {new} WHERE "index" = {old}' for old, new in ((1, 99), (2, 1), (99, 2))]


@pytest.mark.parametrize(("table", "statements"), [
    ("egress", ["UPDATE egress SET bytes = bytes + 1 WHERE round = 1"]),
    ("egress", ["UPDATE egress SET meaning = 'nothing' WHERE round = 1"]),
    ("egress", ['DELETE FROM egress WHERE "index" = 1']),
    ("egress", [line.replace("TABLE", "egress") for line in SWAP]),
    ("egress", ['DELETE FROM egress WHERE "index" >= 2']),
    ("egress", ["DELETE FROM queries WHERE digest = (SELECT query FROM egress WHERE round = 1)"]),
    ("egress", ["UPDATE queries SET message = substr(message, 1, 30)"]),
    ("ledger", ["UPDATE ledger SET micro_rho = micro_rho - 1 WHERE round = 1"]),
    ("ledger", ['DELETE FROM ledger WHERE "index" = 1']),
    ("ledger", [line.replace("TABLE", "ledger") for line in SWAP]),
])  # fmt: skip
def test_verify_finds_any_change(answered: Path, stage: Stage, table: str, statements: list[str]) -> None:
    assert site(answered, table, "verify").code == 0
    change(stage, *statements)
    ran = site(answered, table, "verify", "--json")
    assert (ran.code, ran.json["error"]) == (70, "storage")


def test_noted_head_finds_an_end_cut_off_both_chains(answered: Path, stage: Stage) -> None:
    heads = {name: site(answered, name, "verify", "--json").json for name in ("egress", "ledger")}
    for name, result in heads.items():
        remaining = site(answered, name, "verify", "--head", result["head"], "--json").json
        assert (remaining["verified"], remaining["rows_since"]) == (True, 0)
        assert (
            site(answered, name, "verify", "--head", GENESIS, "--json").json["rows_since"] == result["rows"]
        )
    last = QUERIES[-1].round
    change(stage, f"DELETE FROM egress WHERE round = {last}", f"DELETE FROM ledger WHERE round = {last}")
    for name, result in heads.items():
        assert site(answered, name, "verify").code == 0, "the chain itself is whole"
        ran = site(answered, name, "verify", "--head", result["head"], "--json")
        assert (ran.code, ran.json["error"]) == (70, "storage")


def test_sbom_names_what_is_installed() -> None:
    document = sbom()
    names = {component["name"] for component in document["components"]}
    assert {"numpy", "cryptography", "grpcio", "python-flint", "apsw", "pyarrow"} <= names
    assert document["metadata"]["component"]["name"] == "eigenveil"


@pytest.mark.slow  # its validator builds 38 grammars when it is imported
def test_sbom_is_valid_cyclonedx() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(sbom())) is None


@pytest.mark.parametrize(
    "words", [["egress", "show"], ["ledger", "show"], ["studies"], ["explain", "a-study"]], ids=" ".join
)
def test_no_cell_of_a_table_is_cut(answered: Path, words: list[str]) -> None:
    piped = site(answered, *words, width=80).out
    for width in (120, 80, 60):
        folded = site(answered, *words, width=width, terminal=True).out
        assert max(map(len, folded.splitlines())) <= width
        assert signs(folded) == signs(piped)


def signs(shown: str) -> Counter[str]:
    return Counter(shown.replace("─", "").replace(" ", "").replace("\n", ""))


def test_shown_numbers_state_their_unit(answered: Path) -> None:
    query, last = QUERIES[-1].query, QUERIES[-1].round
    assert isinstance(query, Gram)
    result = site(answered, "egress", "show", "--round", last + 1, "--numbers", "--json").json
    step = 5.0 / S
    assert result["grid"]["radius"] == query.radius
    assert [column["centre"] for column in result["grid"]["columns"]] == pytest.approx(
        5.0 + step * query.centre
    )
    for number in result["numbers"]:
        assert number["in_units"] == pytest.approx(number["value"] * step**2)
        assert number["unit"] == "mmol/L x mmol/L"
    text = " ".join(site(answered, "egress", "show", "--round", last + 1, "--numbers").out.split())
    for words in (
        "a value of 1 is one grid step of each of the two columns, multiplied",
        "grid: a value is first moved into its column's public bounds",
        f"radius: {query.radius} grid steps",
    ):
        assert words in text
    assert "a value of 1 is one record" in site(answered, "egress", "show", "--round", 1, "--numbers").out
