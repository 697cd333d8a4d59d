"""Units in headers and in the row below: the spellings that files have, as UCUM, and a header without its
unit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

# Spellings in small letters, without blanks, of each unit of UCUM.
SPELLINGS = {
    "mg/dL": "mg/dl mgdl mg/100ml mg%",
    "g/dL": "g/dl gdl g/100ml g%",
    "g/L": "g/l",
    "mg/L": "mg/l mgl",
    "ug/dL": "ug/dl mcg/dl ugdl",
    "ug/L": "ug/l mcg/l ugl",
    "ng/mL": "ng/ml ngml",
    "ng/dL": "ng/dl ngdl",
    "ng/L": "ng/l",
    "pg/mL": "pg/ml pgml",
    "mmol/L": "mmol/l mmoll mmol mm/l",
    "umol/L": "umol/l umoll mcmol/l micromol/l umol",
    "nmol/L": "nmol/l nmoll",
    "pmol/L": "pmol/l pmoll",
    "meq/L": "meq/l meql mval/l",
    "mmol/mol": "mmol/mol mmolmol",
    "mg/g": "mg/g mgg mg/gkrea mg/gcrea",
    "mg/mmol": "mg/mmol",
    "U/L": "u/l ul iu/l iul units/l ui/l uil e/l",
    "kU/L": "ku/l",
    "ukat/L": "ukat/l ukatl",
    "u[IU]/mL": "uiu/ml uiuml mcu/ml uu/ml µu/ml uui/ml",
    "m[IU]/L": "miu/l miul mu/l mui/l me/l",
    "10*3/uL": "10*3/ul 10^3/ul 10e3/ul 10^3/mcl 10*9/l 10^9/l 10e9/l x10^9/l x10^3/ul x10e9/l giga/l gpt/l "
               "g/l(giga) /nl tsd/ul tsd./ul k/ul thou/ul 1000/ul tausend/ul "
               "10^3/mm3 10*3/mm3 10e3/mm3 10^3/mmc mil/mm3 mil/ul miles/ul",
    "10*6/uL": "10*6/ul 10^6/ul 10e6/ul 10*12/l 10^12/l 10e12/l x10^12/l x10^6/ul tera/l tpt/l t/l /pl "
               "mio/ul mio./ul m/ul mill/ul 10^6/mm3 10*6/mm3 10e6/mm3 10^6/mmc",
    "/uL": "/ul cells/ul zellen/ul /mcl /mm3 /mmc cel/ul",
    "fL": "fl",
    "pg": "pg pg/cell",
    "fmol": "fmol",
    "{INR}": "",
    "%": "% percent prozent pct perc v% vol%",
    "L/L": "l/l",
    "kg": "kg kilogramm kilogram kgs",
    "g": "g gramm gram",
    "[lb_av]": "lb lbs pound pounds",
    "mm": "mm millimeter",
    "cm": "cm zentimeter centimeter",
    "m": "m meter",
    "[in_i]": "in inch inches zoll",
    "kg/m2": "kg/m2 kg/m^2 kg/m² kgm2 kg/qm kg/m*m",
    "mm[Hg]": "mmhg mm[hg] mm_hg torr",
    "kPa": "kpa",
    "/min": "/min bpm 1/min beats/min schläge/min permin min-1 atemzüge/min breaths/min min^-1 x/min "
            "lpm rpm bat/min batt/min lat/min slag/min slagen/min slag/minut",
    "Cel": "cel °c c degc celsius gradcelsius grad °celsius",
    "[degF]": "°f f degf fahrenheit [degf]",
    "a": "a y yr yrs year years jahr jahre j jahren inyears injahren lebensjahre ans année années "
         "annees años año anos anni jaar jaren år ar",
    "mo": "mo month months monat monate mon monaten inmonths mois meses mesi maanden månader "
          "måneder",
    "d": "d day days tag tage tagen jours días dias giorni dagen dagar dage dager",
    "mosm/kg": "mosm/kg mosmol/kg mosmkg",
    "mL/min/{1.73_m2}": "ml/min/1.73m2 ml/min/1.73m² ml/min/1,73m2 ml/min/1,73m² ml/min/1.73m^2 ml/min "
                        "ml/min/{1.73_m2} ml/min/1.73 mlmin",
}  # fmt: skip
# Units of the same size; each is written as the first of them.
SAME = {"meq/L": "mmol/L", "ng/mL": "ug/L", "u[IU]/mL": "m[IU]/L", "pg/mL": "ng/L"}
UCUM_OF = {
    spelling: unit for unit, spellings in SPELLINGS.items() for spelling in (unit.lower(), *spellings.split())
}
LETTERS_ALIKE = str.maketrans({"µ": "u", "μ": "u", "²": "2", "³": "3", "⁹": "9", "·": "*", "×": "x", " ": ""})
# A unit of one or two letters is one only in brackets: `k` is potassium, and `m` male.
LEAST_GLUED = 2
NOT_GLUED = frozenset(["a", "c", "d", "f", "g", "j", "m", "y", "in", "mm", "min", "mon", "mol", "grad", "ar"])
# Long spellings without their marks, as R, pandas and SQL leave them: plt_10_9_l. 1 min may be a time.
LEAST_UNMARKED, MOST_TOKENS = 4, 7
UNMARKED = {
    one: unit
    for one, unit in ((re.sub(r"[^0-9a-z]", "", spelling), unit) for spelling, unit in UCUM_OF.items())
    if len(one) >= LEAST_UNMARKED and one not in ("1min", "min1")
}
BRACKETED = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\[\]()]*(?:\([^()]*\))?[^\[\]()]*)[\])]\s*$")
WHOLE_BRACKET = re.compile(r"^(?P<name>[^\[(]*?)\s*[\[(](?P<unit>.+)[\])]\s*$")  # (mm[Hg])
OVER = re.compile(r"^(?P<name>[^/0-9^]*[^/0-9^\s])\s*(?P<unit>/\s*[A-Za-z]+)$")  # Puls/min
AFTER_WORD = re.compile(
    r"^(?P<name>.+?)(?:\s+(?:in|en|em|i)\s+|\s*,\s+|\s+-\s+)(?P<unit>[^,]+)$", re.IGNORECASE
)
TOKENS = re.compile(r"[\s_.\-]+")
# A number, a limit or a date, also with a unit; not 0/1, 1-5 or "0 = no", which tell how a column is coded.
VALUE = re.compile(
    r"(?:<=?|>=?|[≤≥=+-])?\s*[.,]?[0-9](?!\s*[=/|]|[0-9]*-[0-9]+$)|[0-9]{1,4}[/-][0-9]{1,2}[/-][0-9]{1,4}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameAndUnit:
    """Header without its unit, and the unit as UCUM ("" if none is stated)."""

    name: str
    unit: str = ""


def ucum(text: str) -> str:
    """Return a spelled unit as UCUM; empty if it is unknown."""
    plain = unicodedata.normalize("NFC", text).strip().translate(LETTERS_ALIKE).lower().replace("μ", "u")
    return UCUM_OF.get(plain) or UCUM_OF.get(plain.strip(".")) or ""


def cell_unit(text: str) -> str:
    """Return the unit in a cell of a row of units below the header, also in brackets, as `ucum`."""
    return ucum(text) or ucum(text.strip().strip("[]()"))


def is_row_of_units(cells: Iterable[str]) -> bool:
    """Return True if a cell is a unit of more than a letter, which could be a category, and none is a value;
    1 is the unit of what has none."""
    stated = [cell.strip().strip("[]()") for cell in cells]
    units = [one for one in stated if cell_unit(one)]
    certain = any(len(one) > 1 or not one.isalpha() for one in units)
    return certain and not any(VALUE.match(one) for one in stated if one not in ("1", *units))


def same_unit(one: str, other: str) -> bool:
    """Return True if two units are of the same size and kind."""
    first, second = (ucum(unit) or unit for unit in (one, other))
    return SAME.get(first, first) == SAME.get(second, second)


def split_unit(header: str) -> NameAndUnit:
    """Return a header and its unit: in brackets, after a comma or `in`, or glued on, as in GLUC_MGDL."""
    text = header.strip()
    for pattern in (BRACKETED, WHOLE_BRACKET, AFTER_WORD):
        found = pattern.match(text)
        if found and found["name"].strip() and (unit := ucum(found["unit"])):
            return NameAndUnit(name=found["name"].strip(), unit=unit)
    found = OVER.match(text)
    if found and (unit := ucum(found["unit"])):
        return NameAndUnit(name=found["name"].strip(), unit=unit)
    tokens = [token for token in TOKENS.split(text) if token]
    for length in range(min(MOST_TOKENS, len(tokens) - 1), 0, -1):
        tail = tokens[-length:]
        parts = [one for one in tail if one.lower() != "per"]
        if length > 1 and (unit := UNMARKED.get("".join(parts).translate(LETTERS_ALIKE).lower(), "")):
            return NameAndUnit(name=_head(text, tokens[:-length]), unit=unit)
        over = "/".join(parts)
        for joined in (over, "".join(tail), f"/{tail[0]}" if length == 1 else ""):
            unit = ucum(joined)
            glued = joined == "%" or (
                len(joined) >= LEAST_GLUED and joined.lower().lstrip("/") not in NOT_GLUED
            )
            if unit and glued:
                return NameAndUnit(name=_head(text, tokens[:-length]), unit=unit)
    return NameAndUnit(name=text)


def _head(text: str, tokens: list[str]) -> str:
    """Return the part of a text that ends with the last of its first tokens."""
    end = 0
    for token in tokens:
        end = text.index(token, end) + len(token)
    return text[:end]
