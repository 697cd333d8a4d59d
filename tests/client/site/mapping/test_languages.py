"""Headers of hospitals in eight more languages are found; a name of two measurements is a question."""

from __future__ import annotations

import unicodedata
from collections import defaultdict

import pytest

from eigenveil_client.records.tables.units import split_unit
from eigenveil_client.site.mapping.matching import confirmed, propose
from eigenveil_client.site.mapping.measurements import languages
from eigenveil_client.site.mapping.measurements.concepts import CONCEPTS
from eigenveil_client.site.mapping.measurements.names import joined
from eigenveil_client.site.mapping.targets import names_of
from tests.client.site.mapping.test_matching import DICTIONARY, KNOWN, middle, numbers, of_words, only

TARGETS = {one.column.name: one for one in KNOWN.values()}
HEADERS = {
    "French": {
        "Âge (ans)": "age", "Poids": "body_weight", "Tour de taille (cm)": "waist_circumference",
        "IMC": "bmi", "PAS": "systolic_bp", "PAD mmHg": "diastolic_bp", "TAS": "systolic_bp",
        "Fréquence cardiaque": "heart_rate", "Natrémie": "sodium", "Kaliémie (mmol/L)": "potassium",
        "Créat µmol/L": "creatinine", "Créatinine sérique (mg/L)": "creatinine", "DFG": "egfr",
        "Glycémie (g/L)": "glucose", "Cholestérol total (g/L)": "total_cholesterol",
        "Phosphatases alcalines (UI/L)": "alkaline_phosphatase", "GB (G/L)": "wbc", "VGM": "mcv",
        "TCMH": "mch", "CCMH (g/dL)": "mchc", "Plaquettes (G/L)": "platelets",
        "Hémoglobine (g/dL)": "hemoglobin", "Hématocrite (%)": "hematocrit",
    },
    "Spanish": {
        "Edad en años": "age", "Peso (kg)": "body_weight", "Talla (cm)": "body_height",
        "Presión arterial sistólica": "systolic_bp", "TAD": "diastolic_bp", "Sodio": "sodium",
        "Frecuencia cardíaca (lpm)": "heart_rate", "Potasio (mEq/L)": "potassium",
        "Creatinina en sangre (mg/dL)": "creatinine", "Ácido úrico (mg/dL)": "uric_acid",
        "Glucemia (mg/dL)": "glucose", "Colesterol HDL (mg/dL)": "hdl_cholesterol",
        "Triglicéridos (mg/dL)": "triglycerides", "Hierro (µg/dL)": "iron", "Plaquetas": "platelets",
        "Fosfatasa alcalina (UI/L)": "alkaline_phosphatase", "Leucocitos (10^3/mm3)": "wbc",
        "Hematíes": "rbc", "VCM": "mcv", "CHCM (g/dL)": "mchc", "Neutrófilos (10^3/µL)": "neutrophils",
    },
    "Portuguese": {
        "Idade (anos)": "age", "Altura (cm)": "body_height", "Circunferência abdominal (cm)":
        "waist_circumference", "Pressão sistólica": "systolic_bp", "Frequência respiratória (rpm)":
        "respiratory_rate", "Saturação de oxigênio": "oxygen_saturation", "Sódio": "sodium",
        "Potássio": "potassium", "Creatinina sérica (mg/dL)": "creatinine", "Glicose (mg/dL)": "glucose",
        "Hemoglobina glicada (%)": "hba1c", "Colesterol LDL (mg/dL)": "ldl_cholesterol",
        "Cálcio total (mg/dL)": "calcium", "Fósforo (mg/dL)": "phosphate", "Ferro (µg/dL)": "iron",
        "TGP (U/L)": "alt", "TGO (U/L)": "ast", "DHL (U/L)": "ldh", "Leucócitos (/mm3)": "wbc",
        "Hemácias": "rbc", "VPM": "mpv", "Linfócitos (10^3/µL)": "lymphocytes",
    },
    "Italian": {
        "Età": "age", "Eta (anni)": "age", "Peso": "body_weight", "Altezza cm": "body_height",
        "Circonferenza vita (cm)": "waist_circumference", "Pressione arteriosa sistolica": "systolic_bp",
        "Glicemia (mg/dL)": "glucose", "Azoto": "", "Sodiemia": "sodium", "Potassio": "potassium",
        "Creatininemia (mg/dL)": "creatinine", "Uricemia (mg/dL)": "uric_acid",
        "Colesterolo totale (mg/dL)": "total_cholesterol", "Trigliceridi (mg/dL)": "triglycerides",
        "Bilirubina diretta (mg/dL)": "direct_bilirubin", "Sideremia (µg/dL)": "iron",
        "Emoglobina glicata (%)": "hba1c", "Emoglobina (g/dL)": "hemoglobin", "Ematocrito": "hematocrit",
        "Globuli bianchi (10^3/µL)": "wbc", "Piastrine (10^3/µL)": "platelets", "Emazie": "rbc",
    },
    "Dutch": {
        "Leeftijd (jaar)": "age", "Gewicht (kg)": "body_weight", "Lengte (cm)": "body_height",
        "Systolische bloeddruk": "systolic_bp", "Onderdruk": "diastolic_bp", "Hartslag": "heart_rate",
        "Ademhalingsfrequentie": "respiratory_rate", "Temperatuur": "body_temperature",
        "kreatinine (µmol/L)": "creatinine", "kreat µmol/l": "creatinine", "Urinezuur (mmol/L)": "uric_acid",
        "Totaal cholesterol (mmol/L)": "total_cholesterol", "Triglyceriden (mmol/L)": "triglycerides",
        "Totaal eiwit (g/L)": "total_protein", "IJzer (µmol/L)": "iron",
        "Alkalische fosfatase (E/L)": "alkaline_phosphatase", "Leukocyten (10^9/L)": "wbc",
        "Hematocriet (L/L)": "hematocrit", "Trombocyten (10^9/L)": "platelets", "Erytrocyten": "rbc",
    },
    "Swedish": {
        "Ålder (år)": "age", "Vikt": "body_weight", "Längd (cm)": "body_height", "Langd cm": "body_height",
        "Midjemått (cm)": "waist_circumference", "Systoliskt blodtryck": "systolic_bp",
        "Hjärtfrekvens": "heart_rate", "Andningsfrekvens": "respiratory_rate",
        "S-Kreatinin (µmol/L)": "creatinine", "P-Glukos (mmol/L)": "glucose", "B-HbA1c (mmol/mol)": "hba1c",
        "Kolesterol (mmol/L)": "total_cholesterol", "P-Kalcium (mmol/L)": "calcium",
        "P-Järn (µmol/L)": "iron", "LPK (10^9/L)": "wbc", "EPK": "rbc", "EVF": "hematocrit",
        "TPK (10^9/L)": "platelets", "B-Hb (g/L)": "hemoglobin", "Fritt T4 (pmol/L)": "free_t4",
    },
    "Danish": {
        "Alder": "age", "Vægt (kg)": "body_weight", "Højde (cm)": "body_height", "Hoejde cm": "body_height",
        "Taljemål (cm)": "waist_circumference", "Systolisk blodtryk": "systolic_bp",
        "Diastolisk BT": "diastolic_bp", "Hvilepuls": "heart_rate", "Iltmætning": "oxygen_saturation",
        "Urinsyre (mmol/L)": "uric_acid", "Blodsukker (mmol/L)": "glucose", "P-Klorid": "chloride",
        "Hydrogencarbonat": "bicarbonate", "Fosfat (mmol/L)": "phosphate", "Jern (µmol/L)": "iron",
        "Basisk fosfatase (U/L)": "alkaline_phosphatase", "Hæmoglobin (mmol/L)": "hemoglobin",
        "Hæmatokrit": "hematocrit", "Leukocytter (10^9/L)": "wbc", "Trombocytter (10^9/L)": "platelets",
    },
    "Norwegian": {
        "Alder (år)": "age", "Vekt (kg)": "body_weight", "Høyde (cm)": "body_height",
        "Livvidde (cm)": "waist_circumference", "Systolisk blodtrykk": "systolic_bp",
        "Diastolisk blodtrykk": "diastolic_bp", "Respirasjonsfrekvens": "respiratory_rate",
        "Kroppstemperatur": "body_temperature", "Oksygenmetning": "oxygen_saturation",
        "Kalsium (mmol/L)": "calcium", "Glukose i blod (mmol/L)": "glucose",
        "Triglyserider (mmol/L)": "triglycerides", "Totalprotein (g/L)": "total_protein",
        "Fritt T4 (pmol/L)": "free_t4", "Kobalamin (pmol/L)": "vitamin_b12", "Laktat": "lactate",
        "Erytrocytter": "rbc", "Hvite blodceller (10^9/L)": "wbc", "Blodplater (10^9/L)": "platelets",
        "Lymfocytter (10^9/L)": "lymphocytes",
    },
}  # fmt: skip


