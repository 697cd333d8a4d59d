"""A study from submission to the signed release."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from eigenveil.identity import Role
from eigenveil.reporting.verify import load_release
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.admin.status import report, text
from tests.server.rig import answering, made, serving, study_toml


async def test_a_study_runs_to_its_release(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        sites = await rig.sites()
        analyst = await rig.client(Role.ANALYST, "ada")
        async with answering(sites):
            digest = await analyst.submit(study_toml())
            events = await analyst.events(digest)
            assert events[-1].state == pb.STUDY_STATE_RELEASED, events[-1]
            released = load_release(await analyst.release(digest))
            assert released.public_key == rig.daemon.runtime.keys.release_public
        status = report(rig.config)
    (row,) = status["studies"]
    assert len(row["round_ms"]) == row["rounds"] == len(released.document["rounds"])
    assert row["round_ms_median"] == median(row["round_ms"])
    assert f"{row['rounds']} rounds of {row['round_ms_median']:g} ms (median)" in text(status)
    assert not any("ms" in key or "milli" in key for key in released.document["rounds"][0])
    assert released.document["plan_digest"] == digest
    assert released.document["private"] is True
