"""A site states what its site.toml says: nothing it was not told to, and nothing of its records [R23]."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil_client.site import config
from eigenveil_client.site.config import statement_of
from eigenveil_client.site.policy_sections import QualityRules
from tests.support import refused

HEAD = 'name = "a"\nrecords = "none.csv"\nidentity = "i"\nstate = "s.db"\n'


def loaded(folder: Path, lines: str) -> config.SiteConfig:
    """A site.toml with these lines; there are no records."""
    path = folder / "site.toml"
    path.write_text(HEAD + lines)
    return config.load(path)


@pytest.mark.parametrize(
    ("lines", "offers"),
    [
        ("", None),
        ("offers = []", None),
        ('columns = ["age", "bmi"]', None),
        ('offers = ["age"]', ("age",)),
        ('offers = ["age"]\ncolumns = ["age", "bmi"]', ("age",)),
        ('offers = ["*"]\ncolumns = ["age", "bmi"]', ("age", "bmi")),
        ('offers = ["*"]', None),
        ('offers = ["age"]\ncolumns = ["*"]', ("age",)),
    ],
)
def test_it_offers_what_it_says_and_no_more_than_it_allows(tmp_path: Path, lines: str, offers: Any) -> None:
    said = statement_of(loaded(tmp_path, lines))
    assert (said.offers, said.asks, said.rules) == (offers, True, asdict(QualityRules()))


def test_it_says_that_a_person_decides(tmp_path: Path) -> None:
    assert not statement_of(loaded(tmp_path, 'approval = "auto"')).asks


def test_what_it_cannot_mean_is_refused_when_it_is_configured(tmp_path: Path) -> None:
    with refused(Code.BAD_CONFIG, "offers: weight not allowed by columns"):
        loaded(tmp_path, 'offers = ["age", "weight"]\ncolumns = ["age"]')
    for names in (["a\\u001b"], ["x" * 201], [f"{i:0>150}" for i in range(1000)]):
        listed = ", ".join(f'"{name}"' for name in names)
        with refused(Code.BAD_CONFIG, "offers: "):
            statement_of(loaded(tmp_path, f"offers = [{listed}]"))
