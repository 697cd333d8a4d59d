"""A hospital's measurements in the shape of OMOP's tables, as hospitals have them: in PostgreSQL, as a
compressed text of a country that writes decimal commas, and as a workbook."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
import xlsxwriter

from eigenveil.study.study import Column, Missing, Study
from eigenveil_client.records.tables.source import Dialect, RecordsConfig
from tests.client.site.support import a_study

CONCEPTS = {3036277: "Körpergröße", 3025315: "Gewicht", 3004249: "Blutdruck", 3004501: "Glukose"}
BOUNDS = {
    "height": (120, 220), "weight": (30, 180), "pressure": (70, 250), "glucose": (40, 400), "rows": (0, 60),
}  # fmt: skip
HEADER = ("person_id", "concept", "measured_on", "value")

# One row a person: {value} is how a source says its number exactly.
ONE_ROW_A_PERSON = """
SELECT person_id,
  max({value}) FILTER (WHERE {concept} = 'Körpergröße') AS height,
  avg({value}) FILTER (WHERE {concept} = 'Gewicht') AS weight,
  min({value}) FILTER (WHERE {concept} = 'Blutdruck') AS pressure,
  sum({value}) FILTER (WHERE {concept} = 'Glukose') / 16 AS glucose,
  count(*) AS rows
FROM {tables} GROUP BY person_id
"""
OVER_TEXT = ONE_ROW_A_PERSON.format(
    value="TRY_CAST(replace(value, ',', '.') AS DECIMAL(12, 2))", concept="concept", tables="records"
).replace("SELECT person_id", "SELECT person_id::BIGINT AS person_id")
OVER_TABLES = ONE_ROW_A_PERSON.format(
    value="value_as_number",
    concept="concept_name",
    tables="measurement JOIN concept ON concept_id = measurement_concept_id",
)


def study() -> Study:
    columns = tuple(
        Column(name=n, unit="1", lower=low, upper=up, fill=low) for n, (low, up) in BOUNDS.items()
    )
    return a_study(columns=columns, person_column="person_id", missing=Missing.FILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hospital:
    """`rows` measurements of `persons`, in the order of a clock; one in fifty lacks its value."""

    persons: int
    rows: int

    def measurements(self) -> Iterator[tuple[int, int, str, str]]:
        """Person, concept, day and value: two decimals, or nothing."""
        rng = np.random.default_rng(7)
        who, what = rng.integers(1, self.persons + 1, self.rows), rng.integers(len(CONCEPTS), size=self.rows)
        middles, widths = np.array([170, 75, 130, 100]), np.array([10, 15, 20, 25])
        cents = np.rint(100 * (middles[what] + widths[what] * rng.standard_normal(self.rows))).astype(int)
        there, ids = rng.random(self.rows) > 0.02, list(CONCEPTS)
        days = np.datetime64("2015-01-01") + np.arange(self.rows) * 3650 // self.rows
        for person, concept, day, number, stated in zip(who, what, days, cents, there, strict=True):
            value = f"{number // 100}.{number % 100:02}" if stated else ""
            yield int(person), ids[concept], str(day), value

    def named(self) -> Iterator[tuple[int, str, str, str]]:
        for person, concept, day, value in self.measurements():
            yield person, CONCEPTS[concept], day, value

    def text(self, folder: Path) -> Path:
        """Semicolons, decimal commas, Latin-1, gzip."""
        path = folder / "measurements.csv.gz"
        with gzip.open(path, "wt", compresslevel=1, encoding="latin-1") as file:
            file.write(";".join(HEADER) + "\n")
            for person, concept, day, value in self.named():
                file.write(f"{person};{concept};{day};{value.replace('.', ',')}\n")
        return path

    def workbook(self, folder: Path) -> Path:
        """Numbers as numbers."""
        path = folder / "measurements.xlsx"
        with xlsxwriter.Workbook(path, {"constant_memory": True}) as book:
            sheet = book.add_worksheet("Werte")
            sheet.write_row(0, 0, HEADER)
            for number, (person, concept, day, value) in enumerate(self.named(), 1):
                sheet.write_row(number, 0, (person, concept, day, float(value) if value else None))
        return path

    def database(self, url: str) -> None:
        """The tables of OMOP that hold them."""
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE person (person_id bigint PRIMARY KEY, year_of_birth int NOT NULL)")
            cursor.execute("CREATE TABLE concept (concept_id int PRIMARY KEY, concept_name text NOT NULL)")
            keys = "measurement_id bigserial PRIMARY KEY, person_id bigint, measurement_concept_id int"
            cursor.execute(
                f"CREATE TABLE measurement ({keys}, measurement_date date, value_as_number numeric)"
            )
            cursor.executemany("INSERT INTO concept VALUES (%s, %s)", list(CONCEPTS.items()))
            cursor.execute(
                "INSERT INTO person SELECT i, 1930 + i %% 70 FROM generate_series(1, %s) i", (self.persons,)
            )
            into = "(person_id, measurement_concept_id, measurement_date, value_as_number)"
            with cursor.copy(f"COPY measurement {into} FROM STDIN") as copy:
                for person, concept, day, value in self.measurements():
                    copy.write_row((person, concept, day, value or None))

    def positions(self, folder: Path, url: str) -> dict[str, RecordsConfig]:
        """Settings of each source, once the database is there, to make one row a person."""
        one = "person_id"
        local = Dialect(separator=";", decimal=",", encoding="latin-1")
        return {
            "database": RecordsConfig(database=url, sql=OVER_TABLES, one_row_per=one),
            "text": RecordsConfig(source=self.text(folder), dialect=local, sql=OVER_TEXT, one_row_per=one),
            "workbook": RecordsConfig(source=self.workbook(folder), sql=OVER_TEXT, one_row_per=one),
        }
