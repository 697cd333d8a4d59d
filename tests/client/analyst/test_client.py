"""An analyst's client signs the plan of the study that was written and no other. [R4] [R12] [R31]"""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import Simulation, simulate
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.planning.choose import candidates, make_plan
from eigenveil.protocol.plan import PLAN_SIGNED, Plan, plan_for
from eigenveil.reporting.document import signed_release
from eigenveil.signatures import ReleaseKeys, formatted
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import Applicant
from eigenveil.study.prior import Prior, PriorSource, encode_axes
from eigenveil.study.study import Choose, Extraction, Federation, Scaling, Study, Trust
from eigenveil.study.toml import study_digest, study_to_toml
from eigenveil.study_authorization import authorization_from_proto, check_authorization
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.profile import KEY_FILE, SigningKey, key_exists
from eigenveil_client.analyst.proposal import SUBMISSIONS_FILE, signed_submissions
from eigenveil_client.connection.identity import IDENTITY_FORMAT
from eigenveil_client.connection.identity_files import ABOUT
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import a_study, refused

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes(31) + bytes([i])) for i in (1, 2))
PUBLIC = KEY.public_key().public_bytes_raw()
STUDY = a_study(sites=("east", "north", "south"))
AUTO = replace(STUDY, algorithm=Algorithm.AUTO)
ADA = Identity(federation="test", role=Role.ANALYST, name="ada")
PRIOR = Prior(source=PriorSource.LOADINGS, sha256="ab" * 32, scaling=Scaling.BOUNDS, variances=(1.0,),
              level=0.125, axes=encode_axes(np.eye(STUDY.dimension)[:1]))  # fmt: skip
