"""Ten hospitals, each with its records as it exports them, and the truth about its columns."""

from __future__ import annotations

import csv
import gzip
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as parquet
import xlsxwriter

Truth = dict[str, tuple[str, float]]  # header: column of the packaged dictionary, and factor to its unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportingHospital:
    """A hospital's records: the words after `init`, its true columns, and its person column, if any."""

    name: str
    words: tuple[str, ...]
    truth: Truth
    person: str | None


@dataclass(slots=True)
class Values:
    """Values of people, drawn one by one."""

    rng: random.Random = field(default_factory=lambda: random.Random(31))

    def near(self, middle: float, width: float, digits: int = 0) -> float:
        """Return a value near another one, above a fifth of it."""
        return round(max(self.rng.gauss(middle, width), middle / 5), digits)

    def skewed(self, middle: float, digits: int = 0) -> float:
        """Return a value with a long tail above."""
        return round(middle * 2.718281828 ** self.rng.gauss(0, 0.35), digits)

    def any_of(self, *choices: str) -> str:
        """Return one of some words."""
        return self.rng.choice(choices)

    def chance(self, share: float) -> bool:
        """Return True for a share of the cases."""
        return self.rng.random() < share


def messy_semicolons(folder: Path) -> ExportingHospital:
    """Semicolons, decimal commas, a title, codes for missing, one comma too many here and there."""
    values, lines = Values(), ["Datenexport Innere Medizin;;;;;;;;", ""]
    lines.append(
        "PatNr;Geschl.;Alter bei Aufnahme;Körpergewicht (kg);RR systolisch;Krea mg/dl;HbA1c %;CRP [mg/l];"
        "Notiz"
    )
    for person in range(300):
        weight = "-999" if values.chance(0.04) else f"{values.near(79, 14, 1)}".replace(".", ",")
        creatinine = "n.b." if values.chance(0.05) else f"{values.skewed(1.0, 2)}".replace(".", ",")
        crp = "<0,6" if values.chance(0.2) else f"{values.skewed(6, 1)}".replace(".", ",")
        note = '"Kontrolle; in 2 Wochen"' if values.chance(0.3) else ""
        cells = [
            f"P{person:05d}", values.any_of("w", "m"), f"{values.near(63, 14):.0f}", weight,
            f"{values.near(134, 16):.0f}", creatinine, f"{values.near(6.3, 0.8, 1)}".replace(".", ","), crp,
            note,
        ]  # fmt: skip
        lines.append(";".join(cells))
    path = folder / "Auswertung 2024.csv"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8-sig")
    truth: Truth = {
        "Geschl.": ("sex", 1), "Alter bei Aufnahme": ("age", 1), "Körpergewicht (kg)": ("body_weight", 1),
        "RR systolisch": ("systolic_bp", 1), "Krea mg/dl": ("creatinine", 1), "HbA1c %": ("hba1c", 1),
        "CRP [mg/l]": ("crp", 1),
    }  # fmt: skip
    return ExportingHospital(name="semicolons", words=(str(path),), truth=truth, person="PatNr")


def workbook(folder: Path) -> ExportingHospital:
    """A workbook with a sheet of remarks beside the data; numbers are numbers, days are days."""
    values, path = Values(), folder / "cohort.xlsx"
    with xlsxwriter.Workbook(path) as book:
        legend, sheet = book.add_worksheet("Legend"), book.add_worksheet("Data")
        legend.write_column(0, 0, ["Cohort of 2024", "Ask Kim about the assay", "v3"])
        headers = ("subject_id", "sex", "age", "Height_cm", "WEIGHT_KG", "Glucose (mmol/L)",
        "Total cholesterol (mmol/L)",
                   "Hb (g/L)", "Visit date")  # fmt: skip
        sheet.write_row(0, 0, headers)
        for person in range(250):
            row: Sequence[object] = (
                person + 1000, values.any_of("Female", "Male"), values.near(55, 15), values.near(170, 9),
                values.near(77, 14, 1), values.skewed(5.6, 1), values.near(5.1, 1, 2), values.near(136, 14),
                f"2023-{1 + person % 12:02d}-11",
            )  # fmt: skip
            sheet.write_row(1 + person, 0, row)
    truth: Truth = {
        "sex": ("sex", 1), "age": ("age", 1), "Height_cm": ("body_height", 1), "WEIGHT_KG": ("body_weight",
        1),
        "Glucose (mmol/L)": ("glucose", 18.0156), "Total cholesterol (mmol/L)": ("total_cholesterol", 38.665),
        "Hb (g/L)": ("hemoglobin", 0.1),
    }  # fmt: skip
    return ExportingHospital(name="workbook", words=(str(path),), truth=truth, person="subject_id")


