"""Names of columns as they are compared: without case, marks, units, and words that change no meaning."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from eigenveil.dictionary.dictionary import LOINC, check_digit
from eigenveil_client.records.tables.units import split_unit

FOLDS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o"})


def folded_letters(text: str) -> str:
    """Return a text in small letters, German letters spelled out, all others without their accents."""
    return unaccented(unicodedata.normalize("NFC", text).lower().translate(FOLDS))


def unaccented(text: str) -> str:
    """Return a text without accents."""
    parts = unicodedata.normalize("NFD", text.replace("ø", "o"))
    return "".join(part for part in parts if not unicodedata.combining(part))


def _listed(text: str) -> frozenset[str]:
    return frozenset(folded_letters(text).split())


# Words before or after a name that leave the measurement as it is: forms, specimens of blood, results.
FORMS = _listed(
    "resting ruhe admission demographics demographic demo dem labs lab labor laboratory laboratories "
    "labordaten lb vitals vital vs vitalzeichen vitalparameter clinical klinik exam examination "
    "untersuchung anthro anthropometry anthropometrie chem chemistry chemie klinchem hematology "
    "haematology hämatologie haem cbc blutbild bloods blood blut serum plasma s p b ser plas baseline "
    "bl screening enrollment enrolment basis stammdaten pat patient patienten subject person form "
    "data daten measurement messung wert "
    "bilan labo laboratoire sang biologie taux dosage valeur analítica sangre suero valor sangue soro exame "
    "siero esame valore bloed bloedwaarden waarde uitslag blod prov provsvar prøve blodprøve pt de"
)
ENDS = _listed(
    "resting ruhe absolut absolute abs quant admission value val wert result ergebnis res num numeric "
    "baseline bl serum plasma aufnahme visit level conc concentration konzentration spiegel i.s is im "
    "blood blut in at bei s p b lab raw "
    "sérique plasmatique sanguin sanguine sang valeur résultat admission repos entrée sérico sérica suero "
    "plasmático plasmática sangre valor resultado ingreso sanguíneo sanguínea soro sangue admissão sierico "
    "sierica siero plasmatico plasmatica valore risultato ingresso bloed waarde uitslag opname blod värde "
    "resultat inläggning værdi verdi indlæggelse innleggelse en em i"
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
    "zscore z percentile perzentile sds ogtt tolerance toleranz poc stix "
    # French
    "urines urinaire urinaires lcr selles salive mère maternel maternelle père conjoint enfant bébé donneur "
    "naissance gestationnel famille familial écart variation perte prise cible objectif idéal limite "
    "commentaire remarque heure jour unité méthode référence norme groupe classe catégorie stade indice "
    "rapport clairance risque antécédent antécédents atcd diagnostic début décès mort durée nombre dernier "
    "dernière premier première précédent mesuré manquant oui non statut traitement médicament "
    "supplémentation effort debout avant après hgpo tolérance "
    # Spanish and Portuguese
    "orina heces madre materno materna padre paterno pareja hijo niño donante recién nacido nacimiento "
    "nacer parto fetal familiar diferencia cambio pérdida ganancia objetivo límite comentario observación "
    "observaciones fecha hora unidad método referencia grupo clase categoría estadio índice cociente "
    "aclaramiento depuración riesgo antecedente antecedentes diagnóstico inicio muerte duración número "
    "máximo máxima mínimo mínima último última primero primera anterior previo medido estado tratamiento "
    "medicación dosis ejercicio esfuerzo antes después sobrecarga tolerancia "
    "urina urinário urinária fezes líquor mãe pai cônjuge filho criança bebê doador nascimento nascer "
    "diferença mudança perda ganho meta ideal comentário observação unidade referência classe "
    "categoria estágio razão relação depuração clearance risco antecedentes início óbito morte duração "
    "primeiro primeira estado tratamento medicação dose exercício esforço depois após tolerância "
    # Italian
    "urinario urinaria feci madre padre coniuge figlio bambino neonato donatore nascita famiglia familiare "
    "differenza variazione cambiamento perdita aumento obiettivo ideale limite commento nota note ora "
    "giorno unità metodo riferimento gruppo classe categoria stadio rapporto rischio anamnesi diagnosi "
    "esordio morte decesso durata numero massimo massima minimo minima ultimo ultima primo prima precedente "
    "misurato stato terapia trattamento farmaco esercizio sforzo dopo carico tolleranza "
    # Dutch
    "ontlasting speeksel moeder vader kind donor pasgeborene geboorte zwangerschap familie verschil "
    "verandering verlies toename streefwaarde streefgewicht doel grens opmerking datum tijd tijdstip dag "
    "eenheid methode referentie groep klasse categorie stadium verhouding klaring risico "
    "voorgeschiedenis diagnose begin overlijden dood duur aantal maximaal minimaal laatste eerste vorige "
    "bron gemeten ontbreekt nee behandeling medicatie dosering inspanning staand voor tolerantie "
    # Swedish, Danish and Norwegian
    "avföring fæces avføring saliv spyt spytt mor moder far fader barn spädbarn nyfödd nyfødt givare "
    "donator födelse födsel fødsel födelsevikt fødselsvægt fødselsvekt familj familie skillnad förändring "
    "ændring forskel endring forskjell förlust tab tap ökning mål gräns grænse grense kommentar anmärkning "
    "bemærkning merknad tid tidspunkt klockslag dag enhet enhed metod metode referens grupp gruppe klass "
    "klasse kategori stadie kvot ratio risk risiko anamnes anamnese diagnos debut dödsfall død varaktighet "
    "varighed varighet antal antall högsta lägsta højeste laveste høyeste senaste seneste siste första "
    "første föregående forrige källa kilde uppmätt nej nei behandling medicin medisin dos dosis ansträngning "
    "anstrengelse belastning stående före efter etter glukosbelastning"
)
MARKS = re.compile(r"[^0-9a-zγµ+%♀♂]+")
CAMEL = re.compile(r"(?<=[a-zß-ÿ])(?=[A-ZÀ-Þ][a-zß-ÿ])")
CODE = re.compile(rf"(?<![0-9]){LOINC.pattern}(?![0-9])")
FUZZY, LEAST_LETTERS = 0.86, 6  # of two names that differ by a typing error
LEAST_CUT = 4  # letters of a word that is cut without a dot
CUT = re.compile(r"(\w{3,})\.(?=[\s-]|$)")
DOUBLED = re.compile(r"(.)\1+")
READING = re.compile(r"(?<=[a-z]{3})[1-4]$")  # BPXSY2
COUNTS = _listed("count anzahl number zahl")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMatch:
    """Fit of a name to a known one: `exact`, or with other words around it or another spelling, `how`.
    `by_code`: the fit is of a code, and not of words."""

    exact: bool
    how: str
    by_code: bool = False


@lru_cache(maxsize=1 << 14)
def words(text: str) -> tuple[str, ...]:
    """Return the words of a name, in small letters, without marks and accents; German letters spelled out."""
    parted = CAMEL.sub(" ", text) if not text.isupper() else text
    return _parted(parted)


def _parted(text: str) -> tuple[str, ...]:
    return tuple(word for word in MARKS.split(folded_letters(text)) if word)


def joined(text: str) -> str:
    """Return a name as one word of letters and digits."""
    return "".join(words(text))


def bare_names(header: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of a header without its unit, then without words that change no meaning, the longest
    first."""
    named = split_unit(header).name
    yield from _stripped(words(named))
    if named.lower() != named:  # HbA1c is not hb a1c
        yield from _stripped(_parted(named))


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


