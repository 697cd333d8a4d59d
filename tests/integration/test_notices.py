"""Events in the daemons' logs reach people by mail, once each."""

from __future__ import annotations

from email import message_from_bytes
from pathlib import Path

from eigenveil.identity import Role
from eigenveil_client.site.policy import Approval
from eigenveil_common.notify.config import Notify, Tls
from eigenveil_common.notify.outbox import notifications
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import until
from tests.common.notify import servers
from tests.integration.running_site import enrolled, listening, running_site
from tests.server.rig import FEDERATION, made, serving, study_toml

OFFICER = "officer@hospital.example"


async def test_one_mail_reports_a_waiting_study_and_one_its_end(tmp_path: Path) -> None:
    root, context = servers.authority(tmp_path, "127.0.0.1")
    seen = servers.Seen(context=context)

    async def scenario() -> str:
        async with listening(), serving(made(tmp_path / "c", long_poll_seconds=0.3)) as rig:
            await enrolled(rig, tmp_path / "anna")
            ada = await rig.client(Role.ANALYST, "ada")
            async with running_site(tmp_path / "anna", approval=Approval.MANUAL):
                digest = await ada.submit(study_toml(sites=("anna",), name="not-in-a-mail"))
                await until(lambda: seen.mails)
            async with running_site(tmp_path / "anna", approval=Approval.MANUAL) as again:
                await until(lambda: again.contact.connected)
                await ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest)))
                await until(lambda: len(seen.mails) > 1)
            return digest

    with servers.serving(servers.mail_handler(seen, Tls.TLS), seen):
        path = Notify(
            to=(OFFICER,), mail_host="127.0.0.1", mail_port=seen.port, mail_tls=Tls.TLS,
            mail_from=OFFICER, authorities=root,
        )  # fmt: skip
        with notifications(path, federation=FEDERATION, site="anna", count=lambda one: None):
            digest = await scenario()
    result = [str(message_from_bytes(mail)["Subject"]) for mail in seen.mails]
    assert [subject.partition(":")[0] for subject in result] == [
        "A study waits for a decision at anna",
        "Cancelled",
    ]
    assert all(digest[:12] in subject for subject in result)
    assert b"not-in-a-mail" not in b"".join(seen.mails)