@pytest.mark.parametrize("language", HEADERS)
def test_headers_of_a_language_are_their_measurement(language: str) -> None:
    for header, name in HEADERS[language].items():
        if not name:
            assert not propose([numbers(header, 15)], DICTIONARY), header
            continue
        target = TARGETS[name]
        unit = split_unit(header).unit or target.column.unit
        column = numbers(header, _usual(name, unit), width=0.02)
        for spelled in (header, header.upper(), unicodedata.normalize("NFD", header)):
            found = only(numbers(spelled, column.median or 0, width=0.02))
            assert found.column == name, spelled
            assert found.certain or "its unit is not stated" in found.question, (spelled, found.question)


def _usual(name: str, unit: str) -> float:
    concept = next(one for one in CONCEPTS if one.name == name)
    same = {"ug/L": "ng/mL", "ng/L": "pg/mL", "meq/L": "mmol/L"}
    return middle(concept, unit if unit in concept.units else same.get(unit, concept.unit))


def test_no_name_is_of_two_measurements() -> None:
    sure, near = defaultdict(set), defaultdict(set)
    for concept in CONCEPTS:
        for name in names_of(concept):
            sure[joined(name)].add(concept.name)
        for name in (*concept.near, *languages.NEAR.get(concept.name, ())):
            near[joined(name)].add(concept.name)
    assert not {name: ones for name, ones in sure.items() if len(ones) > 1}
    assert not sure.keys() & near.keys()
    assert {*languages.NAMES, *languages.NEAR} <= {one.name for one in CONCEPTS}


