"""Names of columns as they are compared: without case, marks, units, and words that change no meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from eigenveil.dictionary.dictionary import LOINC, check_digit
from eigenveil_client.records.tables.units import split_unit


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words before or after a name that leave the measurement as it is: forms, specimens of blood, results.
FORMS = _listed(
    "resting ruhe admission demographics demographic demo dem labs lab labor laboratory laboratories "
    "labordaten lb vitals vital vs vitalzeichen vitalparameter clinical klinik exam examination "
    "untersuchung anthro anthropometry anthropometrie chem chemistry chemie klinchem hematology "
    "haematology hämatologie haem cbc blutbild bloods blood blut serum plasma s p b ser plas baseline "
    "bl screening enrollment enrolment basis stammdaten pat patient patienten subject person form "
    "data daten measurement messung wert"
)
ENDS = _listed(
    "resting ruhe absolut absolute abs quant admission value val wert result ergebnis res num numeric "
    "baseline bl serum plasma aufnahme visit level conc concentration konzentration spiegel i.s is im "
    "blood blut in at bei s p lab raw"
)
# Words with which a column is about something else, though the name of a measurement is in it.
OTHER = _listed(
    "urine urin harn ur csf liquor stool stuhl saliva ascites pleural sweat mother mutter maternal "
    "father vater paternal partner spouse child kind baby donor spender newborn neonatal fetal fetus "
    "geburt birth gestational sibling family familie delta diff difference differenz change änderung "
    "aenderung loss verlust zunahme gain target ziel goal soll ideal limit flag kommentar comment "
    "remark bemerkung note date datum time zeit uhrzeit day tag unit einheit method methode method "
    "ref reference referenz range group gruppe class klasse category kategorie cat stage stadium "
    "grade score index ratio quotient clearance risk risiko history anamnese dx diagnosis diagnose "
    "onset beginn death tod duration dauer count anzahl n sd std stddev var variance se sem min max "
    "minimum maximum peak nadir last first previous prior alt_id id code loinc source quelle device "
    "gerät done gemessen measured missing fehlt yn ja nein status therapy therapie treatment "
    "medikation medication dose dosis supplement substitution fractional excretion belastung exercise "
    "stress standing stehend nach post pre vor after before 2h 1h 120 60 120min 60min percent_change "
    "zscore z percentile perzentile sds ogtt tolerance toleranz poc stix"
)
MARKS = re.compile(r"[^0-9a-zäöüßγµ+%♀♂]+")
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
CODE = re.compile(rf"(?<![0-9]){LOINC.pattern}(?![0-9])")
FUZZY, LEAST_LETTERS = 0.86, 6  # of two names that differ by a typing error
FOLDS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMatch:
    """Fit of a name to a known one: `exact`, or with other words around it or another spelling, `how`.
    `by_code`: the fit is of a code, and not of words."""

    exact: bool
    how: str
    by_code: bool = False


def words(text: str) -> tuple[str, ...]:
    """Return the words of a name, in small letters, without marks; German letters spelled out."""
    parted = CAMEL.sub(" ", text) if not text.isupper() else text
    return tuple(word.translate(FOLDS) for word in MARKS.split(parted.lower()) if word)


def joined(text: str) -> str:
    """Return a name as one word of letters and digits."""
    return "".join(words(text))


def bare_names(header: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of a header without its unit, then without words that change no meaning, the longest
    first."""
    named = split_unit(header).name
    yield from _stripped(words(named))
    if named.lower() != named:  # HbA1c is not hb a1c
        yield from _stripped(tuple(word.translate(FOLDS) for word in MARKS.split(named.lower()) if word))


def _stripped(found: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield found
    tail = found
    while len(tail) > 1 and tail[-1] in ENDS:
        tail = tail[:-1]
        yield tail
    for start in (found, tail):
        head = start
        while len(head) > 1 and head[0] in FORMS:
            head = head[1:]
            yield head


def loinc_in(header: str) -> str | None:
    """Return the LOINC code in a header, if its check digit is right; else None."""
    return next((code for code in CODE.findall(header) if check_digit(code)), None)


def is_other(header: str) -> bool:
    """Return True if a word of the header says that it is about something else."""
    return any(word in OTHER for word in words(split_unit(header).name))


def match_name(header: str, known: Iterable[str]) -> NameMatch | None:
    """Return the fit of a header to one of some names of a measurement; None if it has none of them."""
    names = [words(name) for name in known]
    keys, bags = {"".join(name) for name in names}, {tuple(sorted(name)) for name in names}
    bare = list(dict.fromkeys(bare_names(header)))
    for found in bare:
        if "".join(found) in keys or tuple(sorted(found)) in bags:
            return NameMatch(exact=True, how="by its name")
    if is_other(header):
        return None
    for found in bare:
        for name in names:
            long_enough = len("".join(name)) >= 3
            if long_enough and len(found) > len(name) and set(name) <= set(found):
                return NameMatch(exact=False, how=f"as it has the word {' '.join(name)!r}")
    whole = "".join(bare[0])
    if len(whole) >= LEAST_LETTERS:
        for key in sorted(keys):
            if len(key) >= LEAST_LETTERS and SequenceMatcher(None, whole, key).ratio() >= FUZZY:
                return NameMatch(exact=False, how=f"as it is spelled much like {key!r}")
    return None
