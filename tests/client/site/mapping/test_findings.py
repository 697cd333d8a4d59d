"""Guesses of `init` and `map` are said, with their evidence; a known word among numbers is
taken as no value, and any other one is a question."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil_client.records.discovery.words import fillers, is_awaited
from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig
from tests.client.site.command_line import Ran, site
from tests.support import Patch

HEADER = "PatNr;Visite am Datum;Alter;Krea [mg/dl];Notiz"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: Patch) -> Path:
    """300 visits of 200 persons, of which 12 have no creatinine yet."""
    monkeypatch.chdir(tmp_path)
    rng, path = random.Random(4), tmp_path / "export.csv"
    lines = [HEADER]
    for number in range(300):
        krea = "Ausstehend" if number % 50 in (1, 2) else f"{rng.gauss(0.95, 0.1):.2f}".replace(".", ",")
        age = "n.b." if number % 60 == 7 else f"{rng.gauss(60, 9):.0f}"
        lines.append(f"P{number % 200};2024-03-{number % 28 + 1:02};{age};{krea};text {number}")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def loaded() -> SiteConfig:
    return site_config.load(Path("site.toml"))


def init(file: Path, *words: object) -> Ran:
    return site(None, "init", file, "--name", "a", *words)


def actions() -> dict[str, str]:
    """Actions that `check` advises, by their checks."""
    return {one["check"]: one.get("action", "") for one in site(None, "check", "--json").json["checks"]}


def test_what_init_took_is_said_and_stands_in_the_file_with_its_evidence(file: Path) -> None:
    said, text = init(file).out, Path("site.toml").read_text()
    for line in (
        "of several rows of a person the last by Visite am Datum counts (rows)",
        "no value (missing): 'Ausstehend', 'n.b.'\n",
        "not mapped (1): Notiz",
    ):
        assert line in said
    (rule,) = (one for one in loaded().column if one.name == "creatinine")
    assert (rule.missing, loaded().records.missing) == (("Ausstehend",), ("n.b.",))
    flat = " ".join(line.removeprefix("# ") for line in text.splitlines())
    assert "the last by Visite am Datum counts (rows), by its name" in flat
    assert flat.count("Taken as no value (missing): usual words for it.") == 1
    assert flat.count("(missing): known words for a pending or missing result.") == 1
    assert "column 'creatinine'" not in actions()


@pytest.mark.parametrize(("suffix", "option"), [(".csv", "--sheet"), (".csv", "--table"), (".db", "--sheet")])
def test_an_option_for_another_kind_of_source_is_refused(file: Path, suffix: str, option: str) -> None:
    ran = init(file.rename(file.with_suffix(suffix)), option, "x")
    assert (ran.code, option in ran.err) == (2, True)
    assert not Path("site.toml").exists()


def test_the_table_that_is_read_is_said(file: Path) -> None:
    path = file.with_suffix(".db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE wards (ward TEXT, beds INTEGER)")
        connection.execute("CREATE TABLE visits (patient_id TEXT, age INTEGER, bmi REAL)")
        rows = [(f"P{i}", 40 + i % 30, 20 + i % 9 + 0.5) for i in range(60)]
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", [*rows, ("Summe", 3300, 1470.0)])
        connection.commit()
    said = init(path).out
    assert "read: table 'visits' of 2, which has most of the columns" in said
    assert "'Summe' in patient_id looks like a row of sums or means" in said
    assert "# Found: table 'visits' of 2" in Path("site.toml").read_text()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        *[(["offen", "Offen"], ["Offen"]), (["pending", "neg"], ["neg", "pending"]), ([], [])],
        *[([one], []) for one in ("<5", "> hoch", "+++", "1+", "x" * 41)],
        (["pending", "folgt", "storniert"], []),
    ],
)  # fmt: skip
def test_at_most_two_words_of_letters_may_mean_no_value(words: list[str], found: list[str]) -> None:
    assert list(fillers(words)) == found


KNOWN = (
    "Haemolytisch",
    "H\u00c4MOLYTISCH",
    "ha\u0308molytisch",
    "folgt.",
    "hemolyzed",
    "annule",
    "kein  Material",
)
VALUES = ("massenhaft", "vorhanden", "nicht vorhanden", "absent", "toxisch", "few", "sieben", "Meier", "neg")


@pytest.mark.parametrize(
    ("word", "known"), [*((one, True) for one in KNOWN), *((one, False) for one in VALUES)]
)
def test_words_are_known_in_any_case_and_spelling_of_umlauts(word: str, known: bool) -> None:
    assert is_awaited(word) is known


def put(file: Path, *words: str) -> None:
    """Put words into the cells without creatinine, in turn."""
    parts = file.read_text(encoding="utf-8").split("Ausstehend")
    cells = [words[place % len(words)] for place in range(len(parts) - 1)]
    file.write_text(parts[0] + "".join(map("".join, zip(cells, parts[1:], strict=True))), encoding="utf-8")


@pytest.mark.parametrize("words", [("neg",), ("massenhaft", "Meier"), ("Ausstehend", "1,0", "0,9")])
@pytest.mark.parametrize("accept", [True, False])
def test_a_word_that_may_be_a_value_or_of_one_person_is_not_taken(
    file: Path, words: tuple[str, ...], accept: bool
) -> None:
    put(file, *words)
    shown = init(file, *(["--accept"] if accept else [])).out
    text = " ".join(line.removeprefix("# ") for line in Path("site.toml").read_text().splitlines())
    assert not any(word in shown + text for word in words if word.isalpha())
    assert not any(one.missing for one in loaded().column)
    assert ("eigenveil-site check names those that remain" in text) is (len(words) < 3)
    action = actions()["column 'creatinine'"]
    assert all(f"--missing={word}" in action for word in words if word.isalpha())


@pytest.mark.parametrize(("answer", "missing"), [("y", ("n.b.", "offen")), ("", ("n.b.",))])
def test_a_person_says_what_another_word_means(file: Path, answer: str, missing: tuple[str, ...]) -> None:
    put(file, "offen", "folgt")
    ran = site(None, "init", file, "--name", "a", answer=f"{answer}\nn\nn\n")
    assert "Krea [mg/dl]: no number, of the rows looked at: 'offen' in 6 cells. (Here" in ran.out
    assert "'folgt' in 6 cells" in ran.out
    assert "These counts are confidential" in ran.out
    (rule,) = (one for one in loaded().column if one.name == "creatinine")
    assert (loaded().records.missing, rule.missing) == (missing, ("folgt",))


def test_a_word_with_another_meaning_is_not_taken_and_init_goes_on(file: Path) -> None:
    put(file, "m")
    text = file.read_text(encoding="utf-8").replace("Notiz", "Geschlecht")
    file.write_text(re.sub(r"text \d*(\d)", lambda one: "mw"[int(one[1]) % 2], text), encoding="utf-8")
    ran = site(None, "init", file, "--name", "a", answer="y\nn\nn\n")
    assert (ran.code, "'m' means missing" in ran.err, loaded().records.missing) == (0, True, ("n.b.",)), ran


def test_an_empty_word_is_refused_and_a_plausible_number_warned_of(file: Path) -> None:
    init(file)
    text = Path("site.toml").read_text()
    assert (site(None, "map", "--missing", " ").code, Path("site.toml").read_text()) == (2, text)
    assert site(None, "map", "--missing", "-5").err == ""
    err = site(None, "map", "--missing", "60").err
    assert "60 is a plausible value of age: " in err
    assert ": 0 more persons" not in err


@pytest.mark.parametrize("short", [True, False])
def test_check_names_the_line_and_map_writes_it(file: Path, short: bool) -> None:
    init(file)
    path = Path("site.toml")
    text = path.read_text().replace('missing = ["Ausstehend"]', 'missing = ["-9"]')
    if short:
        keys = [line for line in text.partition("[records]\n")[2].partition("\n\n")[0].splitlines() if line]
        rest = text.replace("\n".join(["[records]", *keys]), "")
        text = f"records = {{{', '.join(keys)}}}  # ours\n{rest}"
    path.write_text(text)
    action = actions()["column 'creatinine'"]
    assert 'missing = ["-9", "Ausstehend"] in [column."creatinine"]' in action
    assert action.endswith("eigenveil-site map --missing=Ausstehend --config site.toml")
    assert site(None, "map", "--missing", "Ausstehend", "--missing", "n.b.").code == 0
    assert loaded().records.missing == ("n.b.", "Ausstehend")
    assert ("# ours" in path.read_text()) is short
    assert "column 'creatinine'" not in actions()


def test_a_contradicting_unit_and_a_replaced_mapping_are_warned_of(file: Path) -> None:
    init(file)
    ran = site(None, "map", "--set", "Krea [mg/dl]=creatinine:umol/L", "--json")
    assert "states the unit mg/dL, and is set in umol/L" in ran.err
    (row,) = (one for one in ran.json["mapped"] if one["column"] == "creatinine")
    assert (row["readable"], row["plausible"]) == (1.0, 0.0)
    ran = site(None, "map", "--set", "Krea [mg/dl]=age:a", "--json")
    assert "age was 'Alter', which is mapped to nothing now" in ran.err
    assert "'Krea [mg/dl]' was creatinine, which no column of the records is now" in ran.err
    assert site(None, "map", "--set", "Alter=age").err.count("warning") == 1
    assert site(None, "map", "--set", "Alter=age").err == ""