def one_table(folder: Path) -> ExportingHospital:
    """SQLite with a single table, several rows of a person, and a day for each."""
    values, path = Values(), folder / "registry.sqlite"
    rows = [
        (
            person, f"2022-0{1 + visit}-15", values.near(61, 10), values.near(28, 5, 1), values.near(80, 9),
            values.near(74, 11), values.near(4.1, 0.4, 1),
        )
        for person in range(120)
        for visit in range(3)
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE visits (patient_id INTEGER, visit_date TEXT, age INTEGER, BMI REAL, "
            "diastolic_bp REAL, pulse REAL, potassium REAL)"
        )
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
    truth: Truth = {
        "age": ("age", 1), "BMI": ("bmi", 1), "diastolic_bp": ("diastolic_bp", 1), "pulse": ("heart_rate", 1),
        "potassium": ("potassium", 1),
    }  # fmt: skip
    return ExportingHospital(name="sqlite", words=(str(path),), truth=truth, person="patient_id")


def redcap(folder: Path) -> ExportingHospital:
    """A REDCap export: forms before the names, choices as numbers, completion flags, dates of birth."""
    values, path = Values(), folder / "Study_DATA_2024-01-31.csv"
    headers = (
        "record_id", "redcap_event_name", "demographics_age", "demographics_sex", "demographics_dob",
        "vitals_sbp", "vitals_dbp", "vitals_temp", "labs_glucose", "labs_sodium", "labs_wbc", "labs_alt",
        "labs_urine_glucose", "labs_complete",
    )  # fmt: skip
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(headers)
        for person in range(220):
            writer.writerow([
                person + 1, "baseline_arm_1", int(values.near(50, 14)), values.any_of("1", "2"),
                f"19{values.rng.randint(40, 99)}-05-{values.rng.randint(10, 28)}", int(values.near(129, 15)),
                int(values.near(79, 9)), values.near(36.8, 0.4, 1),
                "" if values.chance(0.1) else int(values.skewed(103)),
                int(values.near(140, 3)), values.skewed(7, 1), int(values.skewed(25)),
                int(values.skewed(15)), 2,
            ])  # fmt: skip
    truth: Truth = {
        "demographics_age": ("age", 1), "demographics_sex": ("sex", 1), "vitals_sbp": ("systolic_bp", 1),
        "vitals_dbp": ("diastolic_bp", 1), "vitals_temp": ("body_temperature", 1),
        "labs_glucose": ("glucose", 1),
        "labs_sodium": ("sodium", 1), "labs_wbc": ("wbc", 1), "labs_alt": ("alt", 1),
    }  # fmt: skip
    return ExportingHospital(name="redcap", words=(str(path),), truth=truth, person="record_id")


CODES = {
    "glucose": (3004501, "2345-7"),
    "creatinine": (3016723, "2160-0"),
    "body_height": (3036277, "8302-2"),
}
UNIT_CODES = {8840: "mg/dL", 8753: "mmol/L", 8582: "cm"}
OMOP = """
CREATE TABLE person (person_id bigint PRIMARY KEY, gender_concept_id int NOT NULL,
year_of_birth int NOT NULL);
CREATE TABLE concept (concept_id int PRIMARY KEY, concept_name text, concept_code text, vocabulary_id text);
CREATE TABLE measurement (measurement_id bigserial PRIMARY KEY, person_id bigint, measurement_concept_id int,
  measurement_date date, value_as_number numeric, unit_concept_id int);
"""


def omop(url: str) -> ExportingHospital:
    """OMOP's tables in PostgreSQL; the glucose of half of the persons is in another unit."""
    values = Values()
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(OMOP)
        for name, (number, code) in CODES.items():
            cursor.execute("INSERT INTO concept VALUES (%s, %s, %s, 'LOINC')", (number, name, code))
        for number, code in UNIT_CODES.items():
            cursor.execute("INSERT INTO concept VALUES (%s, %s, %s, 'UCUM')", (number, code, code))
        into = (
            "INSERT INTO measurement (person_id, measurement_concept_id, measurement_date, value_as_number, "
            "unit_concept_id) VALUES (%s, %s, '2021-06-01', %s, %s)"
        )
        for person in range(1, 201):
            cursor.execute(
                "INSERT INTO person VALUES (%s, %s, %s)",
                (person, values.rng.choice((8507, 8532)), 1930 + person % 65),
            )
            moles = person % 2
            glucose = values.skewed(5.7 if moles else 103, 1)
            cursor.execute(into, (person, 3004501, glucose, 8753 if moles else 8840))
            cursor.execute(into, (person, 3016723, values.skewed(1, 2), 8840))
            cursor.execute(into, (person, 3036277, values.near(171, 9), 8582))
    truth: Truth = {name: (name, 1) for name in (*CODES, "age", "sex")}
    return ExportingHospital(name="omop", words=(url,), truth=truth, person="person_id")


def several_tables(folder: Path) -> ExportingHospital:
    """SQLite with tables of wards, of staff, and of results."""
    values, path = Values(), folder / "lims.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE wards (id INTEGER, name TEXT, beds INTEGER)")
        connection.executemany(
            "INSERT INTO wards VALUES (?, ?, ?)", [(i, f"Ward {i}", 20 + i) for i in range(6)]
        )
        connection.execute("CREATE TABLE staff (id INTEGER, name TEXT)")
        connection.execute("INSERT INTO staff VALUES (1, 'Kim')")
        connection.execute(
            "CREATE TABLE results (MRN TEXT, HGB REAL, HCT REAL, PLT INTEGER, MCV REAL, NA INTEGER, K REAL, "
            "CREAT_UMOL_L REAL)"
        )
        rows = [
            (
                f"M{person}", values.near(13.5, 1.5, 1), values.near(40, 4, 1), values.near(240, 60),
                values.near(90, 5, 1), values.near(139, 3), values.near(4.2, 0.4, 1), values.skewed(84),
            )
            for person in range(180)
        ]  # fmt: skip
        connection.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
    truth: Truth = {
        "HGB": ("hemoglobin", 1), "HCT": ("hematocrit", 1), "PLT": ("platelets", 1), "MCV": ("mcv", 1),
        "NA": ("sodium", 1), "K": ("potassium", 1), "CREAT_UMOL_L": ("creatinine", 0.011312),
    }  # fmt: skip
    return ExportingHospital(name="tables", words=(str(path),), truth=truth, person="MRN")


