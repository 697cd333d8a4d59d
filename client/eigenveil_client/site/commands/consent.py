"""Decisions of a person about a study, and the views before them. Every decision is one transaction in the
site's database. It takes effect with the daemon's next answer, independently of the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.accounting.budget import Conversion, epsilons, studies_left
from eigenveil.accounting.formatting import percent_up, shown_up
from eigenveil.accounting.zcdp import NO_COST, Cost, Neighbours
from eigenveil.dictionary.site_rules import DeclineReason, Verdict
from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.explain import explain
from eigenveil.reporting.presentation import sent_kind_label
from eigenveil.study.study import Trust
from eigenveil.study.toml import NAME, NAMES, parse_study
from eigenveil.study_authorization import SignedAuthorization
from eigenveil_client.connection.identity import folder_identity
from eigenveil_client.records.tables.source import Headers
from eigenveil_client.site.commands.record_checks import (
    Courses,
    columns_verdict,
    contents_verdicts,
    engine_verdict,
    read_headers,
)
from eigenveil_client.site.commands.terminal import show_table
from eigenveil_client.site.config import SiteConfig, dictionary_in_force, record_reader
from eigenveil_client.site.inference_risk import inference_risk_of
from eigenveil_client.site.next_steps import next_steps
from eigenveil_client.site.policy_sections import YearlyLimit
from eigenveil_client.site.roster import analysts as analysts
from eigenveil_client.site.roster import peers
from eigenveil_client.site.roster.analysts import analyst_text, analyst_view
from eigenveil_client.site.state.received_plans import ConsentStatus, PersonDecision, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.command import console, print_result, quote_block
from eigenveil_common.files import read


def approve(config: SiteConfig, store: SiteStore, received: ReceivedPlan, *, by: str) -> None:
    """Accept exactly this plan and reserve its whole cost; `by` is the name of the person who decides.

    Raises:
        RequestError: a rule, a key card, the records or the budget forbid it, or it was decided before.
        PeerError: its analyst's signature is invalid."""
    plan = received.read_plan()
    if store.now() >= plan.study.federation.decision_deadline:
        day = plan.study.federation.decide_by
        raise RequestError(Code.CONFLICT, f"the last day to decide about this study was {day} (UTC)")
    store.confirmed.require(config.identity)
    analysts.require(config.identity, plan, received.signed, store.clock_time())
    config.policy.require(plan, store.now())
    peers.require_trust(config.identity, plan, config.policy.secrecy)
    peers.require(config.identity, config.name, plan)
    engine_verdict(config, plan, possible_rehearsals(plan)).require()  # before a record is read
    found = record_reader(config)(plan.study)
    config.policy.require_record_count(found.persons)
    store.line_decisions.require(config.policy.lines, found)
    config.policy.quality.require(found.quality)
    store.accept(plan, received, config.policy.yearly, person=PersonDecision(by=by))


def decline(
    config: SiteConfig,
    store: SiteStore,
    received: ReceivedPlan,
    *,
    by: str,
    word: DeclineReason,
    text: str = "",
) -> None:
    """Decline a pending study, finally. Its analyst is notified of `word`; of `text` only if disclose_reasons
    is true now and when it is sent. Raises as `PersonDecision` and `SiteStore.decline`."""
    disclosed = config.policy.disclose_reasons
    store.decline(received, PersonDecision(by=by, reason_code=word, text=text, text_disclosed=disclosed))


def withdraw(config: SiteConfig, store: SiteStore, received: ReceivedPlan, *, by: str) -> Cost:
    """Withdraw from a study, finally; free its reservation and return it. Raises RequestError: code
    `conflict`, it was declined or withdrawn before, or has ended."""
    return store.withdraw(received.plan, PersonDecision(by=by, reason_code=DeclineReason.UNSTATED))


def verdicts(
    config: SiteConfig,
    store: SiteStore,
    plan: Plan,
    signed: SignedAuthorization | None,
    headers: Headers | RequestError,
    courses: Courses,
    *,
    contents: bool = True,
) -> tuple[Verdict, ...]:
    """Return the verdicts of every rule on a plan, its columns, its analyst, the other sites and the memory.
    `headers` are those of the records (`read_headers`), `courses` the plan's `possible_rehearsals`. With
    `contents` the records are read, which can take long. Raises as `ConfirmedKinds.require`."""
    store.confirmed.require(config.identity)
    of_records = (
        contents_verdicts(config, plan.study, headers)
        if contents
        else (columns_verdict(config, plan.study, headers),)
    )
    return (
        *config.policy.verdicts(plan, store.now()),
        *of_records,
        *analysts.verdicts(config.identity, plan, signed, store.clock_time()),
        *peers.verdicts(config.identity, config.name, plan, config.policy.secrecy),
        engine_verdict(config, plan, courses),
    )


