"""A site with a page: a real state in which a study waits, and a browser that a link let in."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigenveil.numerics.encoding import to_bytes
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.applicant import Applicant
from eigenveil.study.study import Federation
from eigenveil_client.site.commands.console.program import OWNER, application
from eigenveil_client.site.config import site_dictionary
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store_access import open_site_store
from tests.client.site.command_line import written
from tests.client.site.support import SITE, Stage, a_plan, a_stage, a_study
from tests.common.web.asgi import Browser

PORT = 8000
COLUMNS = ("age", "body_weight", "body_height", "creatinine")
PURPOSE = "Which laboratory values rise and fall together before a kidney fails"


def study_plan(name: str = "kidney-values", purpose: str = PURPOSE, submission: str = "") -> Plan:
    known = {one.name: one for every in site_dictionary(None).columns for one in every.columns}
    columns = tuple(known[name] for name in COLUMNS)
    return a_plan(a_study(name=name, purpose=purpose, columns=columns, components=2), submission=submission)


ASKS = Applicant(
    full_name="Dr. Maria Stein",
    institution="University Hospital of Anytown, Department of Nephrology",
    contact="m.stein@nephrology.example, +00 12 345678",
    ethics_reference="2026-118",
    legal_basis="research in the public interest, Art. 9(2)(j) GDPR",
)


def stated_plan(applicant: Applicant = ASKS, **federation: Any) -> Plan:
    """A study of four sites that states who asks."""
    sites = (SITE, "hospital-b", "hospital-c", "hospital-d")
    invited = Federation(**{"sites": sites, "quorum": 3, **federation})
    study = replace(study_plan().study, name="kidney-stated", applicant=applicant, federation=invited)
    return a_plan(study, submission="stated")


@dataclass(kw_only=True)
class Rig:
    stage: Stage
    plan: Plan
    config_file: Path

    def browser(self, language: str = "en") -> Browser:
        app, gate = application(self.config_file, PORT, language)
        browser = Browser(app=app)
        assert browser.get(gate.link(OWNER)).status == 200
        return browser

    def receive(self, plan: Plan, decide_until: int = 0) -> None:
        with open_site_store(self.stage.config) as store:
            signed = self.stage.signed(plan)
            store.store_pending(
                ReceivedPlan(
                    plan=plan.digest, plan_json=plan.to_json(), signature=signed.signature,
                    status=ConsentStatus.PENDING, at=store.now(), decide_until=decide_until,
                )
            )  # fmt: skip

    def seen(self) -> ReceivedPlan:
        with open_site_store(self.stage.config) as store:
            found = store.studies.get(self.plan.digest)
        assert found is not None
        return found

    def answer(self) -> None:
        round_query = rehearse(self.plan)[0]
        with open_site_store(self.stage.config) as store:
            with closing(make_engine(self.stage.config).load(self.plan)) as stored:
                values = stored.answer(round_query.query, round_query.priced.frame)
            store.outgoing.answer(self.plan, round_query, to_bytes(values), ())


def write_patients(path: Path, rows: int = 60) -> None:
    seen = [(math.sin(3 * row), math.sin(7 * row)) for row in range(rows)]
    cells = [(50 + 30 * a, 75 + 20 * b, 170 + 15 * a, 0.9 + 0.3 * b) for a, b in seen]
    lines = [",".join(COLUMNS), *(",".join(f"{one:.1f}" for one in row) for row in cells)]
    path.write_text("\n".join(lines) + "\n")


def rigged(folder: Path, **result: str) -> Rig:
    stage, plan = a_stage(folder, approval=Approval.MANUAL, analysts=("*",)), study_plan(**result)
    write_patients(stage.records)
    rig = Rig(stage=stage, plan=plan, config_file=written(stage, 'approval = "manual"\nanalysts = ["*"]\n'))
    rig.receive(plan)
    return rig
