"""Labels of the console for fixed sets of names, marked for translation."""

from __future__ import annotations

from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.queries import KINDS, NAMES, CellVotes, RankVotes, ShuffledRecord, SpanGap, SpanVotes
from eigenveil_client.records.tables.lost import LostReason
from eigenveil_client.site.roster.analysts import SignatureStatus
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_common.web.pages import mark

STATUS_LABELS = {
    ConsentStatus.PENDING: (mark("pending: waits for your decision"), "care"),
    ConsentStatus.ACCEPTED: (mark("agreed to"), "good"),
    ConsentStatus.DECLINED: (mark("declined"), "bad"),
    ConsentStatus.WITHDRAWN: (mark("withdrawn"), "bad"),
    ConsentStatus.ENDED: (mark("ended"), ""),
}
PERSON_LABELS = {
    ConsentStatus.ACCEPTED.value: mark("Agreed to by a person"),
    ConsentStatus.DECLINED.value: mark("Declined by a person"),
    ConsentStatus.WITHDRAWN.value: mark("Withdrawn by a person"),
}
APPLICANT_LABELS = {
    "name": mark("Name"),
    "institution": mark("Institution"),
    "contact": mark("Contact"),
    "ethics approval": mark("Ethics approval"),
    "legal basis": mark("Legal basis"),
}
UNITS = {"a": mark("years")}  # not readable as a UCUM code; other units are shown as they are
OF_ONE_PERSON = NAMES[ShuffledRecord]
# Queries with a separate value for each group of records; a group may be one record.
OF_SMALL_GROUPS = frozenset(NAMES[query] for query in (SpanVotes, CellVotes, RankVotes, SpanGap))
# Explanation of each query's answer for lay readers.
ANSWER_LABELS = {kind: query.lay_meaning for kind, query in KINDS.items()} | {
    "decline": mark("a refusal: no number left"),
    "ready": mark("that an answer is computed and waits for the other sites: no number left"),
}
# Status of the analyst's signature.
SIGNATURE_LABELS = {
    SignatureStatus.NONE: mark(
        "The study is not signed: only the federation's operator vouches for this account. Ask the operator "
        "whose account it is."
    ),
    SignatureStatus.INVALID: mark(
        "The signature of the study is invalid or has expired: only the federation's operator vouches for "
        "this account."
    ),
    SignatureStatus.NOT_COMPARED: mark(
        "The study is signed with a key that is not confirmed here: only the federation's operator vouches "
        "for its owner. Have this site's IT staff import the analyst's key card, and type the digits that "
        "the analyst reads to you by telephone."
    ),
    SignatureStatus.CHANGED: mark(
        "The federation's operator has shown another key under this name than the confirmed one: no study of "
        "this analyst is answered. Have this site's IT staff telephone the analyst, at a number that you "
        "know."
    ),
    SignatureStatus.REMOVED: mark(
        "The study is signed with a key that was removed here: it is not answered. Have the analyst sign it "
        "again, with the present key."
    ),
    SignatureStatus.CONFIRMED: mark(
        "The study is signed with the key that this site has confirmed for this account."
    ),
}
REASON_LABELS = {
    DeclineReason.PURPOSE: mark("What it is for is not covered here"),
    DeclineReason.COLUMNS: mark("A measurement may not be used"),
    DeclineReason.ANALYST: mark("We do not know the analyst"),
    DeclineReason.BUDGET: mark("It would take too much of the budget"),
    DeclineReason.TIMING: mark("Not at this time"),
    DeclineReason.UNSTATED: mark("No reason is given"),
}
LOST_LABELS = {
    LostReason.FEW_CELLS: mark("Too few cells"),
    LostReason.MANY_CELLS: mark("Too many cells"),
    LostReason.BYTES: mark("Bytes that are not in the file's encoding"),
    LostReason.PERSON: mark("No patient is named"),
    LostReason.OTHER_ROW: mark("Another row of the patient, with other values, counts"),
}
OF_MEMORY = (
    mark("The records that it needs at once fit into the memory that your settings allow"),
    mark("The records that it needs at once do not fit into the memory that your settings allow"),
)
# Each rule of site.toml: text if passed, text if failed; the template supplies the values.
RULE_LABELS = {
    "approval_ends": (
        mark("This site's permission to answer studies has not run out"),
        mark("This site's permission to answer studies has run out"),
    ),
    "analysts": (mark("This account may ask here"), mark("This account may not ask here")),
    "required_applicant": (
        mark("It says about who asks what your settings require"),
        mark("It does not say about who asks all that your settings require"),
    ),
    "columns": (mark("All measurements may be used"), mark("A measurement may not be used")),
    "algorithms": (mark("Your settings allow its method"), mark("Your settings do not allow its method")),
    "noise": (
        mark("Your settings allow its kind of noise"),
        mark("Your settings do not allow its kind of noise"),
    ),
    "max_epsilon_per_study": (
        mark("It reveals no more than one study may (epsilon %(epsilon)s; allowed: %(largest)s)"),
        mark("It reveals more than one study may (epsilon %(epsilon)s; allowed: %(largest)s)"),
    ),
    "max_delta": (
        mark("The remaining chance (delta), which the guesses above include, is no larger than you allow"),
        mark("The remaining chance (delta), which the guesses above include, is larger than you allow"),
    ),
    "trust": (
        mark("Your settings allow who sees the exact numbers of this site"),
        mark("Your settings do not allow who sees the exact numbers of this site"),
    ),
    "colluding": (
        mark("The limit holds even if as many other sites help the coordinator as your settings say"),
        mark("The limit does not hold if as many other sites help the coordinator as your settings say"),
    ),
    "minimum_sites": (
        mark("Every sum is over at least as many sites as your settings say"),
        mark("A sum may be over fewer sites than your settings say"),
    ),
    "peers": (
        mark("People here have confirmed the card of every other site that is invited"),
        mark("The card of an invited site is not confirmed here"),
    ),
    "signature": (
        mark("It is signed as the keys that were confirmed here ask for, if any were"),
        mark("It is not signed with a key that people here have confirmed"),
    ),
    "person_column": (
        mark("It counts as one patient what your settings count as one"),
        mark("It counts as one patient something else than your settings do"),
    ),
    "sites_per_person": (
        mark(
            "The limit covers all sites where one patient may be known (your settings say: at most %(sites)s)"
        ),
        mark(
            "The limit does not cover all sites where one patient may be known (your settings say: %(sites)s)"
        ),
    ),
    "max_columns_per_record": (
        mark("It has %(columns)s measurements: not too many for %(fewest)s patients, your lowest number"),
        mark("It has %(columns)s measurements: too many for %(fewest)s patients, your lowest number"),
    ),
    "minimum_records": (
        mark("It wants at least %(cohort)s patients at a site; you answer with %(fewest)s or more"),
        mark("It wants at least %(cohort)s patients at a site; you may answer with %(fewest)s"),
    ),
    "maximum_records": (
        mark("It has room for %(room)s patients of a site; you answer with at most %(most)s"),
        mark("It has room for only %(room)s patients of a site; you may answer with %(most)s"),
    ),
    "minimum_records_per_batch": (
        mark("It is not planned over parts of fewer than %(part)s patients"),
        mark("It is planned over parts of fewer than %(part)s patients"),
    ),
    "memory_mib": OF_MEMORY,
    "engine": OF_MEMORY,
    "records": (
        mark("Your records have every measurement that it asks about"),
        mark("Your records cannot be read for it, or lack a measurement"),
    ),
    "persons": (
        mark("Your file has neither too few nor too many patients"),
        mark("Your file has too few or too many patients for your settings"),
    ),
    "lines": (
        mark("Hardly any lines of your file are lost"),
        mark("Too many lines of your file are lost: no study is answered before they are corrected"),
    ),
    "cells": (
        mark("The values of every measurement can be used"),
        mark("Too many values of a measurement are missing, unreadable or implausible"),
    ),
}
