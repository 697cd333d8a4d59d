"""Deadline of a decision about a study, and what happens next, as far as this site knows it: the same
sentences on every page and command. A site is not told which other sites have agreed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eigenveil.protocol.plan import Plan
from eigenveil_client.site.inference_risk import Sentence
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.web.pages import mark

START = mark(
    "The first question comes when all %(sites)s sites that are asked have decided or the time for it is "
    "over. The study runs if at least %(least)s of them agree."
)
REQUIRED = mark("It needs the agreement of: %(names)s.")
UNKNOWN = mark("This site is not told which of the others have agreed.")
NOTHING = mark("If you do nothing, nothing leaves, and the study goes on without this site or ends.")
UNDO = mark("If you agree, you can withdraw later. What has left by then cannot be called back.")
OVER = mark("The time to decide is over: the study goes on without this site, or ends.")
AGREED = mark("You have agreed. Nothing has left this site for the study yet.")
ANSWERED = mark("This site has answered %(answered)s rounds, of %(rounds)s at most.")
TOOK_PART = mark(
    "In the last finished round %(present)s of %(sites)s sites took part, as the coordinator states."
)
DECLINED = mark("Nothing leaves this site for the study.")
WITHDRAWN = mark("Nothing more leaves this site for the study.")
ENDED = mark("The study has ended. Nothing more leaves this site for it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSteps:
    """`sentences` about what happens next. `deadline`: the Unix time before which a person decides, None if
    neither plan nor coordinator states one; `day`: the last day (UTC), if it is the plan's; `over`: it is
    past."""

    deadline: int | None
    day: str
    over: bool
    sentences: tuple[Sentence, ...]

    @property
    def closed(self) -> bool:
        """True if nobody may agree any more: the last day that the plan states is past."""
        return self.over and bool(self.day)

    @property
    def last_second(self) -> int:
        """Unix time of the last second to decide in, which is of the last day; 0 if no time is stated."""
        return 0 if self.deadline is None else self.deadline - 1

    @property
    def machine_time(self) -> str:
        """The time as HTML's <time> takes it; empty if none is stated."""
        if self.deadline is None:
            return ""
        return self.day or f"{datetime.fromtimestamp(self.deadline, UTC):%Y-%m-%dT%H:%MZ}"

    @property
    def text(self) -> str:
        """The time to decide by, as text."""
        return _text(self.deadline, self.day)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, and the sentences in English."""
        return {
            "until": self.machine_time or None,
            "decide_by": self.text,
            "next": " ".join(one.english for one in self.sentences),
        }


def decide_by_text(received: ReceivedPlan, plan: Plan) -> str:
    """Return the time to decide about a received plan, as text."""
    return _text(*_deadline(received, plan))


def _text(deadline: int | None, day: str) -> str:
    if deadline is None:
        return "not stated by the coordinator"
    return f"{day or f'{datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M}'} (UTC)"


def _deadline(received: ReceivedPlan, plan: Plan) -> tuple[int | None, str]:
    """Return the Unix time before which a person decides, and the last day if the plan states it."""
    deadline, federation = received.decision_deadline(plan), plan.study.federation
    return deadline, federation.decide_by if deadline == federation.decision_deadline else ""


def next_steps(store: SiteStore, received: ReceivedPlan, plan: Plan, rounds: int) -> NextSteps:
    """Return the next steps of a study of at most `rounds` rounds."""
    deadline, day = _deadline(received, plan)
    over = deadline is not None and store.now() >= deadline
    return NextSteps(
        deadline=deadline,
        day=day,
        over=over,
        sentences=tuple(_sentences(store, received, plan, rounds, over=over)),
    )


def _sentences(
    store: SiteStore, received: ReceivedPlan, plan: Plan, rounds: int, *, over: bool
) -> list[Sentence]:
    answered = store.egress.answered_rounds(received.plan)
    progress = [Sentence(text=ANSWERED, values={"answered": answered, "rounds": rounds})] if answered else []
    match received.status:
        case ConsentStatus.PENDING:
            waiting = [*_start(plan), *(Sentence(text=one) for one in (UNKNOWN, NOTHING, UNDO))]
            return [Sentence(text=OVER)] if over else waiting
        case ConsentStatus.ACCEPTED:
            return [*progress, *_last_round(store, plan)] or [Sentence(text=AGREED), *_start(plan)]
        case ConsentStatus.DECLINED:
            return [Sentence(text=DECLINED)]
        case ConsentStatus.WITHDRAWN:
            return [Sentence(text=WITHDRAWN), *progress]
        case ConsentStatus.ENDED:
            return [Sentence(text=ENDED), *progress]


def _start(plan: Plan) -> list[Sentence]:
    federation = plan.study.federation
    counts = {"sites": len(federation.sites), "least": federation.least}
    names = ", ".join(federation.required)
    return [
        Sentence(text=START, values=counts),
        *([Sentence(text=REQUIRED, values={"names": names})] if names else []),
    ]


def _last_round(store: SiteStore, plan: Plan) -> list[Sentence]:
    present = store.transcript.last_present(plan.digest)
    if not present:
        return []
    counts = {"present": len(present), "sites": len(plan.study.federation.sites)}
    return [Sentence(text=TOOK_PART, values=counts)]