CHANGED: dict[str, dict[str, Any]] = {
    "name": {"name": "other"},
    "columns": {"columns": (*STUDY.columns[1:], replace(STUDY.columns[0], upper=STUDY.columns[0].upper + 1))},
    "epsilon": {"epsilon": 2.0},
    "delta": {"delta": 2e-6},
    "components": {"components": 2},
    "federation": {"federation": replace(STUDY.federation, sites=("north", "south"))},
    "purpose": {"purpose": "another"},
    "applicant": {"applicant": Applicant(contact="bea@example.org")},
    "algorithm": {"algorithm": Algorithm.REFINED_COV},
    "choose": {"algorithm": Algorithm.AUTO, "choose": Choose.DURING},
    "neighbours": {"neighbours": Neighbours.REPLACE_ONE},
    "max_sites_per_person": {"max_sites_per_person": 2},
    "missing": {"missing": "fill", "columns": tuple(replace(one, fill=one.lower) for one in STUDY.columns)},
    "person_column": {"person_column": "patient"},
    "centring": {"centring": False},
    "scaling": {"scaling": Scaling.NONE},
    "grid_steps": {"grid_steps": STUDY.grid_steps // 2},
    "radius": {"radius": 0.8},
    "max_records": {"max_records": STUDY.max_records - 1},
    "expected_records": {"expected_records": STUDY.expected_records + 1},
    "rank": {"rank": Extraction.DEFLATION, "algorithm": Algorithm.PRIVATE_OJA},
    "batches": {"batches": 2},
    "trust": {"trust": Trust.SECURE_AGGREGATION},
    "colluding": {"trust": Trust.SECURE_AGGREGATION, "colluding": 2},
    "spare_attempts": {"trust": Trust.SECURE_AGGREGATION, "spare_attempts": 2,
                       "federation": replace(STUDY.federation, quorum=2)},
    "prior": {"prior": PRIOR, "algorithm": Algorithm.REFINED_COV, "scaling": Scaling.BOUNDS},
}  # fmt: skip
OF_FEDERATION: dict[str, dict[str, Any]] = {
    "sites": {"sites": ("east", "north", "west")}, "required": {"required": ("north",)},
    "quorum": {"quorum": 2}, "deadline_seconds": {"deadline_seconds": 61.0},
    "minimum_cohort": {"minimum_cohort": 19}, "decide_by": {"decide_by": "2027-01-31"},
    "loading_seconds": {"loading_seconds": 61.0},
}  # fmt: skip


class ScriptedAnalyst(Analyst):
    """A client of `ada` in `folder`, whose coordinator, which may lie, gives these answers, one a call."""

    def __init__(self, *answers: Any, folder: Path = Path()) -> None:
        self._answers = list(answers)
        self._identity: Any = SimpleNamespace(
            release_keys=ReleaseKeys((PUBLIC,), (PUBLIC,)), identity=ADA, folder=folder
        )
        self.sent: list[Any] = []

    async def _call(self, method: Any, request: Any, *more: Any) -> Any:
        self.sent.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ada")
    (folder / ABOUT).write_text(json.dumps(formatted(IDENTITY_FORMAT, {"identity": ADA.uri})))
    SigningKey.make(folder)
    return folder


def planned(study: Study = STUDY, **names: Any) -> Plan:
    return make_plan(study, **({"federation": "test", "submission": "s", "analyst": "ada"} | names))


def explained(plan: Plan) -> pb.ExplainStudyResponse:
    return pb.ExplainStudyResponse(plan_json=plan.to_json())


def submitted(plan: Plan, key: Ed25519PrivateKey = KEY, digest: str = "") -> pb.SubmitStudyResponse:
    message = plan.to_json()
    signed = pb.SignedPlan(plan_json=message, signature=key.sign(PLAN_SIGNED + message))
    return pb.SubmitStudyResponse(plan=signed, plan_digest=bytes.fromhex(digest or plan.digest))


def sent_by(client: ScriptedAnalyst, study: Study = STUDY, **more: Any) -> Plan:
    return asyncio.run(client.submit(study_to_toml(study), "s", **more))[0]


@pytest.mark.parametrize("study", [STUDY, AUTO], ids=["named", "auto"])
def test_what_is_signed_is_the_plan_of_the_study_after_it_was_shown(ada: Path, study: Study) -> None:
    plan, shown = planned(study), list[tuple[str, int]]()
    client = ScriptedAnalyst(explained(plan), submitted(plan), folder=ada)
    found = sent_by(client, study, notify=lambda message: shown.append((message, len(client.sent))))
    assert found.digest == plan.digest
    query, sent = client.sent
    assert (query.submission, sent.submission, query.study_toml) == ("s", "s", sent.study_toml)
    signed, card = authorization_from_proto(sent.authorization), SigningKey.make(ada).key_card
    assert check_authorization(signed, plan, time.time()) == card
    assert abs(signed.read().expires - time.time() - 7 * 86_400) < 60
    ((message, calls),) = shown
    assert calls == 1, "before anything was sent that is signed"
    values = (plan.algorithm.value, "epsilon 1 ", "trust: central", "east, north, south", card.fingerprint)
    assert all(value in message for value in values)
    assert ("chosen by auto" in message) is (study is AUTO)


def proposed(ada: Path, study: Study, **more: str) -> str:
    client = ScriptedAnalyst(explained(planned(study)), folder=ada)
    return asyncio.run(client.propose(study_to_toml(study), "s", **more)).summary  # type: ignore[arg-type]


def test_what_is_shown_of_a_wide_study_is_every_column_before_the_rest(ada: Path) -> None:
    columns = tuple(replace(STUDY.columns[0], name=f"column-{number}") for number in range(40))
    shown = proposed(ada, replace(STUDY, columns=columns)).splitlines()
    assert [line.split()[0] for line in shown[1:41]] == [one.name for one in columns]
    assert shown[41].startswith("You sign tiny")


def test_a_purpose_cannot_pass_for_another_line(ada: Path) -> None:
    shown = proposed(ada, replace(STUDY, purpose="to learn\n  trust: nobody\n  sites: none"))
    assert "  purpose: to learn trust: nobody sites: none\n" in shown
    assert [line[:8] for line in shown.splitlines()].count("  trust:") == 1


def test_nothing_is_signed_without_a_key_and_none_is_made(ada: Path, tmp_path: Path) -> None:
    (tmp_path / ABOUT).write_bytes((ada / ABOUT).read_bytes())
    client = ScriptedAnalyst(explained(planned()), folder=tmp_path)
    with refused(Code.NOT_FOUND, "nothing was signed", "Restore a copy", "eigenveil key export"):
        sent_by(client)
    assert (len(client.sent), key_exists(tmp_path)) == (1, False)


@pytest.mark.parametrize(("days", "seconds"), [(1, 86_400), (30, 30 * 86_400), (31, 31 * 86_400 - 3_600)])
def test_a_signature_expires_within_the_sites_limit(ada: Path, days: int, seconds: int) -> None:
    plan = planned()
    client = ScriptedAnalyst(explained(plan), submitted(plan), folder=ada)
    sent_by(client, days=days)
    signed = authorization_from_proto(client.sent[1].authorization)
    assert abs(signed.read().expires - time.time() - seconds) < 60
    check_authorization(signed, plan, time.time() - 600)  # at a site whose clock is late


def test_every_field_of_a_study_has_a_change_here() -> None:
    assert set(CHANGED) == {field.name for field in fields(Study)}
    assert set(OF_FEDERATION) == {field.name for field in fields(Federation)}


def other_studies() -> list[Any]:
    federation = STUDY.federation
    changes = CHANGED | {
        f"federation.{name}": {"federation": replace(federation, **one)}
        for name, one in OF_FEDERATION.items()
    }
    return [pytest.param(replace(STUDY, **change), id=name) for name, change in changes.items()]


@pytest.mark.parametrize("field", sorted(CHANGED | OF_FEDERATION))
def test_every_value_of_a_study_is_shown_before_it_is_signed(ada: Path, field: str) -> None:
    changes = CHANGED.get(field) or {"federation": replace(STUDY.federation, **OF_FEDERATION[field])}
    one = replace(STUDY, **{name: value for name, value in changes.items() if name != field})
    assert proposed(ada, replace(STUDY, **changes)) != proposed(ada, one if field in changes else STUDY)


def check_not_signed(ada: Path, plan: Plan, study: Study = STUDY) -> None:
    shown: list[str] = []
    client = ScriptedAnalyst(explained(plan), submitted(plan), folder=ada)
    with refused(Code.PROTOCOL, "not signed"):
        sent_by(client, study, notify=shown.append)
    assert (len(client.sent), shown) == (1, [])


@pytest.mark.parametrize("study", other_studies())
def test_a_plan_of_another_study_is_not_signed(ada: Path, study: Study) -> None:
    check_not_signed(ada, planned(study))


@pytest.mark.parametrize(
    "names", [{"submission": "t"}, {"analyst": "eve"}, {"federation": "others"}], ids=str
)
def test_a_plan_in_another_name_is_not_signed(ada: Path, names: dict[str, Any]) -> None:
    check_not_signed(ada, planned(**names))


@pytest.mark.parametrize("study", [STUDY, AUTO], ids=["named", "auto"])
def test_a_plan_of_an_algorithm_that_the_study_does_not_have_is_not_signed(ada: Path, study: Study) -> None:
    allowed = candidates(study) if study is AUTO else (study.algorithm,)
    tried = 0
    for algorithm in set(Algorithm) - set(allowed):
        try:
            plan = plan_for(study, algorithm, federation="test", submission="s", analyst="ada")
        except RequestError:
            continue  # nobody can plan that
        check_not_signed(ada, plan, study)
        tried += 1
    assert tried >= 3


@given(share=st.floats(min_value=1e-3, max_value=0.999))
def test_a_plan_that_spends_less_than_its_study_states_is_not_signed(share: float) -> None:
    plan = planned()
    less = replace(plan, micro_rho=max(1, int(plan.micro_rho * share)))
    with refused(Code.PROTOCOL):
        asyncio.run(ScriptedAnalyst(explained(less)).propose(study_to_toml(STUDY), "s"))


def test_a_plan_that_is_none_is_not_signed(ada: Path) -> None:
    for message in (b"", b"{}", b" " + planned().to_json()):
        with refused(Code.PROTOCOL):
            sent_by(ScriptedAnalyst(pb.ExplainStudyResponse(plan_json=message), folder=ada))


@pytest.mark.parametrize(("lie", "code"), [
    ({"plan": planned(replace(STUDY, epsilon=2.0))}, Code.PROTOCOL),
    ({"plan": planned(submission="t")}, Code.PROTOCOL),
    ({"digest": "ab" * 32}, Code.PROTOCOL),
    ({"key": OTHER}, Code.IDENTITY),
])  # fmt: skip
def test_another_plan_than_the_signed_one_is_reported(ada: Path, lie: dict[str, Any], code: Code) -> None:
    with refused(code, "You signed it", "only with --submission s"):
        sent_by(ScriptedAnalyst(explained(planned()), submitted(**({"plan": planned()} | lie)), folder=ada))


@pytest.mark.parametrize("problem", [
    RequestError(Code.AUTHORIZATION, "it is for another plan"),
    RequestError(Code.BUDGET, "the budget is spent"),
    PeerError(Code.UNREACHABLE, "nobody answers"),
], ids=lambda one: one.code.value)  # fmt: skip
def test_refusal_after_a_signature_names_the_submission_id(ada: Path, problem: EigenveilError) -> None:
    with refused(problem.code, f"{problem}. You signed it", "may still run it", "only with --submission s"):
        sent_by(ScriptedAnalyst(explained(planned()), problem, folder=ada))


def test_the_id_is_shown_before_a_signature_and_stored_before_it_is_sent(ada: Path, tmp_path: Path) -> None:
    for name in (ABOUT, KEY_FILE):
        shutil.copy2(ada / name, tmp_path)
    client = ScriptedAnalyst(explained(planned()), BaseException("Ctrl-C"), folder=tmp_path)
    shown: list[str] = []
    with pytest.raises(BaseException, match="Ctrl-C"):
        sent_by(client, notify=shown.append)
    assert "submission: s," in shown[0]
    (stored,) = signed_submissions(tmp_path, time.time())
    signed = authorization_from_proto(client.sent[1].authorization).read()
    assert (stored.submission, stored.study) == ("s", study_digest(STUDY))
    assert stored.expires == signed.expires
    assert stat.S_IMODE((tmp_path / SUBMISSIONS_FILE).stat().st_mode) == 0o600


@pytest.fixture(scope="module")
def run() -> Simulation:
    rows = np.random.default_rng(1).normal(50, 10, size=(400, 3))
    return simulate(STUDY, dict.fromkeys(STUDY.federation.sites, rows), seed=1)


def release(run: Simulation, key: Ed25519PrivateKey = KEY) -> bytes:
    public = key.public_key().public_bytes_raw()
    return signed_release(run.document, run.result, sign=key.sign, public_key=public)


def test_only_the_whole_signed_release_of_the_study_is_accepted(run: Simulation) -> None:
    data, plan = release(run), bytes.fromhex(run.plan.digest)
    parts = [pb.GetReleaseResponse(release=one, total_bytes=len(data)) for one in (data[:99], data[99:])]
    assert asyncio.run(ScriptedAnalyst(*parts).release(plan)) == data
    with refused(Code.PROTOCOL, "an incomplete release"):
        asyncio.run(ScriptedAnalyst(parts[0], pb.GetReleaseResponse(total_bytes=len(data))).release(plan))
    with refused(Code.PROTOCOL, "the release of another study"):
        asyncio.run(ScriptedAnalyst(*parts).release(bytes(32)))
    strange = release(run, OTHER)
    with refused(Code.BAD_RELEASE):
        answer = pb.GetReleaseResponse(release=strange, total_bytes=len(strange))
        asyncio.run(ScriptedAnalyst(answer).release(plan))
