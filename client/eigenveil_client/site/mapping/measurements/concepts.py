"""Common measurements: their names in English and German, codes, the units in which hospitals record them,
and the medians that groups of adults have.

A name is compared without case, blanks and marks. Factors lead to the first unit; they are 1 / (10 x g/mol)
or the like, and exact definitions where there are some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

Linear = tuple[float, float]  # factor and offset


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementConcept:
    """Measurement by its `name` in the packaged dictionary. `names` are other names for it; `near` are names
    that may be another measurement. `units` lead to the first of them by a factor and an offset; `rare` are
    those that hospitals state wherever they use them. `typical` are the bounds of the median of a group of
    adults, in the first unit. `loinc` and `omop` are codes."""

    name: str
    names: tuple[str, ...]
    units: Mapping[str, Linear]
    typical: tuple[float, float]
    near: tuple[str, ...] = ()
    loinc: tuple[str, ...] = ()
    omop: tuple[int, ...] = ()
    rare: frozenset[str] = frozenset()

    @property
    def unit(self) -> str:
        """The first unit."""
        return next(iter(self.units))

    def conversion(self, given: str, wanted: str) -> Linear | None:
        """Return the factor and the offset from one unit to another; None if one is unknown here."""
        if given not in self.units or wanted not in self.units:
            return None
        (factor, offset), (other, shift) = self.units[given], self.units[wanted]
        return factor / other, (offset - shift) / other


def _measured(
    name: str,
    units: str,
    typical: tuple[float, float],
    names: str,
    *,
    near: str = "",
    codes: str = "",
    omop: int = 0,
    molar: float = 0.0,
    others: Mapping[str, Linear] = MappingProxyType({}),
) -> MeasurementConcept:
    """Return a concept from texts; `units` are `unit=factor`, with ! before a rare one; `molar` (g/mol) adds
    those of a substance."""
    rare = frozenset(one.lstrip("!").partition("=")[0] for one in units.split() if one.startswith("!"))
    linear = {
        unit: (float(factor or 1), 0.0)
        for unit, _, factor in (one.lstrip("!").partition("=") for one in units.split())
    }
    if molar:  # in mg/dL
        linear |= {"mmol/L": (molar / 10, 0.0), "umol/L": (molar / 10_000, 0.0)}
    linear |= others
    known, unsure = _split(names), _split(near)
    if "/min" in linear:  # or their minimum
        unsure += tuple(f"{one} min" for one in known)
    if "10*" in units:
        known += tuple(_counted(known))
    return MeasurementConcept(
        name=name, names=known, near=unsure, units=MappingProxyType(linear), typical=typical,
        loinc=tuple(codes.split()), omop=(omop,) if omop else (), rare=rare,
    )  # fmt: skip


def _counted(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of the number of cells in blood."""
    for one in dict.fromkeys(cell for name in names for cell in (name, name.removesuffix("s"))):
        yield from (f"{one} count", f"{one} zahl", f"anzahl {one}")
        yield from (f"absolute {one}", f"abs {one}", f"{one} abs", f"absolute {one} count")


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


