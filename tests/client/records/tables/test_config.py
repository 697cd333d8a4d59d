"""[records] in site.toml: what contradicts itself is refused, and what a password is never repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.tables.source import Dialect, RecordsConfig
from eigenveil_client.site import config
from eigenveil_common.config import keys

EXAMPLE = Path(__file__).parents[4] / "deploy" / "config" / "site.example.toml"
SECRET = "hunter2"
SEPARATORS = ('""', '";;"', "'\"'", '"\\n"', '"§"')
SITE = 'name = "a"\nidentity = "i"\nstate = "s.db"\n'


def loaded(folder: Path, text: str) -> RecordsConfig:
    path = folder / "site.toml"
    path.write_text(SITE + text)
    return config.load(path).records


def test_a_text_is_a_table_that_names_its_source_alone(tmp_path: Path) -> None:
    short = loaded(tmp_path, 'records = "r.csv"\n')
    assert (
        short == loaded(tmp_path, '[records]\nsource = "r.csv"\n') == RecordsConfig(source=tmp_path / "r.csv")
    )
    text = '[records]\nsource = "r.csv"\nseparator = ";"\nencoding = "latin-1"\nsql_file = "one.sql"\n'
    assert loaded(tmp_path, text) == RecordsConfig(
        source=tmp_path / "r.csv",
        sql_file=tmp_path / "one.sql",
        dialect=Dialect(separator=";", encoding="latin-1"),
    )


@pytest.mark.parametrize(("lines", "message"), [
    ("", "either source or database"),
    ('source = "r.csv"\ndatabase = "service=omop"', "either source or database"),
    ('source = "r.csv"\nsql = "SELECT 1"\nsql_file = "q.sql"', "either sql or sql_file"),
    ('database = "service=omop"', "need sql or sql_file"),
    ('database = "service=omop"\nsql = "SELECT 1"\ndecimal = ","', "Remove them for a database"),
    ('database = "omop"\nsql = "SELECT 1"', "database is like"),
    ('source = "r.csv"\ntable = "t"', "table is for SQLite files"),
    ('source = "r.db"\nheader_line = 2', "header_line is for text files and workbooks"),
    ('source = "r.parquet"\nheader_line = 2', "header_line is for text files and workbooks"),
    ('source = "r.parquet"\nunits_below_header = true', "units_below_header is for text files"),
    ('source = "r.csv"\nheader_line = 0', "header_line must lie between 1 and 1000"),
    ('source = "r.csv"\nmissing = ["-9", "-9.0"]', "missing: a code is repeated"),
    ('source = "r.csv"\nperson = "PatNr"', "person needs person_column"),
    ('source = "r.db"\ntable = "t"\nsql = "SELECT 1"', "either table or sql"),
    ('source = "r.csv"\none_row_per = "person"', "one_row_per needs a SELECT"),
    ('source = "r.csv"\ntimeout_seconds = 0', "timeout_seconds must be"),
    *((f'source = "r.csv"\nseparator = {one}', "separator must be one") for one in SEPARATORS),
    ('source = "r.csv"\ndecimal = ";"', "decimal must be"),
    ('source = "r.csv"\nthousands = "x"', "thousands must be one of"),
    ('source = "r.csv"\ndecimal = ","\nthousands = ","', "different marks"),
    ('source = "r.csv"\nencoding = "latin-77"', "encoding must be"),
    ('source = "r.csv"\nencoding = "base64"', "encoding must be"),
    ('source = "r.csv"\nseperator = ";"', r"\[records\]: unknown key seperator"),
    ("source = 3", "source = 3 must be"),
])  # fmt: skip
def test_what_contradicts_itself_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        loaded(tmp_path, f"[records]\n{lines}\n")
    assert caught.value.code is Code.BAD_CONFIG
    with pytest.raises(RequestError, match="records must be a text or a table"):
        loaded(tmp_path, "records = 3\n")


@pytest.mark.parametrize("address", [
    f"postgresql://reader:{SECRET}@db/omop",
    f"postgresql://reader:a/{SECRET}@db/omop",
    f"postgresql://reader@db/omop?password={SECRET}",
    f"host=db password={SECRET}",
    f"host=db PASSWORD = '{SECRET}'",
    f"postgres://db/omop?sslpassword={SECRET}",
])  # fmt: skip
def test_a_password_is_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    with pytest.raises(RequestError, match=r"holds a password\. Put it into a pgpass file") as caught:
        loaded(tmp_path, f'[records]\ndatabase = "{address}"\nsql = "SELECT 1"\n')
    assert SECRET not in str(caught.value)


def test_the_example_of_a_table_is_one(tmp_path: Path) -> None:
    _, _, rest = EXAMPLE.read_text().partition("# [records]\n")
    shown = [line.removeprefix("# ") for line in rest.partition("\n\n")[0].splitlines()]
    statement = {line.partition(" = ")[0]: line for line in shown if not line.startswith(" ")}
    assert statement.keys() == keys(RecordsConfig).keys()

    def choose(*names: str) -> RecordsConfig:
        return loaded(tmp_path, "\n".join(["[records]", *(statement[name] for name in names)]))

    assert choose("database", "sql", "one_row_per", "timeout_seconds").is_view
    text = choose("source", "separator", "decimal", "thousands", "encoding", "sql_file")
    assert text.dialect == Dialect(separator=";", decimal=",", thousands=".", encoding="latin-1")
    assert choose("source", "sheet").sheet
