"""`init` that looks, and `map`: the certain is in force, the rest a comment or a question; no value of the
records is in the file."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig, site_dictionary, statement_of
from eigenveil_client.site.mapping.first_look import look_first, records_config
from eigenveil_client.site.mapping.site_file import FirstFile
from eigenveil_client.site.state.store_access import has_state, open_site_store
from tests.client.site.command_line import Ran, site
from tests.support import Patch

LIKELY = (500, 1000)  # proposed for 200 persons, with nearly any noise
OWN = "\n# our own words\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: Patch) -> Path:
    """200 persons; CRP in one of two units, which nobody can see."""
    monkeypatch.chdir(tmp_path)
    rng, path = random.Random(4), tmp_path / "export.csv"
    lines = ["PatNr;Alter;Geschlecht;Krea [µmol/l];CRP;Zimmer"]
    for number in range(200):
        cells = [
            f"P{number}", f"{rng.gauss(60, 9):.0f}", rng.choice("wm"), f"{rng.gauss(84, 9):.0f}",
            f"{abs(rng.gauss(4, 1)):.1f}".replace(".", ","), f"{rng.randint(1, 30)}",
        ]  # fmt: skip
        lines.append(";".join(cells))
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def loaded() -> SiteConfig:
    return site_config.load(Path("site.toml"))


def init(file: Path | str, *words: object, answer: str = "") -> Ran:
    return site(None, "init", file, "--name", "a", *words, answer=answer)


def columns() -> set[str]:
    return {name for rule in loaded().column for name in rule.columns}


def charged() -> int:
    with open_site_store(loaded()) as store:
        return store.ledger.ledger.spent.micro_rho


def test_without_a_terminal_the_uncertain_is_a_comment_and_nothing_is_charged(file: Path) -> None:
    assert init(file).code == 0
    assert columns() == {"age", "sex=female", "sex=male", "creatinine"}
    config, text = loaded(), Path("site.toml").read_text()
    assert "# Not sure: 'CRP' is called like crp" in text
    assert (config.records.person, config.policy.person_column) == ("PatNr", "patient")
    assert (config.policy.columns, config.offers) == (("age", "sex=female", "sex=male", "creatinine"), ())
    assert (config.policy.minimum_records, has_state(config)) == (20, False)
    assert "P17" not in text


def test_no_value_of_the_records_is_in_the_file(file: Path) -> None:
    """Neither quantiles nor counts: but for settings, it is the same for the half of the records."""
    init(file, "--accept")
    texts = [Path("site.toml").read_text()]
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:120]))
    Path("site.toml").unlink()
    init(file, "--accept")
    texts.append(Path("site.toml").read_text())
    assert texts[0] == texts[1]


def test_accepted_promises_are_charged_once_and_kept(file: Path) -> None:
    assert init(file, "--accept").code == 0
    policy, spent = loaded().policy, charged()
    assert (policy.maximum_records in LIKELY, spent > 0) == (True, True)
    Path("site.toml").unlink()
    assert init(file, "--accept").code == 0
    assert (loaded().policy, charged()) == (policy, spent)


def stated(file: Path, *words: object) -> dict[str, Any]:
    """The statement of a site after `init`."""
    Path("site.toml").unlink(missing_ok=True)
    assert init(file, *words).code == 0
    return statement_of(loaded()).to_dict()


@pytest.mark.parametrize("words", [("--accept",), ()])
def test_a_statement_is_equal_for_neighbouring_files_and_other_headers(file: Path, words: tuple[str]) -> None:
    """Nothing of the records is stated without a person, neither names nor what they decide."""
    statements, allowed = [stated(file, *words)], {loaded().policy.columns}
    lines = file.read_text(encoding="utf-8").splitlines()
    few = [line if number < 10 else ";".join([*line.split(";")[:3], "", "", "1"])
           for number, line in enumerate(lines)]  # fmt: skip
    tipped = [*few[:9], few[9].replace(few[9].split(";")[3], ""), *few[10:]]  # a cell of one person
    named = [lines[0].replace("Zimmer", "Mueller_Hans").replace("Alter", "*"), *lines[1:]]
    for changed in ([*few, lines[10]], [*few, tipped[9]], named):
        file.write_text("\n".join([*changed, ""]), encoding="utf-8")
        statements.append(stated(file, *words))
        allowed.add(loaded().policy.columns)
    assert all(one == statements[0] for one in statements)
    assert statements[0]["columns"] is None
    assert len(allowed) > 1  # the mapping changed


def test_columns_are_stated_once_a_person_has_seen_them(file: Path) -> None:
    for answer, offers in (("n", ()), ("y", ("age", "sex=female", "sex=male", "creatinine"))):
        Path("site.toml").unlink(missing_ok=True)
        assert "age, sex=female, sex=male, creatinine" in init(file, answer=f"\nn\n{answer}\n").out
        assert loaded().offers == offers
    Path("site.toml").unlink()
    init(file)
    assert site(None, "map", "--offer", "--json").json["offers"] == [*loaded().offers] == [*offers]
    assert site(None, "map", "--remove", "sex").code == 0
    assert loaded().offers == ("age", "creatinine")
    text = Path("site.toml")  # one of 1.0 has no such key, and may allow what no dictionary has
    rest = [line for line in text.read_text().splitlines() if not line.startswith(("offers", "columns"))]
    text.write_text("\n".join([*rest, "[column.Zimmer]", 'rows = "last"', 'by = "Alter"', ""]))
    assert site(None, "map", "--offer").code == 0
    assert loaded().offers == ("age", "creatinine")


@pytest.mark.parametrize(("many", "others"), [(1, ("Zimmer",)), (1001, ())])
def test_own_columns_are_allowed_only_without_a_federations_dictionary(
    file: Path, many: int, others: tuple[str, ...]
) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    wide = [f"{lines[0]};*" + "".join(f";q{i}" for i in range(1, many))]
    wide += [f"{line};{i % 7}" + f";{i % 5}" * (many - 1) for i, line in enumerate(lines[1:])]
    file.write_text("\n".join([*wide, ""]), encoding="utf-8")
    look = look_first(records_config(str(file)), site_dictionary(None))
    first = FirstFile(stated={}, look=look, accepted=look.certain)
    assert first.columns == first.mapped
    assert replace(first, others=True).columns == first.mapped + others
    nothing = replace(first, accepted=(), look=replace(look, proposals=()))
    assert nothing.columns == ()


def test_a_site_that_maps_nothing_allows_nothing(file: Path) -> None:
    file.write_text("PatNr;Zeta\n" + "".join(f"P{i};{i % 9}\n" for i in range(60)))
    assert "declines every study" in init(file, "--accept").out
    assert loaded().policy.columns == ()
    checks = site(None, "check", "--json").json["checks"]
    assert [one["check"] for one in checks if one["level"] == "fail"] == ["identity"]


def test_answers_at_a_terminal_are_taken(file: Path) -> None:
    ran = init(file, answer="mg/l\ny\nn\nn\n")
    assert (ran.code, "Here, and nowhere else" in ran.out) == (0, True), ran.out
    assert "crp" in columns()
    assert loaded().policy.minimum_records == 20  # not stated
    assert charged() > 0  # but drawn, as it was shown


@pytest.mark.parametrize(("unit", "set_"), [("kg", False), ("", False), ("mg/dl", True)])
def test_a_unit_that_does_not_fit_leaves_the_column_out(file: Path, unit: str, set_: bool) -> None:
    init(file, answer=f"{unit}\nn\nn\n")
    assert ("crp" in columns()) is set_
    assert not has_state(loaded())


def test_map_sets_and_removes_and_leaves_other_text(file: Path) -> None:
    init(file)
    text = Path("site.toml")
    text.write_text(text.read_text().replace("\n[records]", f"{OWN}[records]"))
    shown = site(None, "map")
    assert "open: 'CRP'" in shown.out
    assert "umol/L" in shown.out
    assert site(None, "map", "--set", "CRP=crp:mg/dl", "--remove", "sex").code == 0
    assert columns() == {"age", "creatinine", "crp"}
    (rule,) = [one for one in loaded().column if one.name == "crp"]
    assert (rule.header, rule.linear) == ("CRP", (10, 0))
    assert OWN in text.read_text()
    assert "Not sure" not in text.read_text()
    assert loaded().policy.columns == ("age", "creatinine", "crp")
    before = text.read_text()
    for words in (["--set", "CRP=sodium"], ["--set", "CPR=crp:mg/l"], ["--set", "x"], ["--remove", "sex"]):
        assert site(None, "map", *words).code == 2
        assert text.read_text() == before


def test_what_is_found_is_printed_as_json(file: Path) -> None:
    made = init(file, "--json").json
    assert {one["column"] for one in made["mapped"]} == {"age", "sex", "creatinine"}
    assert [one["header"] for one in made["open"]] == ["CRP"]
    assert made["promises"] is None
    view = site(None, "map", "--json").json
    assert {one["column"]: one["readable"] for one in view["mapped"]} == dict.fromkeys(columns(), 1.0)
    assert [one["header"] for one in view["proposed"]] == ["CRP"]
    assert view["unmapped"] == ["Zimmer"]


def test_a_column_has_one_meaning(file: Path) -> None:
    init(file)
    assert site(None, "map", "--set", "Krea [µmol/l]=urine_creatinine:umol/L").code == 0
    assert "creatinine" not in columns()
    assert "urine_creatinine" in columns()


def test_map_asks_at_a_terminal(file: Path) -> None:
    init(file)
    ran = site(None, "map", answer="CRP=crp\nCRP=crp:mg/l\n-age\n\n")
    assert "the unit of 'CRP' is not clear" in ran.out
    assert columns() == {"sex=female", "sex=male", "creatinine", "crp"}


def test_of_several_tables_one_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "two.db"
    with closing(sqlite3.connect(path)) as connection:
        for name in ("north", "south"):
            connection.execute(f"CREATE TABLE {name} (pid TEXT, age INTEGER, bmi REAL)")
            rows = [(f"P{i}", 40 + i % 30, 20 + i % 9 + 0.5) for i in range(60)]
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        connection.commit()
    assert init(path, "--person", "pid").code == 4
    assert not Path("site.toml").exists()
    assert init(path, "--table", "south", "--person", "pid").code == 0
    assert (loaded().records.table, columns()) == ("south", {"age", "bmi"})


OPEN = ["id", "FallNr", "pid", "Name_Pat"]


@pytest.mark.parametrize("header", OPEN)
@pytest.mark.parametrize("accept", [True, False])
def test_an_unclear_unit_of_privacy_is_an_error_before_anything(
    file: Path, header: str, accept: bool
) -> None:
    file.write_text(file.read_text().replace("PatNr", header))
    ran = init(file, *(["--accept"] if accept else []))
    assert ran.code == 2
    assert "--person HEADER" in ran.err
    assert (header in ran.err) == (header != "Name_Pat")
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    made = init(file, "--person", header, "--json", *(["--accept"] if accept else []))
    assert (made.json["person"], loaded().records.person) == (header, header)


@pytest.mark.parametrize(("answer", "person"), [("none", ""), ("FallNr", "FallNr"), ("no\nAlter", "Alter")])
def test_a_person_says_whose_a_row_is(file: Path, answer: str, person: str) -> None:
    file.write_text(file.read_text().replace("PatNr", "FallNr"))
    ran = init(file, answer=f"{answer}\n\nn\nn\n")
    shown = f"{person} names the person" if person else "every row counts as one person"
    assert shown in ran.out, ran.out
    assert (loaded().records.person, loaded().policy.person_column) == (person, person and "patient")
    checked = {one["check"]: one for one in site(None, "check", "--json").json["checks"]}["persons"]
    assert checked["level"] == ("ok" if person else "warn")


def test_a_stated_person_column_wins(file: Path) -> None:
    assert init(file, "--person", "Zimmer").code == 0
    assert loaded().records.person == "Zimmer"
    Path("site.toml").unlink()
    assert init(file, "--person", "Patient").code == 3
    assert init(file, "--person", "none", "--person-column", "patient").code == 2
    assert site(None, "init", "--name", "a", "--records", file, "--person", "PatNr").code == 2
    assert not Path("site.toml").exists()


def test_sizes_are_continued_after_a_failure(file: Path) -> None:
    """The number of persons is not charged by a failure, and drawn once."""
    init(file)
    text, records = Path("site.toml").read_text(), file.read_text()
    file.write_text(records.replace("P", "Q").replace("QatNr", "X"))
    assert site(None, "sizes", "--accept").code == 3
    assert (charged(), Path("site.toml").read_text()) == (0, text)
    file.write_text(records)
    assert site(None, "sizes").code == 2
    stated = [site(None, "sizes", *words).json["sizes"] for words in 2 * [["--accept", "--json"]]]
    assert stated[0] == stated[1]
    assert (loaded().policy.maximum_records in LIKELY, loaded().engine.memory_mib) == (True, 64)
    spent = charged()
    assert spent > 0
    assert site(None, "sizes", answer="y\nn\n").code == 0
    assert charged() == spent


def test_sizes_count_no_rows_that_nobody_called_persons(file: Path) -> None:
    init(file, "--person", "none")
    assert site(None, "sizes", "--accept").code == 4
    assert site(None, "sizes", answer="n\n").code == 4
    assert not has_state(loaded())
    assert site(None, "sizes", "--accept", "--person", "none").code == 0
    assert charged() > 0


def test_lost_lines_and_odd_headers_are_shown(file: Path) -> None:
    lines = file.read_text().replace("Zimmer", "Zim\x1b[31mmer")
    file.write_text(f"{lines}P1;2\n")
    ran = init(file)
    assert "1 lines lack cells" in ran.out
    assert "\x1b" not in ran.out + site(None, "map").out


def test_a_select_over_a_file_and_a_password_in_an_address(file: Path) -> None:
    assert init(file, "--sheet", "x", "--records", file).code == 2
    assert site(None, "init", "--name", "a", "--records", file, "--sql", "SELECT 1").code == 2
    assert init("postgresql://kim:secret@host/x").code == 4
    assert not Path("site.toml").exists()
    assert init(file, "--sql", "SELECT * FROM records").code == 0
    assert loaded().records.is_view


def test_a_file_that_cannot_be_read_leaves_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    for name in ("x.parquet", "gone.csv"):
        assert init(tmp_path / name).code == 3
    assert not Path("site.toml").exists()


def test_a_size_that_the_command_states_stays(file: Path) -> None:
    assert init(file, "--accept", "--minimum-records", 7).code == 0
    policy = loaded().policy
    assert (policy.minimum_records, policy.maximum_records in LIKELY) == (7, True)
    Path("site.toml").unlink()
    stated = ("--minimum-records", 7, "--maximum-records", 900)
    Path("state.db").unlink()
    Path("identity/ledger.json").unlink()
    Path("egress.key").unlink()
    assert init(file, "--accept", *stated).code == 0
    assert (loaded().policy.maximum_records, has_state(loaded())) == (900, False)


def test_an_edited_size_stays_or_is_named_if_it_contradicts_the_number(file: Path) -> None:
    init(file)
    text = Path("site.toml")
    first = text.read_text()
    text.write_text(f"{first}[engine]\nmemory_mib = 64\n")  # by hand, before any count
    assert (init(file, "--accept").code, charged() > 0) == (0, True)
    text.write_text(first.replace("minimum_records = 20", "minimum_records = 5000"))
    wanted = "minimum_records = 5000 of site.toml contradicts maximum_records = "
    assert (init(file, "--accept").code, wanted in init(file, "--accept").err) == (4, True)
    text.write_text(f"{first}[engine]\nmemory_mib = 64\n")  # sizes are stated, and edited to the defaults
    edited = text.read_text()
    assert (init(file, "--accept").code, text.read_text()) == (0, edited)


def test_going_on_reports_the_mapping_of_the_file(file: Path) -> None:
    for _ in range(2):
        assert "open questions (1), as comments in the file: CRP" in init(file).out
    setting = ("--set", "Krea [µmol/l]=creatinine:mg/dl")
    site(None, "map", *setting, "--set", "CRP=crp:mg/l", "--remove", "sex")
    ran, made = init(file), init(file, "--json").json
    assert "open questions (1), see eigenveil-site map --config site.toml: Geschlecht" in ran.out
    found = {one["column"]: (one["unit"], one["factor"], one["reason"]) for one in made["mapped"]}
    stated = "as site.toml states"
    assert found["creatinine"] == ("mg/dL", 1.0, stated)
    assert (found["age"][2] != stated, set(found)) == (True, {"age", "creatinine", "crp"})


def test_init_goes_on_where_it_was_interrupted(file: Path) -> None:
    """Answers, edits and the number of persons stay; the end of the typed text is an interruption."""
    text = Path("site.toml")
    ran = init(file, answer="mg/l\n")
    assert (ran.code, "crp" in columns(), has_state(loaded())) == (130, True, False)
    assert f"to go on: eigenveil-site init {file}\n" in ran.err
    text.write_text(text.read_text() + OWN)
    ran = site(None, "init", file, answer="y\n")
    spent, shown = charged(), re.findall("minimum_records = .*", ran.out)
    assert (ran.code, spent > 0, "is not charged again" in ran.err) == (130, True, True)
    edited = text.read_text()
    ran = site(None, "init", file, "--accept", answer="x\n")  # asks nothing
    assert (ran.code, shown, charged()) == (0, re.findall("minimum_records = .*", ran.out), spent)
    text.write_text(
        edited.replace("\ncolumns =", "\nmax_delta = 1e-7\ncolumns =").replace("max_delta = 1e-05", "")
    )
    ran = site(None, "init", file, answer="y\ny\nn\n")
    assert (ran.code, shown[0] in ran.out, "at no further cost" in ran.out) == (0, True, True)
    assert (charged(), loaded().policy.max_delta, OWN in text.read_text()) == (spent, 1e-7, True)
    assert columns() == {"age", "sex=female", "sex=male", "creatinine", "crp"}


@pytest.mark.parametrize(("words", "message"), [
    ((), "choose another folder"), (("other.csv",), "other records: "), (("--name", "b"), "value of name"),
    (("--person", "Zimmer"), "value of person"), (("--minimum-records", "7"), "value of minimum_records"),
    (("--analyst", "ada"), "value of analysts"), (("--sql", "SELECT 1"), "other records: "),
])  # fmt: skip
def test_init_does_not_go_on_for_another_site(file: Path, words: tuple[str, ...], message: str) -> None:
    init(file)
    text = Path("site.toml").read_text()
    source = [file] if words[:1] not in ((), ("other.csv",)) else []
    ran = site(None, "init", *source, *words)
    assert (ran.code, message in ran.err, Path("site.toml").read_text()) == (9, True, text), ran.err
    Path("site.toml").write_text(text.removeprefix(site_config.HEADING))
    ran = site(None, "init", file)
    assert (ran.code, "eigenveil-site map" in ran.err) == (9, True)
