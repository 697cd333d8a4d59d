"""A person's word about a study, and what that person is shown before.

Every decision is one transaction in the site's database, so it holds from the daemon's next answer on,
whether or not the daemon runs meanwhile and whatever the coordinator does.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from eigenveil.accounting.budget import Conversion, epsilons, studies_left
from eigenveil.accounting.digits import percent_up, shown, shown_up
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.analyst_signature.authorization import SignedAuthorization
from eigenveil.dictionary.verdict import Verdict
from eigenveil.errors import Code, RequestError
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.reporting.explain import explain
from eigenveil.reporting.questions import sent_as
from eigenveil.study.columns import NAME, NAMES
from eigenveil.study.consent import DeclineWord
from eigenveil.study.study import Trust
from eigenveil.study.toml import parse_study
from eigenveil_client.connection.identity import named
from eigenveil_client.site.analysts import rule as analysts
from eigenveil_client.site.analysts.asker import SHORT, Signature, asked_by, asker
from eigenveil_client.site.commands.tables import moment, plain, show, table
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.odds import odds_of
from eigenveil_client.site.peers import rule
from eigenveil_client.site.plausible import reader
from eigenveil_client.site.state.egress import DECLINE
from eigenveil_client.site.state.received_plans import Decision, PersonsWord, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_client.site.yearly_limit import YearlyLimit
from eigenveil_common.command import console, quoted, say, typed
from eigenveil_common.files import read


def approve(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, *, by: str) -> None:
    """Agree to exactly this plan, and set its whole price aside; `by` is the name of the person who says so.

    Raises:
        RequestError: the rules forbid it now, who asks or a card that it needs is not confirmed, the records
            are too few or too poor for it, the budget cannot pay for it, or it was decided before.
        PeerError: its analyst's signature does not hold.
    """
    plan = plan_from_json(seen.plan_json)
    store.confirmed.require(config.identity)
    analysts.require(config.identity, plan, seen.signed, store.clock_time())
    config.policy.require(plan, store.now())
    rule.require_trust(config.identity, plan, config.policy.secrecy)
    rule.require(config.identity, config.name, plan)
    found = reader(config)(plan.study)
    config.policy.require_enough(found.persons)
    config.policy.quality.require(found.quality)
    store.accept(plan, seen, config.policy.yearly, person=PersonsWord(by=by))


def decline(
    config: SiteConfig, store: SiteStore, seen: ReceivedPlan, *, by: str, word: DeclineWord, text: str = ""
) -> None:
    """Refuse a study that waits, for good. Its analyst is told `word`; `text` only by a site that tells
    such now, and still does when it is sent.

    Raises:
        RequestError: it was decided before, or name or text cannot be shown as they are.
    """
    said = PersonsWord(by=by, word=word, text=text, told=config.policy.tell_reasons)
    store.decline(seen, Code.POLICY, person=said)


def withdraw(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, *, by: str) -> Cost:
    """Answer a study no more, for good; what was set aside for it is free and returned.

    Raises:
        RequestError: code `conflict`, it was declined, withdrawn or ended before.
    """
    return store.withdraw(seen.plan, PersonsWord(by=by, word=DeclineWord.UNSTATED))


def verdicts(
    config: SiteConfig, store: SiteStore, plan: Plan, signed: SignedAuthorization | None
) -> tuple[Verdict, ...]:
    """What every rule here says of a plan, of who asks, and of who else is invited. Raises as
    `ConfirmedKinds.require`."""
    store.confirmed.require(config.identity)
    return (
        *config.policy.verdicts(plan, store.now()),
        *analysts.verdicts(config.identity, plan, signed, store.clock_time()),
        *rule.verdicts(config.identity, config.name, plan, config.policy.secrecy),
    )


def explained(
    config: SiteConfig, store: SiteStore, plan: Plan, signed: SignedAuthorization | None
) -> dict[str, Any]:
    """All that a person should know before agreeing: plain values. `signed`: by its analyst, if so."""
    ends = config.policy.approval_ends
    return explain(plan) | {
        "policy": [
            {"rule": v.rule, "passed": v.passed, "text": v.text}
            for v in verdicts(config, store, plan, signed)
        ],
        "asked_by": asker(config.identity, plan, signed, store.clock_time()),
        "approval_ends": ends and str(ends),
        "budget": budget(config, store),
        "studies_left": more(store, plan, config.policy.yearly),
        "one_person": odds_of(plan).to_dict(),
    }


def budget(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """What is left for studies to come, for ever and of this year."""
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


def more(store: SiteStore, plan: Plan, yearly: YearlyLimit | None, *, besides: Cost = NOTHING) -> int | None:
    """How many studies like `plan` could be accepted now, after `besides` is set aside too."""
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
    """A price in micro-rho as epsilons of one record added or removed, by zCDP and, if it is of Gaussian
    noise alone, exactly; and of one replaced. What is left of a budget says `of` how much. `but_for` is the
    probability with which the whole budget's promise does not hold."""
    delta = config.policy.budget_delta
    by_zcdp, exactly = epsilons(micro_rho, delta, gaussian_only=gaussian_only)
    told, whole = Conversion(delta=delta, exact=gaussian_only), config.policy.budget.limit(gaussian=False)
    return {
        "micro_rho": micro_rho,
        "neighbours": Neighbours.ADD_REMOVE.value,
        "epsilon": by_zcdp,
        "epsilon_gaussian": exactly,
        "epsilon_replace_one": told.replaced(micro_rho),
        "of_micro_rho": of,
        "but_for": told.but_for(whole),
    }