def two_header_rows(folder: Path) -> ExportingHospital:
    """A workbook with groups of columns in its first row, and their names in the second."""
    values, path = Values(), folder / "Laborwerte.xlsx"
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet("Werte")
        sheet.merge_range(0, 1, 0, 2, "Person")
        sheet.merge_range(0, 3, 0, 6, "Labor")
        sheet.write_row(
            1,
            0,
            ("Pat-ID", "Alter (Jahre)", "Größe [cm]", "Natrium", "Kalium", "Harnsäure [mg/dl]", "TSH (mU/l)"),
        )
        for person in range(160):
            row = (
                f"A{person}", values.near(58, 13), values.near(171, 9), values.near(139, 3),
                values.near(4.2, 0.4, 1), values.near(5.6, 1.3, 1), values.skewed(1.7, 2),
            )  # fmt: skip
            sheet.write_row(2 + person, 0, row)
    truth: Truth = {
        "Alter (Jahre)": ("age", 1), "Größe [cm]": ("body_height", 1), "Natrium": ("sodium", 1),
        "Kalium": ("potassium", 1), "Harnsäure [mg/dl]": ("uric_acid", 1), "TSH (mU/l)": ("tsh", 1),
    }  # fmt: skip
    return ExportingHospital(name="two-rows", words=(str(path),), truth=truth, person="Pat-ID")