def may_count_measurements(header: str) -> bool:
    """Return True if a header may be about how often something was measured."""
    return bool(COUNTS.intersection(words(header)))


def match_name(header: str, known: Iterable[str]) -> NameMatch | None:
    """Return the fit of a header to one of some names of a measurement; None if it has none of them."""
    names = [words(name) for name in known]
    keys, bags = {"".join(name) for name in names}, {tuple(sorted(name)) for name in names}
    bare = list(dict.fromkeys(bare_names(header)))
    for found in bare:
        if "".join(found) in keys or tuple(sorted(found)) in bags:
            return NameMatch(exact=True, how="by its name")
    others = OTHER.intersection(bare[0])
    if not others and (how := _abbreviated(header, bare, names)):
        return NameMatch(exact=False, how=how)
    names = [name for name in names if others <= set(name)]  # body mass index
    for found in bare:
        for name in names:
            long_enough = len("".join(name)) >= 3
            if long_enough and len(found) > len(name) and set(name) <= set(found):
                return NameMatch(exact=False, how=f"as it has the word {' '.join(name)!r}")
    whole = "".join(bare[0])
    for key in sorted(map("".join, names)):
        if _spelled_alike(whole, key):
            return NameMatch(exact=False, how=f"as it is spelled much like {key!r}")
    return None


def _spelled_alike(one: str, other: str) -> bool:
    """Return True if two names may be one with a typing error."""
    shorter, longer = sorted((len(one), len(other)))
    if shorter < LEAST_CUT or longer > 2 * shorter:
        return False
    if shorter < longer and DOUBLED.sub(r"\1", one) == DOUBLED.sub(r"\1", other):
        return True
    if shorter < LEAST_LETTERS or 2 * shorter < FUZZY * (shorter + longer):  # then no ratio is enough
        return False
    alike = SequenceMatcher(None, one, other)
    return alike.quick_ratio() >= FUZZY and alike.ratio() >= FUZZY


def _abbreviated(header: str, bare: Iterable[tuple[str, ...]], names: Iterable[tuple[str, ...]]) -> str:
    """Return how a header is a name with words cut, or one of several readings; empty if it is neither."""
    dotted = {folded_letters(one) for one in CUT.findall(header)}
    for found in bare:
        reading = READING.sub("", "".join(found))
        for name in names:
            if reading == "".join(name):
                return f"as one of several readings of {' '.join(name)!r}"
            if len(found) == len(name) and all(
                one == word or (word.startswith(one) and (one in dotted or len(one) >= LEAST_CUT))
                for one, word in zip(found, name, strict=True)
            ):
                return f"as it may be short for {' '.join(name)!r}"
    return ""
