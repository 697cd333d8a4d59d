"""Every attack on the sets of a masked study, on one daemon in this process; and that one that succeeds is
seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt
from eigenveil_client.site.daemon.answers import MaskedReplies
from eigenveil_client.site.daemon.round_checks import PeerSecrets
from tests.torture.masked import sets
from tests.torture.masked.attacks import ATTACKS
from tests.torture.masked.scene import acquainted
from tests.torture.masked.sets import Assault, Outcome, verdict
from tests.torture.peers.test_malicious import here


def outcomes(folder: Path, *names: str) -> list[Outcome]:
    log = folder / "log"
    log.touch()
    attacks = [one for one in ATTACKS if one.name in names or not names]
    return asyncio.run(Assault(peers=acquainted(folder), log=log).all(attacks, here))


@pytest.mark.slow
def test_a_site_answers_no_set_but_the_one_that_it_was_told_first(tmp_path: Path) -> None:
    found = outcomes(tmp_path)
    assert {one.name: one.faults for one in found if one.faults} == {}
    assert sum(one.answered for one in found) > len(ATTACKS)
    assert verdict(found).passed


def believed(signed: SignedAttempt, release_key: bytes) -> Attempt:
    return Attempt.read(signed.signed_json)


def quiet(noise: OsNoise, spec: NoiseSpec) -> IntArray:
    return np.zeros(spec.length, dtype=np.int64)


@pytest.mark.parametrize(
    ("name", "owner", "check", "instead"),
    [
        ("below the quorum", PeerSecrets, "_check_set", lambda *_: None),
        ("one attempt more than the plan has", MaskedReplies, "_previous_answer", lambda *_: None),
        ("an attempt at another round", Attempt, "is_of", lambda *_: True),
        ("signed by another federation", SignedAttempt, "check", believed),
    ],
)
def test_a_site_without_that_check_is_found(
    name: str, owner: object, check: str, instead: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, check, instead)
    monkeypatch.setattr(sets, "PATIENCE", 2.0)
    (found,) = outcomes(tmp_path, name)
    assert found.faults
    assert not verdict([found]).passed


def test_a_site_that_leaves_its_share_of_the_noise_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsNoise, "draw", quiet)
    line = verdict(
        outcomes(tmp_path, "all attempts, each with another set", "a coordinator from an old copy")
    )
    assert "have 0.00 of the variance" in line.detail
    assert not line.passed