def amount_words(amount: dict[str, Any], delta: float) -> str:
    """`amount` for a person: exactly where that is known, what is left of a budget rounded down."""
    told = Conversion(delta=delta, exact=amount["epsilon_gaussian"] is not None)
    micro_rho, whole = amount["micro_rho"], amount["of_micro_rho"]
    words = told.spent(micro_rho) if whole is None else told.left(micro_rho, whole)
    return f"{words}, except with probability {amount['but_for']}"


def studies(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
    """Every study that came here and was not declined by the rules: plain values, the oldest first. `reason`
    is which of the rules nobody can agree against yet, or what its last refusal was for; `by`, `word` and
    `text` are a person's: all for the eyes of this site's people. `declined` are counts of what the rules
    declined, by day, analyst (empty: all others) and rule; `proofs` are the declined plans that are
    stored whole."""
    refused = {row.study: row.meaning for row in store.egress.rows() if row.kind == DECLINE}
    rows = []
    for seen in store.studies.all():
        plan = plan_from_json(seen.plan_json)
        rows.append({
            "study": seen.plan,
            "name": plan.study.name,
            "analyst": plan.analyst,
            "signature": asker(config.identity, plan, seen.signed, store.clock_time())["signature"],
            "standing": seen.standing.value,
            "person": seen.person,
            "by": seen.said_by,
            "decided": seen.said_at,
            "word": seen.word,
            "text": seen.text,
            "reason": seen.reason or refused.get(seen.plan, "") or _against(config, store, seen, plan),
            "at": seen.at,
            "epsilon": plan.study.epsilon,
            "micro_rho": plan.cost.micro_rho,
            "trust": plan.study.trust.value,
        })  # fmt: skip
    pending = sum(row["standing"] == "pending" for row in rows)
    declined = [asdict(one) for one in store.declined.counts()]
    proofs = [one.to_dict() for one in store.proofs.all()]
    return {"studies": rows, "pending": pending, "declined": declined, "proofs": proofs}


def _against(config: SiteConfig, store: SiteStore, seen: ReceivedPlan, plan: Plan) -> str:
    if seen.standing is not Decision.PENDING:
        return ""
    rules = [verdict.rule for verdict in verdicts(config, store, plan, seen.signed) if not verdict.passed]
    return f"cannot be agreed to yet: {', '.join(rules)}; see explain" if rules else ""


def show_studies(told: dict[str, Any], config_file: Path) -> None:
    """Print `studies`, and the commands that decide about what waits."""
    listed = table("came (UTC)", "study", "name", "analyst", "epsilon", "trust", "standing", "why")
    for row in told["studies"]:
        asks = f"{row['analyst']} ({SHORT[Signature(row['signature'])]})"
        words = (row["study"][:12], row["name"], asks)
        why = ": ".join(filter(None, (row["word"] or row["reason"], row["text"])))
        listed.add_row(
            moment(row["at"]), *plain(*words), shown(row["epsilon"]), row["trust"], *plain(_decided(row), why)
        )
    show(listed)
    _show_declined(told["declined"])
    _show_proofs(told["proofs"])
    if told["pending"]:
        console.print(f"{told['pending']} of them wait; decide about each:")
        for word in ("explain", "approve", "decline"):
            command = typed("eigenveil-site", word, "STUDY", "--config", config_file)
            console.print(f"  {command}", markup=False, soft_wrap=True)


def _show_declined(counts: list[dict[str, Any]]) -> None:
    if not counts:
        return
    title = "Declined by the rules; but for proofs, the plans are not stored"
    listed = table("day (UTC)", "analyst", "rule", "studies", title=title)
    for one in counts:
        listed.add_row(one["day"], *plain(one["analyst"] or "(others)", one["rule"]), str(one["plans"]))
    show(listed)


def _show_proofs(proofs: list[dict[str, Any]]) -> None:
    if not proofs:
        return
    title = "Stored whole, as proof: the coordinator signed these in a name whose key did not"
    listed = table("came (UTC)", "study", "name", "analyst", "why", title=title)
    for one in proofs:
        listed.add_row(
            moment(one["at"]), *plain(one["study"][:12], one["name"], one["analyst"], one["reason"])
        )
    show(listed)
    console.print("Telephone these analysts: did they submit this? --json shows the signed bytes.")


def _decided(row: dict[str, Any]) -> str:
    """A person's word stays what it was when the study is over."""
    if not row["person"]:
        return str(row["standing"])
    over = ", ended" if row["standing"] == Decision.ENDED.value else ""
    return f"{row['person']} by {row['by'] or 'a person'}{over}"


def _called(column: dict[str, Any]) -> str:
    """A column's name, or those of many that are alike: every one of them, as that is what is agreed to."""
    return ", ".join(column.get(NAMES) or [column[NAME]])


def show_explanation(told: dict[str, Any]) -> None:
    """Print what a plan asks, reveals and costs, and what this site's policy says."""
    console.print(f"{told['name']} ({told['algorithm']}), plan {told['plan_digest']}", markup=False)
    console.print(quoted(told["purpose"]) or "(no purpose stated)", markup=False)
    console.print(f"analyst: {asked_by(told['asked_by'])}", markup=False)
    columns = table("column", "unit", "lower", "upper", title="Columns and their public bounds")
    for column in told["study"]["columns"]:
        bounds = (f"{column['lower']:g}", f"{column['upper']:g}")
        columns.add_row(*plain(_called(column), column["unit"]), *bounds)
    show(columns)
    rounds = table("round", "question", "bytes", "% of its price", "what it reveals", title="Rounds")
    masked = told["study"]["privacy"]["trust"] == Trust.SECURE_AGGREGATION.value
    for row in told["rounds"]:
        share = percent_up(row["micro_rho"], told["micro_rho"], 1)
        question = sent_as(row["kind"], masked=masked)
        rounds.add_row(str(row["round"] + 1), question, str(row["bytes"]), share, row["meaning"])
    show(rounds)
    console.print(f"each answer: {told['message']}", markup=False)
    if told["depends"] is not None:
        console.print(told["depends"], markup=False)
    promised = told["guarantee"]
    price = (
        f"epsilon {shown_up(promised['epsilon'])} ({promised['neighbours']}), except with probability "
        f"{shown_up(promised['delta'])}"
    )
    console.print(f"in all: {told['bytes_per_site']} bytes, at a price of {price}")
    console.print(_left(told["budget"], told["studies_left"]))
    for name in ("rows", "clip", "trust"):
        console.print(f"{name}: {told[name]}", markup=False)
    ends = told["approval_ends"]
    console.print(
        f"expiry: {'the approval has no end' if ends is None else f'nothing leaves after {ends} (UTC)'}"
    )
    console.print(told["guarantee"]["words"], markup=False)
    console.print(f"one person: {told['one_person']['words']}", markup=False)
    policy = table("rule", "verdict", "why", title="This site's policy")
    for verdict in told["policy"]:
        policy.add_row(verdict["rule"], "passes" if verdict["passed"] else "FAILS", *plain(verdict["text"]))
    show(policy)
    for warning in told["warnings"]:
        console.print(f"warning: {warning}", markup=False)


def _left(budget: dict[str, Any], more: int | None) -> str:
    delta, year = budget["delta"], budget["left_this_year"]
    this_year = "" if year is None else f"; of this year's: {amount_words(year, delta)}"
    studies = "any number of studies" if more is None else "1 study" if more == 1 else f"{more} studies"
    left = f"{amount_words(budget['left'], delta)}{this_year}"
    return f"left of the budget before it: {left}; {studies} like this one"


def show_move(seen: ReceivedPlan, standing: Decision, cost: Cost, config: SiteConfig, as_json: bool) -> None:
    """What a study was and has become, and what that freed of the budget."""
    delta = config.policy.budget_delta
    freed = amount(cost.micro_rho, config, plan_from_json(seen.plan_json).gaussian)
    told = {
        "study": seen.plan,
        "was": seen.standing.value,
        "standing": standing.value,
        "freed": freed,
        "delta": delta,
    }
    words = f"study {seen.plan[:12]} is {standing.value} (it was {seen.standing.value})"
    if cost.micro_rho:
        again = Conversion(delta=delta, exact=freed["epsilon_gaussian"] is not None).free(cost.micro_rho)
        words += f"; free again: {again}, except with probability {freed['but_for']}"
    say(told, as_json, words)


def plan_of(config: SiteConfig, path: Path) -> Plan:
    """The plan that a study file would become.

    Raises:
        RequestError: the file cannot be read or is no study.
    """
    try:
        text = read(path).decode()
    except UnicodeDecodeError as problem:
        raise RequestError(Code.BAD_STUDY, f"{path} is not UTF-8 text") from problem
    identity = named(config.identity)
    return make_plan(
        parse_study(text),
        federation="not-enrolled" if identity is None else identity.federation,
        submission="explained-at-the-site",
    )
