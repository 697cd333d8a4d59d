"""What closed sets of names are called on the pages: marked for the catalogue, looked up when shown."""

from __future__ import annotations

from eigenveil.queries import KINDS, ShuffledRecord
from eigenveil.study.consent import DeclineWord
from eigenveil_client.site.state.received_plans import Decision
from eigenveil_common.web.messages import mark

STANDINGS = {
    Decision.PENDING: (mark("waits for your decision"), "care"),
    Decision.ACCEPTED: (mark("agreed to"), "good"),
    Decision.DECLINED: (mark("declined"), "bad"),
    Decision.WITHDRAWN: (mark("withdrawn"), "bad"),
    Decision.ENDED: (mark("over"), ""),
}
PEOPLES = {
    Decision.ACCEPTED.value: mark("Agreed to by a person"),
    Decision.DECLINED.value: mark("Declined by a person"),
    Decision.WITHDRAWN.value: mark("Withdrawn by a person"),
}
UNITS = {"a": mark("years")}  # which nobody reads out of UCUM; the others are written as they are known
OF_ONE_PERSON = next(name for name, query in KINDS.items() if query is ShuffledRecord)
# What each question's answer holds, to who never heard of it.
ANSWERS = {
    "count": mark("how many patients have usable values"),
    "row-norms": mark("how many patients lie how far from the middle of the agreed ranges: counts only"),
    "clipped-sum": mark("the sums of the measurements over all patients"),
    "energy": mark("one sum over all patients: how far they lie from the middle, squared"),
    "gram": mark("for every two measurements, the sum over all patients of their product"),
    "cross-norms": mark("how many patients count how much for what comes next: counts only"),
    "cross-covariance": mark("sums over all patients of products of measurements with the directions found"),
    "column-histograms": mark("how many patients have which value, for each measurement: counts in 65 steps"),
    "column-moments": mark(
        "for each measurement, the sums over all patients of its values and their squares"
    ),
    "gradient": mark("sums over all patients that say how to improve the directions found so far"),
    "gradient-norms": mark("how many patients count how much for the next improvement: counts only"),
    "votes": mark("how many small groups of patients differ how much from each other: counts only"),
    "coordinates": mark("how many small groups of patients lie where, for each measurement: counts only"),
    "boxed": mark("sums over small groups of patients that say how to improve the direction found so far"),
    "block-ranks": mark("how many small groups of patients need how many directions: counts only"),
    "spectrum": mark(
        "for every two measurements, the sum over all patients of their product, of which only "
        "how strong each direction is is ever published, with noise"
    ),
    "eigenvectors": mark(
        "for every two measurements, the sum over all patients of their product, of which only "
        "directions are ever published, with noise"
    ),
    "subspace": mark(
        "for every two measurements, the sum over all patients of their product, of which only "
        "directions taken together are ever published, with noise"
    ),
    "radius-search": mark(
        "how many patients lie how far from the middle, of which one distance is published"
    ),
    "slot": mark(
        "what one single patient, drawn at random, adds to the directions: the coordinator sees"
        " it without noise, but not whose it is"
    ),
    "span-votes": mark(
        "what small groups of patients have in common, as a code number; one at most is published"
    ),
    "cell-votes": mark(
        "in which rough direction small groups of patients lie, as a code number; one at most is published"
    ),
    "rank-votes": mark(
        "what small groups of patients have in common, as a code number, for several numbers "
        "of directions; one at most is published"
    ),
    "span-gap": mark(
        "how much oftener the most common of these numbers was seen than the next; published only if by far"
    ),
    "preimage": mark("what the published code number stands for"),
    "decline": mark("a refusal: no number left"),
}
REASONS = {
    DeclineWord.PURPOSE: mark("What it is for is not covered here"),
    DeclineWord.COLUMNS: mark("A measurement may not be used"),
    DeclineWord.ANALYST: mark("We do not know who asks"),
    DeclineWord.BUDGET: mark("It would take too much of the budget"),
    DeclineWord.TIMING: mark("Not at this time"),
    DeclineWord.UNSTATED: mark("No reason is given"),
}
# What each rule of site.toml asks for, and when a study breaks it.
RULES = {
    "approval_ends": (mark("The approval still holds"), mark("The approval has ended")),
    "analysts": (mark("This person may ask here"), mark("This person may not ask here")),
    "columns": (mark("All measurements may be used"), mark("A measurement may not be used")),
    "algorithms": (mark("The method is allowed"), mark("The method is not allowed")),
    "noise": (mark("The kind of noise is allowed"), mark("The kind of noise is not allowed")),
    "max_epsilon_per_study": (
        mark("It reveals no more than one study may"),
        mark("It reveals more than one study may"),
    ),
    "max_delta": (
        mark("The chance that its promise fails is as small as you ask"),
        mark("The chance that its promise fails is larger than you allow"),
    ),
    "person_column": (
        mark("It means by one person what you mean"),
        mark("It means by one person something else than you"),
    ),
    "sites_per_person": (
        mark("It allows for patients who are known at several sites"),
        mark("It does not allow for patients who are known at so many sites"),
    ),
    "max_columns_per_record": (
        mark("It has few measurements compared with your patients"),
        mark("It has too many measurements compared with your patients"),
    ),
    "minimum_records": (
        mark("It is content with as few patients as you may have"),
        mark("It wants more patients than you may have"),
    ),
    "maximum_records": (
        mark("It has room for as many patients as you may have"),
        mark("It has no room for as many patients as you may have"),
    ),
    "minimum_records_per_part": (
        mark("It divides your patients into parts that are large enough, or not at all"),
        mark("It divides your patients into parts that are too small"),
    ),
}
