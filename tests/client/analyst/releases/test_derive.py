"""`eigenveil derive`: answers from signed releases and from simulations, and whose they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import Moments, simulate
from eigenveil.reporting.document import signed_release, unsigned_release
from tests.client.commands import eigenveil
from tests.support import Capture, Patch, a_study, changed_member

BAD_ARGUMENT, BAD_RELEASE = 2, 13
KEY = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\7")
ROWS = np.random.default_rng(1).normal(size=(5000, 4)) @ np.triu(np.ones((4, 4))) * 8 + 50
RUN = simulate(a_study(4, epsilon=4.0), {"north": ROWS, "south": ROWS[:100]}, seed=1)
SIMULATED = unsigned_release(RUN.document, RUN.result)
PUBLIC = KEY.public_key().public_bytes_raw()
SIGNED = signed_release(RUN.document, RUN.result, sign=KEY.sign, public_key=PUBLIC)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path / "nobody"))
    Path("release.zip").write_bytes(SIGNED)
    Path("simulation.zip").write_bytes(SIMULATED)
    Path("rows.csv").write_text("c1,c0,c2,c3\n50,51,52,53\n10,51,52,53\n")


def answer(capfd: Capture, *words: str) -> tuple[int, Any, str]:
    code = eigenveil(["derive", *words, "--json"])
    out, err = capfd.readouterr()
    return code, json.loads(out), err


@pytest.mark.parametrize(("words", "query"), [
    (["correlation", "--columns", "c0, c2"], lambda m: m.correlation(["c0", "c2"])),
    (["partial", "--level", "0.5"], lambda m: m.partial_correlations(level=0.5)),
    (["regress", "--target", "c1", "--on", "c0,c2"], lambda m: m.regress("c1", ["c0", "c2"])),
    (["pca", "-k", "2", "--scaling", "original"], lambda m: m.pca(2, scaling="original")),
    (["factors", "-k", "1"], lambda m: m.factor_analysis(1)),
    (["angle", "simulation.zip", "-k", "2"], lambda m: m.subspace_angle(m, 2)),
    (["mahalanobis", "rows.csv"], lambda m: m.mahalanobis([[51, 50, 52, 53], [51, 10, 52, 53]])),
], ids=lambda one: one[0] if isinstance(one, list) else "")  # fmt: skip
def test_a_command_answers_as_python(words: list[str], query: Any, capfd: Capture) -> None:
    expected = query(Moments.of(RUN.result)).to_dict()
    for release in ("release.zip", "simulation.zip"):
        code, value, err = answer(capfd, words[0], release, *words[1:])
        assert (code, value) == (0, json.loads(json.dumps(expected)))
        assert ("unknown key" if release == "release.zip" else "no signature") in err
    assert eigenveil(["derive", words[0], "release.zip", *words[1:]]) == 0
    out = capfd.readouterr().out
    assert "\n" in out
    assert all(f"note: {note}" in out for note in expected["notes"])
    assert f"Intervals: {expected['intervals']}." in out


def test_a_column_stated_to_be_two_valued_is_held_against_its_mean(capfd: Capture) -> None:
    """c0 is not: its variance contradicts the one that its mean and bounds give."""
    code, value, _ = answer(capfd, "correlation", "release.zip", "--two-valued", "c0")
    expected = Moments.of(RUN, two_valued=["c0"]).correlation()
    assert (code, value) == (0, json.loads(json.dumps(expected.to_dict())))
    assert any("two-valued c0 contradict" in note for note in value["notes"])


def test_a_release_is_verified_with_the_key(capfd: Capture) -> None:
    code, _, err = answer(capfd, "correlation", "release.zip", "--key", PUBLIC.hex())
    assert (code, err) == (0, "")
    for release, key in (("release.zip", "00" * 32), ("simulation.zip", PUBLIC.hex())):
        assert answer(capfd, "correlation", release, "--key", key)[0] == BAD_RELEASE
    Path("release.zip").write_bytes(changed_member(SIGNED, "release.json", b'"north"', b'"nerth"'))
    assert answer(capfd, "correlation", "release.zip")[0] == BAD_RELEASE


@pytest.mark.parametrize(
    ("text", "message"), [("c0,c1,c2\n1,2,3\n", "no column c3"), ("c0,c1,c2,c3\n1,2,3,4\n1,,3,4\n", "line 3")]
)
def test_rows_that_cannot_be_read_are_refused_by_their_place(text: str, message: str, capfd: Capture) -> None:
    Path("rows.csv").write_text(text)
    code, value, _ = answer(capfd, "mahalanobis", "release.zip", "rows.csv")
    assert code == BAD_ARGUMENT
    assert message in value["message"]
