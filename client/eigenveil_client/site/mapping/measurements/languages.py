"""Names of measurements and of sex in French, Spanish, Portuguese, Italian, Dutch, Swedish, Danish and
Norwegian, as columns of hospitals have them; those in English and German are in `concepts`.

A name that means two things in any of these languages is in `NEAR`: it is a question."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eigenveil_client.site.mapping.measurements.names import unaccented


def _listed(texts: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Return names by what they mean, each also as it is written without accents (kön, kon)."""
    split = {key: [one.strip() for one in text.split(",")] for key, text in texts.items()}
    return MappingProxyType(
        {
            key: tuple(dict.fromkeys(name for one in names for name in (one, unaccented(one))))
            for key, names in split.items()
        }
    )


NAMES = _listed({
    # Body
    "age": "âge, âge du patient, âge en années, edad, edad del paciente, idade, età, leeftijd, ålder, alder",
    "body_weight": "poids, poids corporel, peso, peso corporal, peso corporeo, lichaamsgewicht, vikt, "
                   "kroppsvikt, vægt, kropsvægt, vekt, kroppsvekt",
    "body_height": "talla, estatura, altura, altezza, statura, lengte, lichaamslengte, längd, kroppslängd, "
                   "højde, hoejde, legemshøjde, høyde, hoeyde, kroppshøyde",
    "bmi": "imc, indice de masse corporelle, índice de masa corporal, índice de massa corporal, "
           "indice di massa corporea, queteletindex, kroppsmasseindeks, kroppsmasseindex",
    "waist_circumference": "tour de taille, périmètre abdominal, perímetro abdominal, perímetro de cintura, "
                           "circunferencia de cintura, circunferencia de la cintura, "
                           "circunferência abdominal, circunferência da cintura, perímetro da cintura, "
                           "circonferenza vita, circonferenza addominale, girovita, giro vita, "
                           "middelomtrek, tailleomtrek, buikomvang, midjemått, midjeomfång, taljemål, "
                           "taljeomkreds, midjemål, midjeomkrets, livvidde",
    "head_circumference": "périmètre crânien, perímetro cefálico, perímetro craneal, circonferenza cranica, "
                          "schedelomtrek, hoofdomtrek, huvudomfång, hovedomfang, hodeomkrets",
    "systolic_bp": "pas, tas, systolique, pression artérielle systolique, pression systolique, "
                   "tension artérielle systolique, tension systolique, presión arterial sistólica, "
                   "presión sistólica, tensión arterial sistólica, tensión sistólica, sistólica, "
                   "pa sistólica, ta sistólica, pa systolique, ta systolique, pressão arterial sistólica, "
                   "pressão sistólica, pressione arteriosa sistolica, pressione sistolica, "
                   "systolische bloeddruk, bloeddruk systolisch, bovendruk, systoliskt blodtryck, "
                   "blodtryck systoliskt, bt systoliskt, systolisk blodtryk, blodtryk systolisk, "
                   "systolisk bt, bt systolisk, systolisk blodtrykk, blodtrykk systolisk, systolisk",
    "diastolic_bp": "pad, tad, diastolique, pression artérielle diastolique, pression diastolique, "
                    "tension artérielle diastolique, tension diastolique, presión arterial diastólica, "
                    "presión diastólica, tensión arterial diastólica, tensión diastólica, diastólica, "
                    "pa diastólica, ta diastólica, pa diastolique, ta diastolique, "
                    "pressão arterial diastólica, pressão diastólica, pressione arteriosa diastolica, "
                    "pressione diastolica, diastolische bloeddruk, bloeddruk diastolisch, onderdruk, "
                    "diastoliskt blodtryck, blodtryck diastoliskt, bt diastoliskt, diastolisk blodtryk, "
                    "blodtryk diastolisk, diastolisk bt, bt diastolisk, diastolisk blodtrykk, "
                    "blodtrykk diastolisk, diastolisk",
    "heart_rate": "fc, fréquence cardiaque, pouls, frecuencia cardíaca, pulso, frequência cardíaca, "
                  "frequenza cardiaca, hartslag, hartfrequentie, polsfrequentie, hjärtfrekvens, "
                  "pulsfrekvens, hjertefrekvens, hvilepuls, vilopuls",
    "respiratory_rate": "fréquence respiratoire, frecuencia respiratoria, frequência respiratória, "
                        "frequenza respiratoria, atti respiratori, ademhalingsfrequentie, ademfrequentie, "
                        "andningsfrekvens, respirationsfrekvens, respirasjonsfrekvens",
    "body_temperature": "température, température corporelle, temperatura, temperatura corporal, "
                        "temperatura corporea, temperatuur, lichaamstemperatuur, kroppstemperatur, "
                        "kropstemperatur",
    "oxygen_saturation": "saturation en oxygène, saturation o2, saturación, saturación de oxígeno, sat o2, "
                         "saturação, saturação de oxigênio, saturação de oxigénio, saturazione, "
                         "saturazione o2, saturazione di ossigeno, saturazione ossigeno, zuurstofsaturatie, "
                         "saturatie, syremättnad, syrgasmättnad, iltmætning, oksygenmetning",
    # Substances
    "sodium": "natrémie, sodio, sódio, natremia, sodiemia, sodemia",
    "potassium": "kaliémie, potasio, potássio, potassio, kaliemia, potassiemia",
    "chloride": "chlore, chlorure, chlorures, chlorémie, cloro, cloruro, cloruros, cloreto, cloretos, "
                "cloruri, cloremia, chloor, klorid",
    "bicarbonate": "bicarbonates, bicarbonato, bicarbonati, bicarbonaat, hydrogencarbonat, "
                   "hydrogenkarbonat, vätekarbonat",
    "creatinine": "créatinine, créat, créatinine sérique, créatininémie, creatinina, creatininemia, "
                  "kreatinine, kreat",
    "egfr": "dfg, dfge, dfg estimé, débit de filtration glomérulaire, tfg, tfge, fge, filtrado glomerular, "
            "tasa de filtración glomerular, taxa de filtração glomerular, vfg, vfge, "
            "velocità di filtrazione glomerulare, filtrato glomerulare, glomerulaire filtratiesnelheid, "
            "dfg ckd epi, tfg ckd epi, estimerat gfr, estimeret gfr, estimert gfr",
    "uric_acid": "acide urique, uricémie, ácido úrico, uricemia, urinezuur, uraat, urat, urinsyra, urinsyre",
    "glucose": "glycémie, glucemia, glucosa, glicemia, glicose, glucosio, glukos, glucos, bloedsuiker, "
               "bloedglucose, blodsocker, blodsukker, blodglukose, blodglukos",
    "hba1c": "hémoglobine glyquée, hémoglobine glycosylée, hemoglobina glicosilada, "
             "hemoglobina glucosilada, hemoglobina glicada, emoglobina glicata, emoglobina glicosilata, "
             "geglyceerd hemoglobine, glykerat hemoglobin, glykeret hæmoglobin, glykert hemoglobin, "
             "glykosylert hemoglobin, langtidsblodsukker",
    "insulin": "insulinémie, insulinemia",
    "total_cholesterol": "cholestérol, cholestérol total, cholestérolémie, colesterol, colesterol total, "
                         "col total, colesterolo, colesterolo totale, totaal cholesterol, "
                         "cholesterol totaal, totaalcholesterol, kolesterol, totalkolesterol, "
                         "kolesterol total, totalt kolesterol",
    "hdl_cholesterol": "cholestérol hdl, hdl cholestérol, colesterol hdl, c hdl, col hdl, colesterolo hdl, "
                       "hdl kolesterol",
    "ldl_cholesterol": "cholestérol ldl, ldl cholestérol, colesterol ldl, c ldl, col ldl, colesterolo ldl, "
                       "ldl kolesterol",
    "triglycerides": "triglycérides, triglicéridos, triglicéridos totales, triglicérides, triglicerídeos, "
                     "trigliceridi, triglyceriden, triglycerider, triglyserider, trigly",
    "calcium": "calcémie, calcium total, calcio, calcio total, cálcio, cálcio total, calcio totale, "
               "calcemia, kalsium, kalcium, totaal calcium",
    "phosphate": "phosphore, phosphates, phosphorémie, phosphatémie, fósforo, fosfato, fosfati, fosforemia, "
                 "fosfatemia, fosfaat, fosfat, fosfor",
    "magnesium": "magnésium, magnésémie, magnesio, magnésio, magnesiemia, magnesemia",
    "total_protein": "protéines totales, protides totaux, protidémie, protéinémie, proteínas totales, "
                     "proteínas totais, proteine totali, protidemia, protidemia totale, totaal eiwit, "
                     "eiwit totaal, totalprotein",
    "albumin": "albumine, albuminémie, albúmina, albuminemia",
    "total_bilirubin": "bilirubine totale, bilirubine, bilirubinémie, bilirubina, bilirubina total, "
                       "bilirubina totale, bili tot, totaal bilirubine, bilirubine totaal, totalbilirubin",
    "direct_bilirubin": "bilirubine directe, bilirubine conjuguée, bilirubina directa, bilirubina direta, "
                        "bilirubina conjugada, bilirubina diretta, bilirubina coniugata, "
                        "direct bilirubine, geconjugeerd bilirubine, direkt bilirubin, "
                        "konjugerat bilirubin, konjugeret bilirubin, konjugert bilirubin",
    "iron": "fer, fer sérique, sidérémie, hierro, fierro, ferro, sideremia, ijzer, järn, jern",
    "ferritin": "ferritine, ferritinémie, ferritina, ferritinemia",
    "transferrin": "transferrine, transferrina",
    "crp": "protéine c réactive, proteína c reactiva, proteína c reativa, proteina c reattiva, "
           "c reactief proteïne, c reaktivt protein",
    "hs_crp": "crp us, crp ultrasensible, crp ultra sensible, pcr us, pcr ultrasensible, "
              "pcr ultrassensível, pcr alta sensibilità, hs pcr, hoogsensitief crp, högkänsligt crp",
    "tsh": "tsh us, tsh ultrasensible, thyréostimuline, tirotropina, tireotropina, tyreotropin",
    "free_t4": "t4 libre, t4l, thyroxine libre, tiroxina libre, t4 livre, tiroxina livre, t4 libera, "
               "tiroxina libera, vrij t4, t4 vrij, vrije t4, fritt t4, t4 fritt, frit t4, fritt tyroxin, "
               "frit thyroxin",
    "vitamin_b12": "vitamine b12, vitamina b12, cobalamine, cobalamina, kobalamin",
    "vitamin_d": "vitamine d, vitamina d, 25 oh vitamine d, 25 oh vitamina d, 25 hydroxyvitamine d, "
                 "25 hidroxivitamina d, 25 idrossivitamina d, 25 oh d",
    "lactate": "lactates, lactatémie, acide lactique, lactato, ácido láctico, ácido lático, lattato, "
               "lattati, acido lattico, lactaat, melkzuur",
    "osmolality": "osmolalité, osmolalidad, osmolalidade, osmolalità, osmolaliteit, osmolalitet",
    "fibrinogen": "fibrinogène, fibrinógeno, fibrinogénio, fibrinogênio, fibrinogeno",
    "inr": "rni",
    "urine_creatinine": "créatinine urinaire, créatinine urine, creatinina urinaria, creatinina en orina, "
                        "creatinina orina, creatinina urinária, creatinina na urina, creatinina urina, "
                        "creatinina urine, kreatinine urine, kreatinine in urine, u kreatinin, "
                        "u kreatinine",
    "albumin_creatinine_ratio": "rapport albumine créatinine, rapport albuminurie créatininurie, "
                                "índice albúmina creatinina, cociente albúmina creatinina, "
                                "relação albumina creatinina, rapporto albumina creatinina, "
                                "albumine creatinine ratio, albumine kreatinine ratio, "
                                "albumin kreatinin kvot, u albumin kreatinin kvot",
    # Enzymes
    "alkaline_phosphatase": "phosphatase alcaline, phosphatases alcalines, fosfatasa alcalina, "
                            "fosfatase alcalina, fosfatasi alcalina, alkalische fosfatase, "
                            "alkalisk fosfatas, alkalisk fosfatase, basisk fosfatase, basisk phosphatase",
    "alt": "tgp, alat tgp, tgp alat, alt tgp, tgp alt, transaminase gpt, alanine aminotransférase, "
           "alanina aminotransferasa, alanina aminotransferase, alanina aminotransferasi, "
           "alanineaminotransferase, alaninaminotransferas, alaninaminotransferase",
    "ast": "tgo, asat tgo, tgo asat, ast tgo, tgo ast, transaminase got, aspartate aminotransférase, "
           "aspartato aminotransferasa, aspartato aminotransferase, aspartato aminotransferasi, "
           "aspartaataminotransferase, aspartataminotransferas, aspartataminotransferase",
    "ggt": "gamma glutamyl transférase, gamma glutamyltransférase, gamma glutamil transferasa, "
           "gamma glutamiltransferasa, gamma glutamil transferase, gamma glutamil transpeptidasi, "
           "gamma glutamyltransferas, ggtp",
    "ldh": "lactate déshydrogénase, lactico deshidrogenasa, lactato deshidrogenasa, "
           "desidrogenase láctica, desidrogenase lática, dhl, lattato deidrogenasi, "
           "lactaatdehydrogenase, laktatdehydrogenas",
    "creatine_kinase": "créatine kinase, créatine phosphokinase, creatina quinasa, creatinquinasa, "
                       "creatina quinase, creatinoquinase, creatinchinasi, creatina chinasi, "
                       "creatinfosfochinasi, creatinekinase, kreatinkinas, cpk total, cpk totale, ck total",
    "lipase": "lipasémie, lipasa, lipasi, lipas",
    "amylase": "amylasémie, amilasa, amilasemia, amilase, amilasi, amylas",
    # Blood counts
    "wbc": "gb, globules blancs, leucocytes, leucocitos, glóbulos blancos, leucócitos, "
           "globuli bianchi, leucociti, leukocyten, witte bloedcellen, lpk, leukocyter, "
           "vita blodkroppar, leukocytter, hvide blodlegemer, hvite blodceller, hvite blodlegemer",
    "rbc": "gr, globules rouges, hématies, érythrocytes, eritrocitos, hematíes, glóbulos rojos, "
           "eritrócitos, hemácias, globuli rossi, eritrociti, emazie, erytrocyten, erythrocyten, "
           "rode bloedcellen, epk, erytrocyter, röda blodkroppar, erytrocytter, erythrocytter, "
           "røde blodlegemer, røde blodceller",
    "hemoglobin": "hémoglobine, hemoglobina, emoglobina, hemoglobine, hæmoglobin",
    "hematocrit": "hématocrite, hte, hematocrito, hto, hematócrito, ematocrito, hematocriet, evf, "
                  "hematokrit, hæmatokrit",
    "mcv": "vgm, volume globulaire moyen, vcm, volumen corpuscular medio, volume corpuscular médio, "
           "volume corpuscolare medio, gemiddeld celvolume",
    "mch": "tcmh, tgmh, teneur corpusculaire moyenne en hémoglobine, hemoglobina corpuscular media, "
           "hemoglobina corpuscular média, contenuto emoglobinico medio",
    "mchc": "ccmh, chcm, concentration corpusculaire moyenne en hémoglobine, "
            "concentración de hemoglobina corpuscular media, "
            "concentração de hemoglobina corpuscular média, "
            "concentrazione emoglobinica corpuscolare media",
    "rdw": "indice de distribution des globules rouges, amplitud de distribución eritrocitaria, "
           "ampiezza di distribuzione eritrocitaria",
    "platelets": "plaquettes, plaq, plq, numération plaquettaire, plaquetas, recuento de plaquetas, "
                 "contagem de plaquetas, piastrine, conta piastrinica, trombocyten, bloedplaatjes, tpk, "
                 "trombocyter, blodplättar, trombocytter, blodplader, blodplater",
    "mpv": "vpm, volume plaquettaire moyen, volumen plaquetario medio, vmp, volume plaquetário médio, "
           "volume piastrinico medio",
    "neutrophils": "neutrophiles, pnn, polynucléaires neutrophiles, neutrófilos, neutrofili, "
                   "neutrofielen, neutrofiele granulocyten, neutrofila, neutrofila granulocyter, "
                   "neutrofile, neutrofile granulocytter, neutrofilocytter",
    "lymphocytes": "linfocitos, linfócitos, linfociti, lymfocyten, lymfocyter, lymfocytter",
    "monocytes": "monocitos, monócitos, monociti, monocyten, monocyter, monocytter",
    "eosinophils": "éosinophiles, polynucléaires éosinophiles, pne, eosinófilos, eosinofili, "
                   "eosinofielen, eosinofiele granulocyten, eosinofila, eosinofila granulocyter, "
                   "eosinofile, eosinofile granulocytter, eosinofilocytter",
})  # fmt: skip
NEAR = _listed({
    "body_height": "taille, ht",
    "waist_circumference": "taille, cintura, vita, midja, talje, midje",
    "systolic_bp": "ta, pa, ts, bt, tension, tension artérielle, pression artérielle, presión arterial, "
                   "tensión arterial, pressão arterial, pressione arteriosa, pressione, bloeddruk, "
                   "blodtryck, blodtryk, blodtrykk",
    "diastolic_bp": "td",
    "heart_rate": "polso, pols",
    "respiratory_rate": "fr, rf, af",
    "body_temperature": "ta",
    "oxygen_saturation": "sat",
    "urea_nitrogen": "urée, urémie, urea, uremia, ureia, ureum, urinstof, urinstoff, karbamid, azotemia",
    "bicarbonate": "réserve alcaline",
    "glucose": "glycémie à jeun, glucose à jeun, gaj, glucemia basal, glucemia en ayunas, "
               "glucosa en ayunas, glicemia de jejum, glicemia em jejum, glicose de jejum, glicemia jejum, "
               "glicemia a digiuno, glicemia digiuno, glucose nuchter, nuchtere glucose, fp glukos, "
               "fp glukose, fb glukos, fastande glukos, fastende glukose, fasteglukose, "
               "fasteblodsukker, glyc, glic",
    "insulin": "insuline, insulina",
    "total_cholesterol": "ct",
    "calcium": "calcium ionisé, calcio iónico, calcio ionico, cálcio iônico, calcio ionizzato, "
               "geïoniseerd calcium, joniserat calcium, ionisert kalsium, ioniseret calcium",
    "total_protein": "protides, protéines, proteínas, proteine, eiwit, tp, prot tot",
    "total_bilirubin": "bt",
    "direct_bilirubin": "bd",
    "iron": "fe",
    "crp": "pcr",
    "free_t4": "tiroxina, tyroxin",
    "osmolality": "osmolarité, osmolaridad, osmolaridade, osmolarità, osmolariteit, osmolaritet",
    "urine_creatinine": "créatininurie, creatininuria",
    "albumin_creatinine_ratio": "rac",
    "alkaline_phosphatase": "ap, pa, pal, fa, fal, af",
    "ggt": "gt",
    "hematocrit": "ht",
    "mch": "hcm",
    "rdw": "idr, ade",
})  # fmt: skip
CATEGORY_NAMES = _listed({
    "sex": "sexe, sexe du patient, genre, sexo, género, gênero, sesso, genere, geslacht, gesl, kön, køn, "
           "koen, kjønn, kjoenn",
})  # fmt: skip
# Letters depend on the language: they are in `levels`.
LEVEL_WORDS = _listed({
    "female": "femme, féminin, féminine, fille, mujer, femenino, femenina, mulher, feminino, feminina, "
              "femmina, femminile, donna, vrouw, vrouwelijk, kvinna, kvinnlig, kvinde, kvinne",
    "male": "homme, masculin, garçon, hombre, varón, masculino, homem, maschio, maschile, uomo, "
            "mannelijk, manlig, mand",
})  # fmt: skip