@pytest.mark.parametrize("name", languages.NAMES)
def test_every_name_is_its_measurement(name: str) -> None:
    for spelled in languages.NAMES[name]:
        found = only(numbers(spelled, _usual(name, TARGETS[name].column.unit), width=0.02))
        assert found.column == name, spelled
        assert found.certain or "its unit is not stated" in found.question, (spelled, found.question)


@pytest.mark.parametrize(
    ("header", "value", "name"),
    [
        *[("Taille", 171, "body_height"), ("taille", 92, "waist_circumference"), ("Ht", 171, "body_height")],
        *[("Ht", 41, "hematocrit"), ("TA", 128, "systolic_bp"), ("TA", 36.8, "body_temperature")],
        *[("Urée (mmol/L)", 5.5, "urea_nitrogen"), ("Ureum (mmol/L)", 6, "urea_nitrogen")],
        *[("Urea (mg/dL)", 20, "urea_nitrogen"), ("TS", 130, "systolic_bp"), ("Fe (µg/dL)", 80, "iron")],
        *[("AP (U/l)", 80, "alkaline_phosphatase"), ("PA", 130, "systolic_bp"), ("Glycémie à jeun (g/L)", 1,
          "glucose"), ("TP (g/dL)", 7, "total_protein"), ("PCR (mg/L)", 5, "crp")],
    ],
)  # fmt: skip
def test_a_name_of_two_meanings_is_a_question_about_the_likelier(
    header: str, value: float, name: str
) -> None:
    found = only(numbers(header, value, width=0.02))
    assert (found.column, found.certain) == (name, False)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *[("Glucose urinaire", 100), ("Âge de la mère", 45), ("Perte de poids", 60), ("Peso ideal", 70)],
        *[("Peso al nacimiento", 60), ("Creatinina orina", 1), ("Idade do pai", 60)],
        *[("Età alla diagnosi", 50)],
        *[("Streefgewicht", 70), ("Leeftijd moeder", 50), ("Vikt före", 70), ("Målvikt", 70)],
        *[("Alder ved død", 70), ("Moders alder", 50), ("Høyde far", 178), ("Glycémie HGPO", 110)],
    ],
)  # fmt: skip
def test_another_measurement_with_the_name_inside_is_never_sure(header: str, value: float) -> None:
    assert not any(one.certain for one in propose([numbers(header, value, width=0.02)], DICTIONARY))


@pytest.mark.parametrize(
    ("header", "female", "male"),
    [
        *[("Sexe", "F", "H"), ("Sexe", "Féminin", "Masculin"), ("Sexo", "M", "H")],
        *[("Género", "Mujer", "Varón")],
        *[("Sexo", "Feminino", "Masculino"), ("Sesso", "femmina", "maschio"), ("Geslacht", "vrouw", "man")],
        *[("Kön", "Kvinna", "Man"), ("Kon", "K", "M"), ("Køn", "Kvinde", "Mand")],
        *[("Kjønn", "Kvinne", "Mann")],
    ],
)  # fmt: skip
def test_words_of_sex_are_its_levels(header: str, female: str, male: str) -> None:
    found = only(of_words(header, female, male))
    assert (found.certain, dict(found.levels)) == (True, {female: "female", male: "male"})
    stated = confirmed(of_words(header, female, male), TARGETS["sex"])
    assert dict(stated.levels) == {female: "female", male: "male"}


def test_m_beside_v_is_a_question_without_levels() -> None:
    found = only(of_words("Sexo", "M", "V"))
    assert (found.certain, found.levels) == (False, ())
