"""Seeded text files as hospitals export them, each with its true dialect and its true columns."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

from eigenveil_client.records.discovery.look import SeenTable

LEAST_ROWS, MOST_ROWS = 60, 400
DECIMAL_COMMA = re.compile(r"[0-9.]+,[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A column of the dictionary, and how people's values are spread: in its unit, by a normal distribution
    (`skewed`: of logarithms), with its digits after the point."""

    name: str
    middle: float
    width: float
    digits: int = 0
    skewed: bool = False


MEASUREMENTS = {
    one.name: one
    for one in (
        Measurement(name="age", middle=58, width=16),
        Measurement(name="body_weight", middle=78, width=15, digits=1),
        Measurement(name="body_height", middle=170, width=10),
        Measurement(name="bmi", middle=27, width=5, digits=1),
        Measurement(name="systolic_bp", middle=131, width=17),
        Measurement(name="diastolic_bp", middle=79, width=10),
        Measurement(name="heart_rate", middle=75, width=12),
        Measurement(name="body_temperature", middle=36.8, width=0.5, digits=1),
        Measurement(name="sodium", middle=139, width=3.5),
        Measurement(name="potassium", middle=4.2, width=0.5, digits=1),
        Measurement(name="creatinine", middle=1.0, width=0.35, digits=2, skewed=True),
        Measurement(name="glucose", middle=104, width=0.28, skewed=True),
        Measurement(name="hba1c", middle=6.1, width=0.16, digits=1, skewed=True),
        Measurement(name="total_cholesterol", middle=196, width=38),
        Measurement(name="hdl_cholesterol", middle=53, width=13),
        Measurement(name="ldl_cholesterol", middle=118, width=32),
        Measurement(name="triglycerides", middle=130, width=0.45, skewed=True),
        Measurement(name="hemoglobin", middle=13.6, width=1.6, digits=1),
        Measurement(name="platelets", middle=245, width=60),
        Measurement(name="wbc", middle=7.2, width=0.3, digits=1, skewed=True),
        Measurement(name="alt", middle=26, width=0.5, skewed=True),
        Measurement(name="crp", middle=4.5, width=0.9, digits=1, skewed=True),
        Measurement(name="calcium", middle=9.4, width=0.5, digits=1),
        Measurement(name="albumin", middle=4.1, width=0.4, digits=1),
    )
}
# Numbers of these units are the dictionary's times the factor.
OTHER_UNITS = {
    "glucose": ("mmol/L", 1 / 18.016, 1), "creatinine": ("umol/L", 88.42, 0),
    "total_cholesterol": ("mmol/L", 1 / 38.67, 2), "hdl_cholesterol": ("mmol/L", 1 / 38.67, 2),
    "ldl_cholesterol": ("mmol/L", 1 / 38.67, 2), "triglycerides": ("mmol/L", 1 / 88.57, 2),
    "hemoglobin": ("g/L", 10.0, 0), "calcium": ("mmol/L", 1 / 4.008, 2), "albumin": ("g/L", 10.0, 0),
    "body_weight": ("lb", 1 / 0.45359237, 0), "body_height": ("in", 1 / 2.54, 0),
    "platelets": ("/nl", 1.0, 0), "wbc": ("/nl", 1.0, 1),
}  # fmt: skip
GERMAN = {
    "age": ("Alter", "Patientenalter"), "body_weight": ("Gewicht", "Körpergewicht"),
    "body_height": ("Größe", "Körpergröße", "Groesse"), "bmi": ("BMI",),
    "systolic_bp": ("RR syst", "Blutdruck systolisch", "RR_sys"),
    "diastolic_bp": ("RR diast", "Blutdruck diastolisch", "RR_dia"),
    "heart_rate": ("Puls", "Herzfrequenz", "HF"), "body_temperature": ("Temperatur", "Körpertemperatur"),
    "sodium": ("Natrium", "Na"), "potassium": ("Kalium", "K"), "creatinine": ("Kreatinin", "Krea"),
    "glucose": ("Glukose", "Blutzucker", "BZ"), "hba1c": ("HbA1c",),
    "total_cholesterol": ("Cholesterin", "Gesamtcholesterin", "Chol"), "hdl_cholesterol": ("HDL",
    "HDL-Cholesterin"),
    "ldl_cholesterol": ("LDL", "LDL-Cholesterin"), "triglycerides": ("Triglyzeride", "Triglyceride"),
    "hemoglobin": ("Hämoglobin", "Hb"), "platelets": ("Thrombozyten", "Thrombos"),
    "wbc": ("Leukozyten", "Leukos"), "alt": ("GPT", "ALAT"), "crp": ("CRP",), "calcium": ("Calcium",
    "Kalzium"),
    "albumin": ("Albumin",),
}  # fmt: skip
ENGLISH = {
    "age": ("age", "AGE_YRS", "Age at visit"), "body_weight": ("weight", "WT", "body weight"),
    "body_height": ("height", "HT", "Height"), "bmi": ("bmi", "BMI"),
    "systolic_bp": ("sbp", "SysBP", "systolic", "BP systolic"),
    "diastolic_bp": ("dbp", "DiaBP", "diastolic", "BP diastolic"),
    "heart_rate": ("pulse", "heart rate", "HR"), "body_temperature": ("temp", "temperature"),
    "sodium": ("sodium", "Na"), "potassium": ("potassium", "K"), "creatinine": ("creatinine", "CREAT",
    "Creat"),
    "glucose": ("glucose", "GLUC", "Glu"), "hba1c": ("hba1c", "A1C", "HgbA1c"),
    "total_cholesterol": ("cholesterol", "CHOL", "total cholesterol", "TC"), "hdl_cholesterol": ("hdl",
    "HDL-C"),
    "ldl_cholesterol": ("ldl", "LDL-C"), "triglycerides": ("triglycerides", "TRIG", "TG"),
    "hemoglobin": ("hemoglobin", "HGB", "Hb", "haemoglobin"), "platelets": ("platelets", "PLT"),
    "wbc": ("wbc", "leukocytes", "White cells"), "alt": ("alt", "SGPT"), "crp": ("crp", "CRP"),
    "calcium": ("calcium", "Ca"), "albumin": ("albumin", "ALB"),
}  # fmt: skip
UNITS = {
    "age": "years", "body_weight": "kg", "body_height": "cm", "bmi": "kg/m2", "systolic_bp": "mmHg",
    "diastolic_bp": "mmHg", "heart_rate": "/min", "body_temperature": "°C", "sodium": "mmol/l",
    "potassium": "mmol/l", "creatinine": "mg/dl", "glucose": "mg/dl", "hba1c": "%",
    "total_cholesterol": "mg/dl", "hdl_cholesterol": "mg/dl", "ldl_cholesterol": "mg/dl",
    "triglycerides": "mg/dl", "hemoglobin": "g/dl", "platelets": "/nl", "wbc": "/nl", "alt": "U/l",
    "crp": "mg/l", "calcium": "mg/dl", "albumin": "g/dl",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueColumn:
    """Truth about a header: the column of the dictionary that it is, and the factor to its unit; or none."""

    header: str
    column: str | None = None
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessyFile:
    """Text of a file and its truth. `header_line`: from 1. `grouped`: True if a number has a mark between
    thousands. `pointed`: True if a number has a decimal comma."""

    style: str
    data: bytes
    separator: str
    decimal: str
    thousands: str
    encoding: str
    header_line: int
    columns: tuple[TrueColumn, ...]
    person: str | None
    grouped: bool
    pointed: bool


@dataclass(slots=True, kw_only=True)
class Style:
    """Habits of one hospital's exports."""

    name: str
    separators: tuple[str, ...]
    decimal: str
    thousands: tuple[str, ...]
    encodings: tuple[str, ...]
    names: dict[str, tuple[str, ...]]
    titles: tuple[str, ...]
    absent: tuple[str, ...]
    codes: tuple[str, ...]
    day: str
    persons: tuple[str, ...]
    si: float  # share of measurements in other units
    decorate: Callable[[random.Random, str, str], str] = field(default=lambda rng, name, unit: name)


def _bracketed(rng: random.Random, name: str, unit: str) -> str:
    return rng.choice([f"{name} [{unit}]", f"{name} ({unit})", f"{name} in {unit}"])


def _maybe_bracketed(rng: random.Random, name: str, unit: str) -> str:
    return _bracketed(rng, name, unit) if rng.random() < 0.4 else name


def _glued(rng: random.Random, name: str, unit: str) -> str:
    letters = unit.upper().replace("/", rng.choice(["", "_"])).replace("°", "").replace("%", "PCT").strip("_")
    plain = name.replace(" ", "_").replace("-", "_").upper()
    return f"{plain}_{letters}" if rng.random() < 0.6 and len(letters) > 1 else plain


FORMS = {
    **dict.fromkeys(("age", "body_weight", "body_height", "bmi"), "demographics"),
    **dict.fromkeys(("systolic_bp", "diastolic_bp", "heart_rate", "body_temperature"), "vitals"),
}
STYLES = (
    Style(name="german-kis", separators=(";", ";", "\t", ","), decimal=",", thousands=("", "."),
          encodings=("latin-1", "cp1252", "utf-8", "utf-8-sig"), names=GERMAN,
          titles=("Auswertung Klinikum Süd", "Stand: 12.03.2024;;;"), absent=("n.b.", "k.A.", "-", ""),
          codes=("-999", "-9"), day="%d.%m.%Y", persons=("PatNr", "Patientennummer", "Pat-ID"), si=0.3,
          decorate=_maybe_bracketed),
    Style(name="us-research", separators=(",", ",", "|"), decimal=".", thousands=("",),
          encodings=("utf-8", "utf-8-sig"), names=ENGLISH, titles=(), absent=("NA", "", "."),
          codes=("999", "-99"), day="%m/%d/%Y", persons=("MRN", "subject_id", "SUBJID"), si=0.1,
          decorate=_glued),
    Style(name="redcap", separators=(",",), decimal=".", thousands=("",), encodings=("utf-8-sig", "utf-8"),
          names=ENGLISH, titles=(), absent=("",), codes=("-999",), day="%Y-%m-%d", persons=("record_id",),
          si=0.2, decorate=lambda rng, name, unit: name.lower().replace(" ", "_").replace("-", "_")),
    Style(name="uk-laboratory", separators=("\t", ",", "|"), decimal=".", thousands=("", ","),
          encodings=("utf-8", "utf-16", "latin-1"), names=ENGLISH, titles=("Pathology extract",
          "Confidential"),
          absent=("Not done", "", "NULL"), codes=("9999",), day="%d/%m/%Y",
          persons=("Hospital Number", "patient_id"), si=0.7, decorate=_bracketed),
    Style(name="swiss", separators=(";", "\t"), decimal=".", thousands=("'", ""), encodings=("cp1252",
    "utf-8"),
          names=GERMAN, titles=("Export Spital", ""), absent=("", "fehlt"), codes=("-99",), day="%d.%m.%Y",
          persons=("PID", "Patient"), si=0.6, decorate=_bracketed),
)  # fmt: skip


def messy_file(seed: int) -> MessyFile:
    """Return file number `seed`, of one of the styles in turn."""
    rng = random.Random(f"messy {seed}")
    style = STYLES[seed % len(STYLES)]
    rows = rng.randint(LEAST_ROWS, MOST_ROWS)
    written = _Writer(rng, style, rows)
    return written.file()


class _Writer:
    """Writer of one file, column by column."""

    def __init__(self, rng: random.Random, style: Style, rows: int) -> None:
        self.rng, self.style, self.rows = rng, style, rows
        self.thousands = rng.choice(style.thousands)
        self.separator = rng.choice([s for s in style.separators if s != self.thousands])
        self.quoted = rng.random() < 0.2  # every cell
        self.truths: list[TrueColumn] = []
        self.cells: list[list[str]] = []

    def file(self) -> MessyFile:
        rng, style = self.rng, self.style
        person = self._person()
        for name in rng.sample(list(MEASUREMENTS), rng.randint(8, 16)):
            self._measurement(MEASUREMENTS[name])
        self._decoys()
        order = [0, *rng.sample(range(1, len(self.cells)), len(self.cells) - 1)]
        truths, cells = [self.truths[at] for at in order], [self.cells[at] for at in order]
        titles = [line for line in style.titles if rng.random() < 0.5]
        if titles and rng.random() < 0.3:
            titles = [title + self.separator * (len(cells) - 1) for title in titles]  # as Excel saves it
        if titles and rng.random() < 0.5:
            titles.append("")
        header = self._joined([truth.header for truth in truths])
        records = [self._joined([column[row] for column in cells]) for row in range(self.rows)]
        if rng.random() < 0.2:  # columns without names at the right
            header, records = header + 2 * self.separator, [line + 2 * self.separator for line in records]
        lines = [*titles, header, *self._damaged(records)]
        encoding = rng.choice(style.encodings)
        end = rng.choice(["\n", "\r\n"])
        data = end.join([*lines, ""]).encode(encoding, errors="replace")
        return MessyFile(
            style=style.name, data=data, separator=self.separator, decimal=style.decimal,
            thousands=self.thousands, encoding=encoding, header_line=len(titles) + 1 if any(titles) else 1,
            columns=tuple(truths),
            person=person,
            grouped=any(_is_grouped(cell, self.thousands) for column in cells for cell in column),
            pointed=style.decimal == "," and any(DECIMAL_COMMA.fullmatch(c) for one in cells for c in one),
        )  # fmt: skip

    def _damaged(self, records: list[str]) -> list[str]:
        """Return records with, at times, lines of more or fewer cells, blank lines and a last remark."""
        rng, mark = self.rng, self.separator
        if rng.random() < 0.25:
            for at in rng.sample(range(len(records)), max(1, len(records) // 25)):
                line = records[at]
                if '"' in line:  # a quote that is cut open is another damage: such a file is refused
                    continue
                records[at] = rng.choice((line + mark + "x", line.rpartition(mark)[0], ""))
        remark = rng.choice(["Ende der Liste", f"{len(records)} rows", mark.join(["Summe", "", "1"])])
        return [*records, remark] if rng.random() < 0.2 else records

    def _joined(self, cells: list[str]) -> str:
        if self.quoted:
            return self.separator.join('"' + cell.replace('"', '""') + '"' for cell in cells)
        marks = (self.separator, '"')
        quoted = (
            '"' + cell.replace('"', '""') + '"' if any(m in cell for m in marks) else cell for cell in cells
        )
        return self.separator.join(quoted)

    def _add(self, header: str, cells: list[str], column: str | None = None, factor: float = 1.0) -> None:
        if any(truth.header == header for truth in self.truths):
            return
        self.truths.append(TrueColumn(header=header, column=column, factor=factor))
        self.cells.append(cells)

    def _person(self) -> str | None:
        rng = self.rng
        header, repeated = rng.choice(self.style.persons), rng.random() < 0.3
        each = 3 if repeated else 1
        first = rng.randint(1, 90_000)
        names = [f"{first + row // each:06d}" for row in range(self.rows)]
        self._add(header, names)
        return header

    def _measurement(self, one: Measurement) -> None:
        rng, style = self.rng, self.style
        unit, factor, digits = UNITS[one.name], 1.0, one.digits
        if one.name in OTHER_UNITS and rng.random() < style.si:
            unit, factor, digits = OTHER_UNITS[one.name]
        name = style.decorate(rng, rng.choice(style.names[one.name]), unit)
        if style.name == "redcap":
            name = f"{FORMS.get(one.name, 'labs')}_{name}"
        if one.name in ("body_weight", "body_height") and factor != 1 and unit not in name.lower():
            unit, factor, digits = UNITS[one.name], 1.0, one.digits  # nobody could tell pounds from kilograms
        code = rng.choice(style.codes) if rng.random() < 0.25 else None
        absent = rng.choice(style.absent)
        cells = []
        for _ in range(self.rows):
            chance = rng.random()
            if chance < 0.04:
                cells.append(absent)
            elif code is not None and chance < 0.07:
                cells.append(code)
            else:
                cells.append(self.number(self._value(one) * factor, digits))
        self._add(name, cells, one.name, 1 / factor)

    def _value(self, one: Measurement) -> float:
        drawn = self.rng.gauss(0, 1)
        value = (
            one.middle * 2.718281828 ** (one.width * drawn) if one.skewed else one.middle + one.width * drawn
        )
        return max(value, 18 if one.name == "age" else one.middle * 0.2)

    def number(self, value: float, digits: int) -> str:
        """Return a number as this hospital writes it."""
        text = f"{value:,.{digits}f}"
        whole, _, rest = text.partition(".")
        whole = whole.replace(",", self.thousands)
        return f"{whole}{self.style.decimal}{rest}" if rest else whole

    def _decoys(self) -> None:
        """Add columns that look like a measurement and are not one, or that no dictionary has."""
        rng, style = self.rng, self.style
        german = style.names is GERMAN
        for names, cell in rng.sample(DECOYS, rng.randint(6, 12)):
            header = names[0] if german else names[1]
            self._add(header, [cell(self) for _ in range(self.rows)], "sex" if names[1] == "sex" else None)

    def day(self) -> str:
        """Return a day as this hospital writes it."""
        rng = self.rng
        return date(rng.randint(2015, 2023), rng.randint(1, 12), rng.randint(1, 28)).strftime(self.style.day)

    def near(self, middle: float, width: float, digits: int = 0) -> str:
        """Return a number near another one."""
        return self.number(max(self.rng.gauss(middle, width), middle / 5), digits)


TEXTS = ("ok", "siehe Brief, bitte", 'said "fine"; stable', "", "Kontrolle | 2 Wochen", "x\ty")
Decoy = tuple[tuple[str, str], Callable[[_Writer], str]]
DECOYS: tuple[Decoy, ...] = (
    (("Datum", "visit_date"), _Writer.day),
    (("Bemerkung", "comment"), lambda of: of.rng.choice(TEXTS)),
    (("leer", "unused"), lambda of: ""),
    (("Geschlecht", "sex"), lambda of: of.rng.choice(("m", "w") if of.style.names is GERMAN else ("M", "F"))),
    (("Urin-Glukose", "urine_glucose"), lambda of: of.near(12, 9, 1)),
    (("Natrium im Urin", "sodium urine"), lambda of: of.near(120, 30)),
    (("Alter der Mutter", "mother_age"), lambda of: of.near(29, 5)),
    (("Altersgruppe", "age_group"), lambda of: str(of.rng.randint(1, 5))),
    (("Zielgewicht", "target_weight"), lambda of: of.near(72, 9, 1)),
    (("Gewichtsverlust", "weight_loss"), lambda of: of.near(4, 2, 1)),
    (("Glukose_Flag", "glucose_flag"), lambda of: of.rng.choice(("H", "L", ""))),
    (("Glukose 2h", "glucose_2h"), lambda of: of.near(131, 25)),
    (("Zentrum", "center"), lambda of: str(of.rng.randint(1, 4))),
    (("Zellen", "cells"), lambda of: of.number(of.rng.uniform(1000, 90_000), 0)),
    (("Kreatinin-Clearance", "creatinine_clearance"), lambda of: of.near(85, 20)),
    (("Gewicht bei Geburt", "birth_weight"), lambda of: of.near(3.4, 0.5, 2)),
    (("delta_HbA1c", "delta_hba1c"), lambda of: of.near(6, 0.4, 1)),
    (("Puls nach Belastung", "hr_max"), lambda of: of.near(140, 15)),
    (("HDL-Quotient", "chol_hdl_ratio"), lambda of: of.near(3.8, 0.8, 1)),
    (("CRP Datum", "crp_date"), _Writer.day),
)  # fmt: skip


def _is_grouped(cell: str, mark: str) -> bool:
    return bool(mark) and re.match(rf"[0-9]{{1,3}}{re.escape(mark)}[0-9]{{3}}(?![0-9])", cell) is not None


def right_dialect(file: MessyFile, table: SeenTable) -> bool:
    """True if our own dialect reads the file as it was meant."""
    dialect = table.config.dialect
    names = {column.header for column in table.columns}
    return (
        dialect.separator == file.separator
        and table.config.header_line == file.header_line
        and all(one.header in names for one in file.columns)
        and (not file.pointed or dialect.decimal == file.decimal)
        and (not file.grouped or dialect.thousands == file.thousands)
    )
