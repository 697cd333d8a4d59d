"""The hunts see a defect that is planted, and a kind of input of which nothing gets past the first look."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from eigenveil.protocol.plan import Plan, plan_from_json
from tests.fuzz import hunts, parsers
from tests.fuzz.hunt import Tally
from tests.fuzz.hunts import ENOUGH, hunted, verdict


async def test_a_planted_defect_is_found_and_its_input_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(data: bytes) -> Plan:
        data.index(b"atto_delta")  # a ValueError where the key is missing
        return plan_from_json(data)

    monkeypatch.setattr(parsers, "plan_from_json", careless)
    monkeypatch.setattr(hunts, "parser_kinds", lambda folder: {"plan": parsers.parser_kinds(folder)["plan"]})
    tally = await hunted("parsers", tmp_path / "files", seed=3, seconds=0, found=tmp_path / "found")
    lines, wrong = verdict([tally])
    assert {file.name.split("-")[0] for file in (tmp_path / "found").iterdir()} == {"plan"}
    assert all("tests/fuzz/found/plan-" in one for one in wrong)
    assert len(wrong) == len(tally.finds) > 0
    assert len(lines) == 1


def test_a_kind_of_which_nothing_is_accepted_is_wrong_and_a_token_is_never_guessed() -> None:
    refused = Counter({"bad-study": ENOUGH})
    few = Counter({"bad-records": ENOUGH - 1})
    tally = Tally(outcomes={"study": refused, "Enrol": refused, "csv": Counter(accepted=1), "fam": few})
    lines, wrong = verdict([tally])
    assert [one.split() for one in lines] == [
        ["Enrol", "1000", "inputs", "0", "accepted", "1000", "refused", "0", "finds"],
        ["csv", "1", "inputs", "1", "accepted", "0", "refused", "0", "finds"],
        ["fam", "999", "inputs", "0", "accepted", "999", "refused", "0", "finds"],
        ["study", "1000", "inputs", "0", "accepted", "1000", "refused", "0", "finds"],
    ]
    assert wrong == ["study: nothing was accepted"]
