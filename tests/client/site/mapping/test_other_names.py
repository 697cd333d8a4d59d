"""Names from published data sets and hospitals' lists, which no test of this folder made; and names that only
look like a measurement of the dictionary."""

from __future__ import annotations

from collections import Counter

import pytest

from eigenveil_client.records.discovery.columns import SeenColumn, seen_column
from eigenveil_client.records.discovery.words import Marks
from eigenveil_client.site.mapping.matching import propose
from tests.client.site.mapping.test_matching import DICTIONARY, numbers

MEASUREMENTS = [
    ("heartrate", 78, "heart_rate"), ("spo2", 96, "oxygen_saturation"),
    ("tempc", 36.9, "body_temperature"), ("SODIUM", 139, "sodium"), ("admission_age", 62, "age"),
    ("trestbps", 131, "systolic_bp"), ("chol", 246, "total_cholesterol"), ("Glucose", 121, "glucose"),
    ("Insulin", 80, "insulin"), ("totChol", 236, "total_cholesterol"), ("sysBP", 132, "systolic_bp"),
    ("diaBP", 82, "diastolic_bp"), ("heartRate", 75, "heart_rate"), ("Alter (J)", 61, "age"),
    ("Größe in cm", 171, "body_height"), ("RR_syst_mmHg", 134, "systolic_bp"),
    ("Puls/min", 74, "heart_rate"), ("Kreatinin i.S. (mg/dl)", 1.0, "creatinine"),
    ("Leukozyten Tsd/µl", 7.1, "wbc"), ("Hb g/dl", 13.4, "hemoglobin"), ("GFR (CKD-EPI)", 77, "egfr"),
    ("Gamma-GT", 31, "ggt"), ("CRP quant. mg/l", 5, "crp"), ("AF/min", 15, "respiratory_rate"),
    ("SpO2 %", 96, "oxygen_saturation"), ("BZ nüchtern", 99, "glucose"),
    ("LDL-Chol.", 121, "ldl_cholesterol"), ("Thrombozyten G/l", 244, "platelets"),
    ("Erythrozyten T/l", 4.6, "rbc"), ("Hämatokrit %", 41, "hematocrit"),
    ("TSH basal µU/ml", 1.6, "tsh"), ("Vitamin D (25-OH) ng/ml", 24, "vitamin_d"),
    ("Weight (lbs)", 171, "body_weight"), ("Height (inches)", 67, "body_height"),
    ("Body Mass Index (kg/m^2)", 27, "bmi"), ("Systolic Blood Pressure, mmHg", 129, "systolic_bp"),
    ("BP_SYSTOLIC_1", 128, "systolic_bp"), ("HbA1c_IFCC_mmol_mol", 42, "hba1c"),
    ("creatinine_umol_per_l", 82, "creatinine"), ("eGFR_CKDEPI", 80, "egfr"),
    ("Serum Potassium (mEq/L)", 4.2, "potassium"), ("ALT(SGPT) U/L", 25, "alt"),
    ("Alk Phos", 80, "alkaline_phosphatase"), ("WBC x10^3/uL", 7, "wbc"),
    ("Platelet Count (10^9/L)", 240, "platelets"), ("Fasting glucose mg/dL", 97, "glucose"),
    ("HDL chol mmol/L", 1.35, "hdl_cholesterol"), ("MCHC g/dL", 33, "mchc"),
    ("albumin/creatinine ratio", 20, "albumin_creatinine_ratio"),
    ("UACR mg/g", 20, "albumin_creatinine_ratio"), ("free T4 pmol/L", 15, "free_t4"),
    ("hs-CRP mg/L", 1.5, "hs_crp"), ("Hb (mmol/L)", 8.4, "hemoglobin"), ("age_months", 640, "age"),
    ("hr_resting", 65, "heart_rate"), ("resting heart rate", 66, "heart_rate"),
    ("lactate_dehydrogenase", 210, "ldh"), ("bilirubin_direct umol/l", 3, "direct_bilirubin"),
    ("Bili ges. (µmol/l)", 12, "total_bilirubin"), ("Lymphozyten absolut", 2, "lymphocytes"),
    ("egfr_ml_min_1_73m2", 77, "egfr"), ("egfr.mL.min.1.73.m.2.", 77, "egfr"),
    ("plt_10_9_l", 240, "platelets"), ("wbc_10_3_ul", 7.1, "wbc"), ("wbc_cells_per_ul", 7100, "wbc"),
    ("rbc_10_12_l", 4.6, "rbc"), ("resp_rate_per_min", 16, "respiratory_rate"), ("bmi_kg_m2", 27, "bmi"),
    ("NIBP sys", 128, "systolic_bp"), ("NBPd", 78, "diastolic_bp"), ("Pulse ox", 96, "oxygen_saturation"),
    ("Body wt", 78, "body_weight"), ("Plt count", 240, "platelets"), ("WBC count", 7.1, "wbc"),
    ("Leukozytenzahl", 7.1, "wbc"), ("Absolute neutrophils", 4.2, "neutrophils"),
    ("Lymphocyte count", 1.9, "lymphocytes"),
]  # fmt: skip
QUESTIONS = [
    ("Triglyz.", 130, "triglycerides"), ("Alk. Phosphatase", 80, "alkaline_phosphatase"),
    ("Fibr.", 310, "fibrinogen"), ("Kreatin.", 1.0, "creatinine"), ("Neutro abs.", 4.2, "neutrophils"),
    ("Körpergew.", 78, "body_weight"), ("Potass", 4.2, "potassium"), ("pulse_min", 74, "heart_rate"),
    ("ABP sys", 128, "systolic_bp"), ("BPXSY3", 128, "systolic_bp"), ("BPXODI2", 72, "diastolic_bp"),
    ("Body-Mmass-Index", 27, "bmi"), ("Pullse", 74, "heart_rate"),
]  # fmt: skip
OTHERS = [
    ("anion_gap", 12), ("thalach", 149), ("BloodPressure", 69), ("cigsPerDay", 9), ("Quick", 92),
    ("2h glucose", 130), ("Cholesterol/HDL ratio", 3.8), ("non_hdl", 140), ("vldl", 25),
    ("urine_albumin", 20), ("spot urine sodium", 90), ("T3", 1.2), ("NT-proBNP", 300), ("MAP", 93),
    ("pulse_pressure", 50), ("ca_125", 20), ("ca19-9", 20), ("vit_k", 1), ("na_f", 139),
    ("k_faktor", 4.1), ("fe_percent", 30), ("mg_dose", 2.0), ("BMI_z", 0.2), ("waist_hip", 0.9),
    ("hip_cm", 101), ("lean_weight", 55), ("dry weight", 74), ("weight_change", 2),
    ("ideal_body_weight", 65), ("birthweight", 3.4), ("age_father", 61), ("age_menarche", 13),
    ("age at diagnosis", 52), ("smoking_age", 18), ("height_sd", 0.1), ("temp_max", 38),
    ("glucose_nadir", 60), ("sbp_target", 130), ("hemoglobin_delta", 1.1), ("sodium_intake", 140),
    ("potassium_intake", 4), ("protein_intake", 7), ("CK-MB", 20), ("troponin", 10), ("INR target", 2.5),
    ("iron_sat", 30), ("LDL/HDL", 2.2), ("Neutrophile %", 60), ("Lympho %", 28), ("eos %", 2),
    ("wbc_count", 5), ("Anzahl Neutrophile", 4), ("glucose_1_min", 100), ("sbp2", 128), ("Phos.", 80),
    ("Body fat index", 27), ("NIBP mean", 93), ("alt_count", 25),
]  # fmt: skip
PROPOSED, CERTAIN = 0.95, 0.8  # least shares