MG = "mg/dL !mg/L=0.1 !g/L=100"
ENZYME = "U/L !ukat/L=60"
CELLS = "10*3/uL /uL=0.001 !g/L=1"  # G/l, which is written like gram
_BODY = (
    _measured("age", "a !mo=0.08333333333333333 !d=0.0027378507871321013", (18, 90),
              "age, age years, age yrs, alter, patientenalter, lebensalter, age at visit, age at inclusion, "
              "alter in jahren, alter bei aufnahme, pat alter, patient age, ridageyr", codes="30525-0"),
    _measured("body_weight", "kg !g=0.001 [lb_av]=0.45359237", (50, 110),
              "body weight, weight, wt, bw, gewicht, körpergewicht, kg, kgewicht, bodyweight, bmxwt, "
              "pat gewicht, body wt", codes="29463-7 3141-9", omop=3025315),
    _measured("body_height", "cm m=100 ![in_i]=2.54", (150, 190),
              "body height, height, größe, groesse, körpergröße, koerpergroesse, kgröße, stature, "
              "körperlänge, körperhöhe, bmxht, pat größe, body ht", near="länge, length", codes="8302-2",
              omop=3036277),
    _measured("bmi", "kg/m2", (20, 36), "bmi, body mass index, bodymassindex, bmxbmi, quetelet",
              codes="39156-5", omop=3038553),
    _measured("waist_circumference", "cm [in_i]=2.54", (70, 120),
              "waist circumference, waist, taillenumfang, bauchumfang, bmxwaist", near="umfang",
              codes="56086-2 8280-0"),
    _measured("head_circumference", "cm", (50, 60), "head circumference, kopfumfang, "
              "bmxhead", codes="9843-4"),
    _measured("systolic_bp", "mm[Hg] !kPa=7.500616827", (105, 160),
              "systolic bp, sbp, sys bp, sysbp, systolic, systolic blood pressure, bp systolic, bp sys, "
              "rr sys, "
              "rr syst, rr systolisch, blutdruck systolisch, blutdruck syst, systolischer blutdruck, "
              "syst rr, "
              "systole, bpsys, psys, bpxsy, bpxosy, bpxosy1, nibp sys, nibp syst, nibp systolic, nibps, "
              "nbp sys, nbp systolic, nbps, non invasive blood pressure systolic, non invasive bp systolic",
              near="abp sys, abp syst, abp systolic, abps, art sys, ibp sys, bps, bp, rr, "
                   "blutdruck, blood pressure, sys, syst",
              codes="8480-6", omop=3004249),
    _measured("diastolic_bp", "mm[Hg] !kPa=7.500616827", (60, 100),
              "diastolic bp, dbp, dia bp, diabp, diastolic, diastolic blood pressure, bp diastolic, bp dia, "
              "rr dia, rr diast, rr diastolisch, blutdruck diastolisch, blutdruck diast, "
              "diastolischer blutdruck, diast rr, diastole, bpdia, pdia, bpxdi, bpxodi, bpxodi1, nibp dia, "
              "nibp diast, nibp diastolic, nibpd, nbp dia, nbp diastolic, nbpd, "
              "non invasive blood pressure diastolic, non invasive bp diastolic",
              near="abp dia, abp diast, abp diastolic, abpd, art dia, ibp dia, bpd, dia, diast",
              codes="8462-4", omop=3012888),
    _measured("heart_rate", "/min", (55, 105),
              "heart rate, hr, pulse, ruhepuls, pulse rate, puls, herzfrequenz, hf, pulsfrequenz, heartrate",
              codes="8867-4", omop=3027018),
    _measured("respiratory_rate", "/min", (11, 26),
              "respiratory rate, resp rate, respiration rate, rr resp, atemfrequenz, respiration, resp",
              codes="9279-1", omop=3024171),
    _measured("body_temperature", "Cel", (35.8, 38.2),
              "body temperature, temperature, temp, körpertemperatur, temperatur, kt, body temp, temp c",
              codes="8310-5", omop=3020891,
              others={"[degF]": (5 / 9, -160 / 9)}),
    _measured("oxygen_saturation", "%", (88, 100),
              "oxygen saturation, spo2, sao2, sauerstoffsättigung, o2 sättigung, o2 sat, o2sat, saturation, "
              "pulse ox, pulse oximetry, pulsoxymetrie",
              codes="59408-5 2708-6"),
)  # fmt: skip
_SUBSTANCES = (
    _measured("sodium", "mmol/L", (132, 146), "sodium, na, natrium, na+", codes="2951-2", omop=3019550),
    _measured("potassium", "mmol/L", (3.3, 5.2), "potassium, k, kalium, k+", codes="2823-3", omop=3023103),
    _measured("chloride", "mmol/L", (94, 110), "chloride, cl, chlorid, cl-", codes="2075-0", omop=3014576),
    _measured("bicarbonate", "mmol/L", (20, 30), "bicarbonate, hco3, bikarbonat, bicarbonat, hco3-",
              near="co2", codes="2028-9 1963-8"),
    _measured("urea_nitrogen", "mg/dL mmol/L=2.8014", (8, 30),
              "urea nitrogen, bun, blood urea nitrogen, harnstoff n, harnstoffstickstoff, "
              "harnstoff stickstoff",
              near="urea, harnstoff, hst", codes="3094-0 14937-7", omop=3013682),
    _measured("creatinine", MG, (0.55, 2.2),
              "creatinine, creat, crea, cr, kreatinin, krea, creatinin, scr, serum creatinine, kreatinin i s",
              codes="2160-0 14682-9", omop=3016723, molar=113.12),
    _measured("egfr", "mL/min/{1.73_m2}", (35, 115),
              "egfr, gfr, gfr ckd epi, estimated gfr, egfr ckd epi, egfr ckdepi, egfr mdrd, ckd epi, "
              "glomeruläre filtrationsrate",
              codes="98979-8 33914-3"),
    _measured("uric_acid", MG, (3.5, 9), "uric acid, urate, harnsäure, hs, harnsaeure, ua",
              codes="3084-1 14933-6", molar=168.11),
    _measured("glucose", MG, (75, 190),
              "glucose, glu, gluc, glukose, blutzucker, bz, blood glucose, blood sugar, glc, plasma glucose, "
              "serum glucose, blutglukose, blutglucose",
              near="fasting glucose, glucose fasting, bz nüchtern, glukose nüchtern, fpg, "
              "nüchternglukose, nüchternblutzucker, nbz, random glucose",
              codes="2345-7 14749-6 2339-0", omop=3004501, molar=180.156),
    _measured("hba1c", "%", (5, 9.5),
              "hba1c, a1c, hgba1c, hb a1c, glycated hemoglobin, hemoglobin a1c, haemoglobin a1c, "
              "gly hb, ghb, "
              "glykiertes hämoglobin, hba1c ifcc, hba1c ngsp", codes="4548-4 59261-8", omop=3004410,
              others={"mmol/mol": (0.09148, 2.152)}),
    _measured("insulin", "u[IU]/mL m[IU]/L=1", (2, 30), "insulin, seruminsulin",
              codes="20448-7"),
    _measured("total_cholesterol", MG, (130, 240),
              "total cholesterol, cholesterol, chol, tc, cholesterin, gesamtcholesterin, cholesterin gesamt, "
              "cholesterol total, tchol, tot chol, totchol, chol ges, ges chol",
              codes="2093-3 14647-2", omop=3027114, molar=386.65),
    _measured("hdl_cholesterol", MG, (33, 75),
              "hdl cholesterol, hdl, hdl c, hdl chol, hdl cholesterin, cholesterol hdl, cholesterin hdl",
              codes="2085-9 14646-4", omop=3007070, molar=386.65),
    _measured("ldl_cholesterol", MG, (65, 165),
              "ldl cholesterol, ldl, ldl c, ldl chol, ldl cholesterin, cholesterol ldl, cholesterin ldl, "
              "ldl calc, ldl direct", codes="2089-1 13457-7 22748-8", molar=386.65),
    _measured("triglycerides", MG, (70, 260),
              "triglycerides, trig, tg, triglyzeride, triglyceride, trigs, neutralfette, tgl, trigl",
              codes="2571-8 14927-8", omop=3022192, molar=885.7),
    _measured("calcium", MG, (8, 10.8), "calcium, ca, kalzium, total calcium, gesamtcalcium, ca ges",
              near="ca++, ionized calcium", codes="17861-6 2000-8", omop=3006906, molar=40.078),
    _measured("phosphate", MG, (2.4, 4.9), "phosphate, po4, phosphat, phosphorus, phosphor, phos",
              codes="2777-1 14879-1", molar=30.974),
    _measured("magnesium", MG, (1.5, 2.6), "magnesium, mg, mg++", codes="19123-9 2601-3", molar=24.305),
    _measured("total_protein", "g/dL g/L=0.1", (5.3, 8.2),
              "total protein, gesamteiweiß, gesamteiweiss, gesamtprotein, eiweiß gesamt, prot ges",
              near="protein, eiweiß, eiweiss", codes="2885-2"),
    _measured("albumin", "g/dL g/L=0.1 !mg/dL=0.001", (2.6, 5.2), "albumin, alb, serum albumin",
              codes="1751-7", omop=3024561),
    _measured("total_bilirubin", MG, (0.25, 2), "total bilirubin, bilirubin total, bilirubin, bili, "
              "tbil, tbili, "
              "bilirubin gesamt, gesamtbilirubin, "
              "bili ges", codes="1975-2 14631-6", omop=3024128, molar=584.66),
    _measured("direct_bilirubin", MG, (0.05, 0.8), "direct bilirubin, bilirubin direct, dbil, dbili, "
              "bilirubin direkt, direktes bilirubin, bili dir", codes="1968-7 14629-0", molar=584.66),
    _measured("iron", "ug/dL umol/L=5.5845", (35, 150), "iron, eisen, serum iron", codes="2498-4"),
    _measured("ferritin", "ng/mL ug/L=1", (25, 500), "ferritin, ferr", codes="2276-4"),
    _measured("transferrin", "mg/dL g/L=100", (160, 340), "transferrin, trf", codes="3034-6"),
    _measured("crp", "mg/L mg/dL=10", (0.8, 90), "crp, c reactive protein, c reaktives protein, "
              "c reactive prot", codes="1988-5"),
    _measured("hs_crp", "mg/L mg/dL=10", (0.3, 9), "hs crp, hscrp, high sensitivity crp, crp hs, "
              "hochsensitives crp",
              codes="30522-7"),
    _measured("tsh", "m[IU]/L u[IU]/mL=1", (0.5, 4.5), "tsh, thyrotropin, tsh basal", codes="3016-3"),
    _measured("free_t4", "ng/dL pmol/L=0.0777", (0.7, 1.9), "free t4, ft4, t4 frei, freies t4, "
              "thyroxine free",
              near="t4, thyroxin, thyroxine", codes="3024-7 14920-3"),
    _measured("vitamin_b12", "pg/mL pmol/L=1.3554", (220, 750), "vitamin b12, b12, vit b12, cobalamin, "
              "vitb12",
              codes="2132-9"),
    _measured("vitamin_d", "ng/mL nmol/L=0.4006", (10, 45), "vitamin d, 25 oh vitamin d, vit d, 25ohd, vitd, "
              "25 hydroxyvitamin d, 25 oh d3", codes="62292-8"),
    _measured("lactate", "mmol/L mg/dL=0.111", (0.6, 4), "lactate, laktat, lac, lactat", codes="2524-7"),
    _measured("osmolality", "mosm/kg", (270, 310), "osmolality, osmolalität, osmo, serum osmolality",
              codes="2692-2"),
    _measured("fibrinogen", "mg/dL g/L=100", (220, 550), "fibrinogen, fib", codes="3255-7"),
    _measured("inr", "{INR}", (0.85, 3), "inr, pt inr, inr quick", codes="6301-6"),
    _measured("urine_creatinine", MG, (30, 220), "urine creatinine, creatinine urine, kreatinin im urin, "
              "urin kreatinin, u krea, ucrea, u creat, urinkreatinin, urxucr", codes="2161-8", molar=113.12),
    _measured("albumin_creatinine_ratio", "mg/g mg/mmol=8.84", (2, 300),
              "albumin creatinine ratio, acr, uacr, albumin kreatinin quotient, albumin kreatinin ratio",
              codes="9318-7 14959-1"),
)  # fmt: skip
_ENZYMES = (
    _measured("alkaline_phosphatase", ENZYME, (45, 160), "alkaline phosphatase, alp, alk phos, alkp, "
              "alkalische phosphatase", codes="6768-6"),
    _measured("alt", ENZYME, (12, 70), "alt, sgpt, gpt, alat, alt sgpt, alanine aminotransferase, "
              "gpt alt, alt gpt",
              codes="1742-6", omop=3006923),
    _measured("ast", ENZYME, (14, 70), "ast, sgot, got, asat, ast sgot, aspartate aminotransferase, "
              "got ast, ast got",
              codes="1920-8", omop=3013721),
    _measured("ggt", ENZYME, (12, 120), "ggt, gamma gt, gammagt, γ gt, gamma glutamyltransferase, γgt",
              codes="2324-2"),
    _measured("ldh", ENZYME, (130, 400), "ldh, lactate dehydrogenase, laktatdehydrogenase, ld",
              codes="2532-0 14804-9"),
    _measured("creatine_kinase", ENZYME, (45, 350), "creatine kinase, ck, cpk, kreatinkinase, ck gesamt",
              codes="2157-6"),
    _measured("lipase", ENZYME, (12, 90), "lipase", codes="3040-3"),
    _measured("amylase", ENZYME, (25, 140), "amylase, alpha amylase", codes="1798-8"),
)  # fmt: skip
_BLOOD_COUNT = (
    _measured("wbc", CELLS, (3.8, 13), "wbc, white blood cells, white cells, leukocytes, leukozyten, "
              "leukos, leuko, "
              "white cell count, wcc, leucocytes, "
              "white blood cell count", codes="6690-2 26464-8", omop=3000905),
    _measured("rbc", "10*6/uL", (3.3, 5.6), "rbc, red blood cells, erythrocytes, erythrozyten, erys, ery, "
              "red cells, rcc, red blood cell count", codes="789-8 26453-1"),
    _measured("hemoglobin", "g/dL g/L=0.1 mmol/L=1.6114", (10, 16.2),
              "hemoglobin, haemoglobin, hgb, hb, hämoglobin, "
              "haemoglobin", codes="718-7 59260-0", omop=3000963),
    _measured("hematocrit", "% L/L=100", (30, 48), "hematocrit, haematocrit, hct, hkt, hämatokrit, hk, pcv",
              codes="4544-3 20570-8"),
    _measured("mcv", "fL", (80, 100), "mcv, mean corpuscular volume, "
              "mean cell volume", codes="787-2 30428-7"),
    _measured("mch", "pg fmol=16.114", (26, 34), "mch, hbe, "
              "mean corpuscular hemoglobin", codes="785-6 28539-5"),
    _measured("mchc", "g/dL g/L=0.1 mmol/L=1.6114", (31, 36), "mchc", codes="786-4 28540-3"),
    _measured("rdw", "%", (12, 17), "rdw, rdw cv, red cell distribution width, evb", codes="788-0 30385-9"),
    _measured("platelets", CELLS, (140, 360), "platelets, plt, platelet count, thrombozyten, thrombos, "
              "thrombo, "
              "thrombocytes, plat", codes="777-3 26515-7", omop=3024929),
    _measured("mpv", "fL", (7, 12), "mpv, mean platelet volume", codes="32623-1 28542-9"),
    _measured("neutrophils", CELLS, (2, 9.5), "neutrophils, neut, neutrophile, anc, neutrophil count, "
              "neutrophils abs, neutrophile abs", codes="751-8 26499-4"),
    _measured("lymphocytes", CELLS, (0.8, 3.5), "lymphocytes, lymph, lymphozyten, lympho, alc, lymphs, "
              "lymphocytes abs, lymphozyten abs", codes="731-0 26474-7"),
    _measured("monocytes", CELLS, (0.25, 1.1), "monocytes, mono, monozyten, monos, monocytes abs, "
              "monozyten abs", codes="742-7 26484-6"),
    _measured("eosinophils", CELLS, (0.03, 0.5), "eosinophils, eos, eosinophile, eosinophils abs, "
              "eosinophile abs", codes="711-2 26449-9"),
)  # fmt: skip
CONCEPTS: tuple[MeasurementConcept, ...] = (*_BODY, *_SUBSTANCES, *_ENZYMES, *_BLOOD_COUNT)

# Words of categories, as each level of a dictionary may be written in a file.
LEVEL_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "female": ("female", "f", "w", "weiblich", "frau", "woman", "fem", "♀"),
        "male": ("male", "m", "männlich", "maennlich", "mann", "man", "masc", "♂"),
        "yes": ("yes", "y", "ja", "j", "true"),
        "no": ("no", "n", "nein", "false"),
    }
)
CATEGORY_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sex": (
            "sex",
            "gender",
            "geschlecht",
            "geschl",
            "m f",
            "sex at birth",
            "patient sex",
            "pat geschlecht",
        ),
        "smoker": ("smoker", "smoking", "raucher", "rauchen", "current smoker"),
    }
)