def latin(folder: Path) -> ExportingHospital:
    """Latin-1 with tabs, decimal commas and points between thousands."""
    values, path = Values(), folder / "export.txt"
    lines = ["Patientennummer\tGröße\tGewicht\tHämoglobin (g/dl)\tThrombozyten (/µl)\tBemerkung"]
    for person in range(240):
        count = f"{1000 * values.near(238, 60):,.0f}".replace(",", ".")
        hemoglobin = f"{values.near(13.4, 1.4, 1)}".replace(".", ",")
        weight = f"{values.near(81, 14, 1)}".replace(".", ",")
        height = f"{values.near(172, 9):.0f}"
        lines.append("\t".join([f"{person:06d}", height, weight, hemoglobin, count, "für Rückfragen"]))
    path.write_text("\r\n".join([*lines, ""]), encoding="latin-1", newline="")
    truth: Truth = {
        "Größe": ("body_height", 1), "Gewicht": ("body_weight", 1), "Hämoglobin (g/dl)": ("hemoglobin", 1),
        "Thrombozyten (/µl)": ("platelets", 0.001),
    }  # fmt: skip
    return ExportingHospital(name="latin", words=(str(path),), truth=truth, person="Patientennummer")


def wide(folder: Path) -> ExportingHospital:
    """300 columns, most of them metabolites that no dictionary has."""
    values, path = Values(), folder / "omics.csv.gz"
    clinical: dict[str, tuple[str, float, Callable[[], float]]] = {
        "AGE_YRS": ("age", 1, lambda: values.near(52, 12)), "BMI": ("bmi", 1, lambda: values.near(27, 4, 1)),
        "SBP": ("systolic_bp", 1, lambda: values.near(128, 14)), "LDL_MGDL": ("ldl_cholesterol", 1,
        lambda: values.near(121, 30)),
        "HDL_MGDL": ("hdl_cholesterol", 1, lambda: values.near(52, 12)), "TRIG_MGDL": ("triglycerides", 1,
        lambda: values.skewed(130)),
        "GLUC_MGDL": ("glucose", 1, lambda: values.skewed(101)),
    }  # fmt: skip
    metabolites = [f"M{number:04d}" for number in range(292)]
    lines = [",".join(["ID", *clinical, *metabolites])]
    for person in range(90):
        numbers = [str(make()) for _, _, make in clinical.values()]
        lines.append(
            ",".join([f"S{person}", *numbers, *(f"{values.rng.gauss(0, 1):.3f}" for _ in metabolites)])
        )

    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    truth: Truth = {header: (column, factor) for header, (column, factor, _) in clinical.items()}
    return ExportingHospital(name="wide", words=(str(path),), truth=truth, person="ID")


def parquet_folder(folder: Path) -> ExportingHospital:
    """A folder of Parquet files, with a name of each measurement and its unit in brackets."""
    values, path = Values(), folder / "lake"
    path.mkdir()
    for part in range(3):
        rows = range(100 * part, 100 * part + 100)
        table = pa.table({
            "person_id": pa.array(rows, pa.int64()),
            "heart_rate": pa.array([int(values.near(73, 11)) for _ in rows], pa.int32()),
            "albumin [g/L]": pa.array([values.near(41, 4, 1) for _ in rows], pa.float64()),
            "calcium [mmol/L]": pa.array([values.near(2.36, 0.1, 2) for _ in rows], pa.float32()),
            "gender": pa.array([values.any_of("F", "M") for _ in rows], pa.string()).dictionary_encode(),
        })  # fmt: skip
        parquet.write_table(table, path / f"part-{part}.parquet")
    truth: Truth = {
        "heart_rate": ("heart_rate", 1), "albumin [g/L]": ("albumin", 0.1), "calcium [mmol/L]": ("calcium",
        4.0078),
        "gender": ("sex", 1),
    }  # fmt: skip
    return ExportingHospital(name="parquet", words=(str(path),), truth=truth, person="person_id")


OF_FILES: tuple[Callable[[Path], ExportingHospital], ...] = (
    messy_semicolons, workbook, one_table, redcap, several_tables, two_header_rows, latin, wide,
    parquet_folder,
)  # fmt: skip