def explain_plan(
    config: SiteConfig,
    store: SiteStore,
    plan: Plan,
    signed: SignedAuthorization | None,
    received: ReceivedPlan | None = None,
    *,
    contents: bool = True,
) -> dict[str, Any]:
    """Return the facts that a person needs before a decision, as plain values. `signed`: by its analyst, if
    so; `received`: the plan as it came, if it did; `contents`: as `verdicts`."""
    ends, courses = config.policy.approval_ends, possible_rehearsals(plan)
    spreads = dictionary_in_force(config).spreads()
    explained = explain(plan, courses, spreads)  # the analyst's warnings name the same columns
    following = received and next_steps(store, received, plan, len(explained["rounds"]))
    found = verdicts(config, store, plan, signed, read_headers(config), courses, contents=contents)
    return explained | {
        "decision": following and following.to_dict(),
        "policy": [{"rule": one.rule, "passed": one.passed, "text": one.text} for one in found],
        "analyst_signature": analyst_view(config.identity, plan, signed, store.clock_time()),
        "approval_ends": ends and str(ends),
        "budget": budget(config, store),
        "studies_left": more(store, plan, config.policy.yearly),
        "one_person": inference_risk_of(plan).to_dict(),
    }


def budget(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """Return the budget left for further studies, in total and this year."""
    state, yearly = store.ledger.ledger, config.policy.yearly
    left, this_year = max(0, state.limit.micro_rho - state.committed().micro_rho), None
    if yearly is not None:
        most = yearly.budget.limit(gaussian=state.gaussian).micro_rho
        this_year = amount(max(0, most - store.this_year(yearly)), config, state.exact, of=most)
    return {
        "delta": config.policy.budget_delta,
        "left": amount(left, config, state.exact, of=state.limit.micro_rho),
        "left_this_year": this_year,
    }


def more(store: SiteStore, plan: Plan, yearly: YearlyLimit | None, *, besides: Cost = NO_COST) -> int | None:
    """Return how many studies like `plan` could be accepted now, after `besides` is reserved too."""
    state = store.ledger.ledger
    taken = state.committed() + besides
    free = state.limit.micro_rho - taken.micro_rho
    if yearly is not None:
        free = min(free, store.left_this_year(plan, yearly) - besides.micro_rho)
    left = Cost(micro_rho=max(0, free), atto_delta=max(0, state.limit.atto_delta - taken.atto_delta))
    return studies_left(left, plan.cost)


def amount(
    micro_rho: int, config: SiteConfig, gaussian_only: bool, *, of: int | None = None
) -> dict[str, Any]:
    """Return a cost in micro-rho as epsilons for one record added or removed (exact too if only Gaussian
    noise is used), and for one replaced. `of`: the whole budget, if the cost is the rest of one."""
    delta = config.policy.budget_delta
    by_zcdp, exactly = epsilons(micro_rho, delta, gaussian_only=gaussian_only)
    view, whole = Conversion(delta=delta, exact=gaussian_only), config.policy.budget.limit(gaussian=False)
    return {
        "micro_rho": micro_rho,
        "neighbours": Neighbours.ADD_REMOVE.value,
        "epsilon": by_zcdp,
        "epsilon_gaussian": exactly,
        "epsilon_replace_one": view.replaced(micro_rho),
        "of_micro_rho": of,
        "failure_probability": view.failure_probability(whole),
    }


def amount_text(amount: dict[str, Any], delta: float) -> str:
    """Return `amount` as text: exact if known; the rest of a budget is rounded down."""
    view = Conversion(delta=delta, exact=amount["epsilon_gaussian"] is not None)
    micro_rho, whole = amount["micro_rho"], amount["of_micro_rho"]
    text = view.spent(micro_rho) if whole is None else view.left(micro_rho, whole)
    return f"{text}, except with probability {amount['failure_probability']}"


def require_passed(view: dict[str, Any]) -> None:
    """Require that an explained study (`explain_plan`) passes every verdict. Raises RequestError: code
    `site-policy`, naming those that it does not pass."""
    failed = [f"{one['rule']}: {one['text']}" for one in view["policy"] if not one["passed"]]
    if failed:
        raise RequestError(Code.POLICY, f"this study cannot be answered now ({'; '.join(failed)})")


def show_explanation(view: dict[str, Any]) -> None:
    """Print a plan's queries, disclosures and cost, and the verdicts of this site's policy."""
    console.print(f"{view['name']} ({view['algorithm']}), plan {view['plan_digest']}", markup=False)
    console.print(quote_block(view["purpose"]) or "(no purpose stated)", markup=False)
    console.print(f"who asks: account {analyst_text(view['analyst_signature'])}", markup=False)
    for label, text in view["applicant"].items():
        console.print(f"{label}, as stated and not checked:\n{quote_block(text)}", markup=False)
    if not view["applicant"]:
        console.print("nothing else is stated about who asks")
    if view["decision"] is not None:
        console.print(f"decide by: {view['decision']['decide_by']}", markup=False)
        console.print(f"what happens next: {view['decision']['next']}", markup=False)
    elif view["decide_by"]:
        console.print(f"decide by: {view['decide_by']} (UTC)", markup=False)
    columns = [
        (", ".join(one.get(NAMES) or [one[NAME]]), one["unit"], f"{one['lower']:g}", f"{one['upper']:g}")
        for one in view["study"]["columns"]
    ]
    show_table(("column", "unit", "lower", "upper"), columns, "Columns and their public bounds")
    masked = view["study"]["privacy"]["trust"] == Trust.SECURE_AGGREGATION.value
    rounds = [
        (
            *(str(row["round"] + 1), sent_kind_label(row["kind"], masked=masked), str(row["bytes"])),
            *(percent_up(row["micro_rho"], view["micro_rho"], 1), row["meaning"]),
        )
        for row in view["rounds"]
    ]
    show_table(("round", "query", "bytes", "% of its cost", "what it reveals"), rounds, "Rounds")
    console.print(f"each answer: {view['message']}", markup=False)
    if view["dependence"] is not None:
        console.print(view["dependence"], markup=False)
    guarantee = view["guarantee"]
    console.print(
        f"in all: {view['bytes_per_site']} bytes, at a cost of epsilon {shown_up(guarantee['epsilon'])} "
        f"({guarantee['neighbours']}), except with probability {shown_up(guarantee['delta'])}"
    )
    console.print(_budget_left_text(view["budget"], view["studies_left"]))
    for name in ("rows", "clip", "trust"):
        console.print(f"{name}: {view[name]}", markup=False)
    ends = view["approval_ends"]
    expiry = "the approval has no end" if ends is None else f"nothing leaves after {ends} (UTC)"
    console.print(f"expiry: {expiry}")
    console.print(view["guarantee"]["text"], markup=False)
    console.print(f"one person: {view['one_person']['text']}", markup=False)
    policy = [(one["rule"], "passes" if one["passed"] else "FAILS", one["text"]) for one in view["policy"]]
    show_table(("rule", "verdict", "why"), policy, "This site's policy")
    for one in view.get("lines", {}).get("checks", ()):
        console.print(f"{one['check']}: {one['text']} (this stays here)", markup=False)
    for warning in view["warnings"]:
        console.print(f"warning: {warning}", markup=False)


def _budget_left_text(budget: dict[str, Any], more: int | None) -> str:
    delta, year = budget["delta"], budget["left_this_year"]
    this_year = "" if year is None else f"; of this year's: {amount_text(year, delta)}"
    studies = "any number of studies" if more is None else "1 study" if more == 1 else f"{more} studies"
    left = f"{amount_text(budget['left'], delta)}{this_year}"
    return f"left of the budget before it: {left}; {studies} like this one"


def show_transition(
    received: ReceivedPlan, status: ConsentStatus, config: SiteConfig, as_json: bool, cost: Cost = NO_COST
) -> None:
    """Print a study's old and new status, and the budget freed."""
    delta = config.policy.budget_delta
    freed = amount(cost.micro_rho, config, received.read_plan().gaussian)
    view = {
        "study": received.plan,
        "was": received.status.value,
        "status": status.value,
        "freed": freed,
        "delta": delta,
    }
    text = f"study {received.plan[:12]} is {status.value} (it was {received.status.value})"
    if cost.micro_rho:
        again = Conversion(delta=delta, exact=freed["epsilon_gaussian"] is not None).free(cost.micro_rho)
        text += f"; freed: {again}, except with probability {freed['failure_probability']}"
    print_result(view, as_json, text)


def plan_of(config: SiteConfig, path: Path) -> Plan:
    """Return the plan of a study file. Raises RequestError: the file cannot be read or is not a study."""
    try:
        text = read(path).decode()
    except UnicodeDecodeError as problem:
        raise RequestError(Code.BAD_STUDY, f"{path} is not UTF-8 text") from problem
    identity = folder_identity(config.identity)
    return make_plan(
        parse_study(text),
        federation="not-enrolled" if identity is None else identity.federation,
        submission="explained-at-the-site",
    )
