"""A study that its federation has been held against, and not yet been asked."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.digits import shown
from eigenveil.dictionary.admission import check_study
from eigenveil.dictionary.resolve import Resolved
from eigenveil.errors import Code, RequestError
from eigenveil.reporting.notebook import card, lines
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study, study_digest, study_to_toml
from eigenveil_client.analyst.dictionaries import made_whole
from eigenveil_client.analyst.federation import FederationView
from eigenveil_client.analyst.python.budget import budget_from
from eigenveil_client.analyst.python.choices import Choices, study_file
from eigenveil_client.analyst.python.plan import Explanation, StudyPlan, plan_of, price_of
from eigenveil_client.analyst.python.run import Run
from eigenveil_client.analyst.signing.proposal import DAY_SECONDS, USUAL_DAYS, check_days
from eigenveil_client.analyst.study_text import explanation_text
from eigenveil_client.analyst.talk import Talk
from eigenveil_proto.v1 import eigenveil_pb2 as pb

LASTING = (pb.STUDY_STATE_RUNNING, pb.STUDY_STATE_RELEASED, pb.STUDY_STATE_AWAITING_APPROVAL)
SHOWN = 8  # columns of a card


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedStudy:
    """A study for one federation: `toml` is the text to keep, which names columns of the dictionary; `whole`
    is what is sent, with every unit and bound, and in what it is not the dictionary's; `study` is its value;
    `asked` says at which sites a person decides about it, as these state, and for how long it waits.

    `plan` asks nobody, `explain` the coordinator; neither charges anything. `submit` starts it.
    """

    talk: Talk
    toml: str
    whole: Resolved
    study: Study
    asked: Mapping[str, Any]

    def plan(self) -> StudyPlan:
        """What public numbers say of it: nobody is asked.

        Raises:
            RequestError: its algorithm cannot run it, or its epsilon is too small.
        """
        return plan_of(self.study)

    def explain(self) -> Explanation:
        """What it would ask of each site, reveal and cost, as the coordinator says: nothing is charged.

        Raises:
            EigenveilError: it would be refused, or the coordinator cannot be reached.
        """
        value = json.loads(self.talk.ask(lambda analyst: analyst.explain(self.whole.text)))
        value |= {"overrides": list(self.whole.overrides)}
        budget = budget_from(self.talk.ask(lambda analyst: analyst.listed()))
        left = budget.studies_left(price_of(value))
        return Explanation(value=value, text=explanation_text(value), left=left)

    def same(self, submission: str = "") -> pb.StudyRow | None:
        """The latest study of yours that says the very same, and has or will have a result; None if there is
        none, or one of them is of this submission, which is one study however often it is sent."""
        mine = bytes.fromhex(study_digest(self.study))
        rows = self.talk.ask(lambda analyst: analyst.studies())
        found = [row for row in rows if row.study_digest == mine and row.state in LASTING]
        return found[-1] if found and submission not in [row.submission for row in found] else None

    def submission_id(self, *, again: bool = False) -> str:
        """The id to submit it under, as `Analyst.submission_id`; with `again` a new one."""
        if again:
            return uuid.uuid4().hex
        return self.talk.ask(lambda analyst: analyst.submission_id(self.study))

    def submit(
        self,
        *,
        again: bool = False,
        submission: str | None = None,
        expires_days: int = USUAL_DAYS,
        tell: Callable[[str], None] = print,
    ) -> Run:
        """Sign it with your own key and start it, and go on at once: `wait` on what is returned.

        Calling it is your consent. What you sign is told to `tell` first: every value of the study, and the
        algorithm where it says `auto`; what raises in there leaves it unsigned. The signature is good for
        `expires_days` days, 31 at most; sites answer nothing of the study afterwards.

        A study that has or will have a result is paid for once more only with `again`. The same `submission`
        twice is one study, however often it is sent; without one it is as `submission_id` says.

        Raises:
            RequestError: code `conflict`, this very study has or will have a result; `bad-argument`, a
                signature is not good for so many days; or it is refused.
            PeerError: the coordinator planned something else than this study: nothing was signed.
            EigenveilError: the coordinator's own error, or it cannot be reached.
        """
        chosen = submission or self.submission_id(again=again)
        check_days(expires_days)
        same = None if again else self.same(chosen)
        if same is not None:
            raise RequestError(
                Code.CONFLICT,
                f"not submitted: {repeated(same, self.study)}: see federation.run("
                f'"{same.plan_digest.hex()[:12]}"), or submit(again=True) if you mean that',
            )
        proposal = self.talk.ask(
            lambda analyst: analyst.propose(
                self.whole.text, chosen, days=expires_days, dictionary=self.whole.source
            )
        )
        tell(proposal.summary)
        plan, warnings = self.talk.ask(lambda analyst: analyst.sign(proposal))
        warnings += self._late(expires_days)
        return Run(self.talk, plan.digest, plan.study.name, submission=chosen, warnings=tuple(warnings))

    def _late(self, days: int) -> list[str]:
        """That a person may decide after the signature has ended."""
        allowed = self.asked["approval_seconds"] / DAY_SECONDS
        if not self.asked["sites"] or allowed < days:
            return []
        people = ", ".join(self.asked["sites"])
        late = (
            f"people at {people} have {allowed:g} days to decide, and your signature ends after {days}: a "
            "site that agrees later answers nothing; see expires_days (--expires-days)"
        )
        return [late]

    def _rows(self) -> list[tuple[str, str]]:
        names = [column.name for column in self.study.columns]
        epsilon, delta = shown(self.study.epsilon), shown(self.study.delta)
        promise = f"{epsilon} ({self.study.neighbours.value}), except with probability {delta}"
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return [
            *([("purpose", self.study.purpose)] if self.study.purpose else []),
            ("columns", ", ".join(names[:SHOWN]) + more),
            ("sites", ", ".join(self.study.federation.sites)),
            ("components", str(self.study.components)),
            ("epsilon", promise),
            ("algorithm", self.study.algorithm.value),
            *(("own", sentence) for sentence in self.whole.overrides),
        ]

    def __repr__(self) -> str:
        return lines(f"study {self.study.name}", self._rows(), note=self._note())

    def _repr_html_(self) -> str:
        return card(f"Study {self.study.name}", self._rows(), note=self._note())

    def _note(self) -> str:
        people = ", ".join(self.asked["sites"])
        return f"Not submitted. A person decides about it at {people}." if people else "Not submitted."


def repeated(row: pb.StudyRow, study: Study) -> str:
    """That a study would be paid for twice, in a sentence."""
    state = "waits or runs" if row.state != pb.STUDY_STATE_RELEASED else "is released"
    return (
        f"this very study {state} as {row.plan_digest.hex()[:12]}; submitted again it would spend another "
        f"epsilon of {shown(study.epsilon)}"
    )


def study_from(talk: Talk, view: FederationView, toml: str, folder: Path) -> FederatedStudy:
    """The study that a file's text says, held against what the federation has.

    Raises:
        RequestError: it is refused, or the federation does not have its sites or its columns.
    """
    whole = made_whole(toml, folder, talk.profile)
    study = parse_study(whole.text)
    check_study(study, view.directory)
    return FederatedStudy(talk=talk, toml=toml, whole=whole, study=study, asked=view.asked(study))


def study_of(talk: Talk, view: FederationView, choices: Choices) -> FederatedStudy:
    """The study that these choices make. Raises as `study_from`."""
    return study_from(talk, view, study_file(choices, view), Path())


def stated(talk: Talk, view: FederationView, study: Study) -> FederatedStudy:
    """A study that was built in Python. Raises as `study_from`."""
    return study_from(talk, view, study_to_toml(study), Path())