def test_measurements_are_proposed_and_most_without_a_question() -> None:
    found = [
        (name, propose([numbers(header, value, width=0.02)], DICTIONARY))
        for header, value, name in MEASUREMENTS
    ]
    right = [one for name, ones in found for one in ones if one.column == name]
    assert len(right) >= PROPOSED * len(MEASUREMENTS)
    assert sum(one.certain for one in right) >= CERTAIN * len(MEASUREMENTS)
    assert not [one for name, ones in found for one in ones if one.column != name and one.certain]


@pytest.mark.parametrize(("header", "value", "name"), QUESTIONS)
def test_shortened_and_repeated_names_are_questions(header: str, value: float, name: str) -> None:
    found = propose([numbers(header, value, width=0.02)], DICTIONARY)
    assert [(one.column, one.certain) for one in found] == [(name, False)]


@pytest.mark.parametrize(("header", "value"), OTHERS)
def test_other_columns_are_never_certain(header: str, value: float) -> None:
    whole = "count" in header or "Anzahl" in header
    column = numbers(header, value) if not whole else counts(header, int(value))
    assert not any(one.certain for one in propose([column], DICTIONARY))


def counts(header: str, middle: int) -> SeenColumn:
    """A column of whole numbers near `middle`."""
    words = Counter({str(middle - 1): 60, str(middle): 80, str(middle + 1): 60})
    return seen_column(header, words, Marks())
