"""From a log event to a message on a real server, and what is never sent."""

from __future__ import annotations

import json
import logging
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_common import log
from eigenveil_common.config import keys, load
from eigenveil_common.examples import example
from eigenveil_common.notify import outbox
from eigenveil_common.notify.config import Notify, Tls
from eigenveil_common.notify.delivery import HURRY
from eigenveil_common.notify.outbox import check_notify, notifications
from eigenveil_server.config import Config
from tests.common.notify.servers import Seen, authority, mail_handler, serving, web_handler
from tests.support import Log, Patch

STUDY = "1234567890ab" + 52 * "0"
OFFICER = "officer@hospital.example"
Line = tuple[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: Patch) -> Iterator[None]:
    """Tries follow each other at once, and the log says what it says in a daemon."""
    monkeypatch.setattr(outbox, "RETRY_DELAYS", (0.01, 0.01))
    before = log.logger.level
    log.logger.setLevel(logging.INFO)
    yield
    log.logger.setLevel(before)


def until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)


def secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def mailing(folder: Path, port: int, root: Path, tls: Tls, **more: Any) -> Notify:
    if tls is not Tls.NONE:
        more |= {"mail_user": "ev", "mail_password": secret(folder / "password", "hush-hush\n")}
    return Notify(
        **({"to": (OFFICER,)} | more),
        mail_host="127.0.0.1", mail_port=port, mail_tls=tls, mail_from="ev@h.example", authorities=root,
    )  # fmt: skip


def hooked(port: int, root: Path, **more: Any) -> Notify:
    return Notify(webhook=f"https://127.0.0.1:{port}/in?key=hidden", authorities=root, **more)


def outcomes(notify: Notify, *lines: Line) -> Counter[str]:
    counted: Counter[str] = Counter()
    with notifications(notify, federation="north", site="anna", count=lambda one: counted.update((one,))):
        for name, words in lines:
            log.event(name, **words)
        until(lambda: counted.total() >= len(lines))
    return counted


WAITS: Line = ("study-waits", {"study": STUDY, "analyst": "ada", "algorithm": "gauss-cov"})


@pytest.mark.parametrize("tls", list(Tls))
def test_an_officer_gets_one_mail_about_a_waiting_study(tmp_path: Path, tls: Tls) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen = Seen(context=context)
    with serving(mail_handler(seen, tls), seen):
        assert outcomes(mailing(tmp_path, seen.port, root, tls), WAITS) == {"sent": 1}
    (raw,) = seen.mails
    mail = message_from_bytes(raw, policy=policy.default)
    assert (mail["To"], mail["Auto-Submitted"]) == (OFFICER, "auto-generated")
    for word in ("1234567890ab", "ada", "anna"):
        assert word in mail.get_content()
    assert seen.logins == ([] if tls is Tls.NONE else ["\0ev\0hush-hush"])


def test_a_webhook_gets_the_same_as_json_with_the_header_that_only_the_owner_may_read(tmp_path: Path) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen, header = Seen(context=context), secret(tmp_path / "header", "Authorization: Bearer hush-hush\n")
    with serving(web_handler(seen), seen):
        assert outcomes(hooked(seen.port, root, webhook_header=header), WAITS) == {"sent": 1}
        header.chmod(0o644)
        assert outcomes(hooked(seen.port, root, webhook_header=header), WAITS) == {"failed": 1}
    ((path, headers, body),) = seen.posts
    assert (path, headers["Authorization"]) == ("/in?key=hidden", "Bearer hush-hush")
    message = json.loads(body)
    del message["at"]
    study, kind = "1234567890ab", "study-waits"
    assert message == {"analyst": "ada", "federation": "north", "site": "anna", "study": study, "kind": kind}


STILL: Line = ("study-still-waits", {"study": STUDY, "analyst": "ada"})


def test_a_reminder_holds_no_more_than_the_first_notice_and_is_a_mail_of_its_own(tmp_path: Path) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen, posted = Seen(context=context), Seen(context=context)
    with serving(mail_handler(seen, Tls.STARTTLS), seen), serving(web_handler(posted), posted):
        mail = mailing(tmp_path, seen.port, root, Tls.STARTTLS)
        for lines in ((WAITS,), (STILL,)):
            outcomes(mail, *lines)
            outcomes(hooked(posted.port, root), *lines)
        time.sleep(1.1)  # the time of a notice is in whole seconds
        outcomes(mail, STILL)
    first, second, third = (message_from_bytes(raw, policy=policy.default) for raw in seen.mails)
    assert len({one["Message-ID"] for one in (first, second, third)}) == 3, "mail programs drop a repeated id"
    said = [list(filter(None, one.get_content().splitlines())) for one in (first, second, third)]
    assert said[1] == said[2]
    assert [line for line in said[1] if line != HURRY] == said[0]
    assert not re.search(r"\d", HURRY)
    waits, still = (json.loads(body) for _, _, body in posted.posts)
    assert (still["kind"], still.keys()) == ("study-still-waits", waits.keys())


def test_an_analyst_hears_of_their_own_studies_alone(tmp_path: Path) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen = Seen(context=context)
    with serving(mail_handler(seen, Tls.STARTTLS), seen):
        notify = mailing(tmp_path, seen.port, root, Tls.STARTTLS, to=())
        counted: Counter[str] = Counter()
        addresses = {"ada": "ada@lab.example", "bea": "bea@lab.example"}
        with notifications(
            notify, federation="north", analysts=addresses, count=lambda one: counted.update((one,))
        ):
            for end in ("released", "failed", "cancelled"):
                log.event(f"study-{end}", study=STUDY, analyst="ada")
            log.event("study-released", study=STUDY, analyst="somebody-else")
            log.event("study-submitted", study=STUDY, analyst="bea")
            until(lambda: counted["sent"] == 3)
    assert [one.lower() for one in seen.to] == ["to:<ada@lab.example>"] * 3


@pytest.mark.parametrize("analyst", ["ada\r\nBcc: everybody@lab.example", "<b>ada</b>", "", "Ada Lovelace"])
def test_an_invalid_analyst_name_is_in_no_message(tmp_path: Path, analyst: str) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen = Seen(context=context)
    with serving(web_handler(seen), seen):
        assert outcomes(hooked(seen.port, root), WAITS) == {"sent": 1}
        with notifications(hooked(seen.port, root), federation="north", site="anna", count=lambda one: None):
            log.event("study-waits", study=STUDY, analyst=analyst)
    assert len(seen.posts) == 1


def test_temporary_failures_are_retried_and_permanent_ones_are_not(tmp_path: Path) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen = Seen(context=context)
    with serving(mail_handler(seen, Tls.TLS), seen):
        notify = mailing(tmp_path, seen.port, root, Tls.TLS)
        for replies, outcome in (([450], "sent"), ([450, 450, 450], "failed"), ([550], "failed")):
            seen.replies = list(replies)
            assert outcomes(notify, WAITS) == {outcome: 1}
            assert not seen.replies
    web = Seen(context=context)
    with serving(web_handler(web), web):
        for replies, tries in (([503, 429], 3), ([404], 1), ([302], 1)):
            web.replies, web.posts = list(replies), []
            outcomes(hooked(web.port, root), WAITS)
            assert len(web.posts) == tries, "and a redirect is not followed"


def test_no_message_is_sent_to_a_server_without_trusted_tls(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger, _ = authority(tmp_path / "other", "127.0.0.1")
    root, context = authority(tmp_path, "elsewhere.example")
    for trusted, tls in ((stranger, Tls.STARTTLS), (root, Tls.STARTTLS), (stranger, Tls.TLS)):
        seen = Seen(context=context)
        with serving(mail_handler(seen, tls), seen):
            assert outcomes(mailing(tmp_path, seen.port, trusted, tls), WAITS) == {"failed": 1}
        assert not {"auth", "mail"} & set(seen.commands)
    bare, web = Seen(context=context), Seen(context=context)
    with serving(mail_handler(bare, Tls.NONE), bare):
        nameless = replace(mailing(tmp_path, bare.port, root, Tls.STARTTLS), mail_user="", mail_password=None)
        assert outcomes(nameless, WAITS) == {"failed": 1}
    assert not {"auth", "mail"} & set(bare.commands)
    with serving(web_handler(web), web):
        assert outcomes(hooked(web.port, root), WAITS) == {"failed": 1}
    assert not web.posts


def test_no_secret_is_in_a_log_line(tmp_path: Path, caplog: Log) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    seen = Seen(context=context, replies=[550])
    with serving(mail_handler(seen, Tls.TLS), seen):
        outcomes(mailing(tmp_path, seen.port, root, Tls.TLS), WAITS)
    outcomes(hooked(1, root, webhook_header=secret(tmp_path / "header", "X-Key: hush-hush")), WAITS)
    assert "notice-failed" in caplog.text
    for word in ("hush-hush", "hidden", OFFICER, "said of the recipient"):
        assert word not in caplog.text


def test_a_hanging_server_delays_no_caller(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(outbox, "MOST_QUEUED", 2)
    monkeypatch.setattr(outbox, "CLOSE_SECONDS", 0.1)
    root, context = authority(tmp_path, "127.0.0.1")
    seen, counted = Seen(context=context), Counter[str]()
    handler = mail_handler(seen, Tls.TLS)
    handler.handle = lambda self: time.sleep(1)  # type: ignore[method-assign]
    with serving(handler, seen):
        notify = mailing(tmp_path, seen.port, root, Tls.TLS)
        with notifications(notify, federation="north", site="anna", count=lambda one: counted.update((one,))):
            for _ in range(9):
                log.event(WAITS[0], **WAITS[1])
            assert counted["dropped"] in (6, 7), "one may be on its way"


def test_a_deferred_address_delays_no_other_mail(tmp_path: Path, monkeypatch: Patch) -> None:
    """Deferred mail is tried once more when the daemon ends."""
    monkeypatch.setattr(outbox, "RETRY_DELAYS", (3600.0,))
    monkeypatch.setattr(outbox, "MOST_QUEUED", 2)
    root, context = authority(tmp_path, "127.0.0.1")
    seen, counted, lines = Seen(context=context, puts_off="ada@"), Counter[str](), 9
    with serving(mail_handler(seen, Tls.TLS), seen):
        notify = mailing(tmp_path, seen.port, root, Tls.TLS)
        ada = {"ada": "ada@lab.example"}
        with notifications(
            notify, federation="north", analysts=ada, count=lambda one: counted.update((one,))
        ):
            for outcomes in range(1, lines + 1):
                log.event("study-released", study=STUDY, analyst="ada")
                until(lambda outcomes=outcomes: counted["sent"] == outcomes)  # type: ignore[misc]
            assert counted["dropped"] in (lines - 3, lines - 2), "one may be on its way"
            seen.puts_off = ""
        until(lambda: counted.total() == 2 * lines)
    assert counted["failed"] == 0


def test_doctor_checks_the_servers_and_sends_no_message(tmp_path: Path) -> None:
    root, context = authority(tmp_path, "127.0.0.1")
    mail, web = Seen(context=context), Seen(context=context)
    with serving(mail_handler(mail, Tls.STARTTLS), mail), serving(web_handler(web), web):
        good = (mailing(tmp_path, mail.port, root, Tls.STARTTLS), hooked(web.port, root))
        assert [check.level.value for notify in good for check in check_notify(notify)] == ["ok", "ok"]
    assert (mail.mails, web.posts, len(mail.logins)) == ([], [], 1)
    assert [check.level.value for notify in good for check in check_notify(notify)] == ["fail", "fail"]
    assert check_notify(Notify()) == []


def written(folder: Path, notify: str) -> Config:
    path = folder / "coordinator.toml"
    path.write_text(f'federation = "north"\nstate = "."\n{notify}')
    return load(path, Config)


def test_a_table_is_read_with_its_files_relative_to_the_configuration(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        '[notify]\nmail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\nmail_user = "u"\n'
        'mail_password = "secret"\nto = ["o@b.example"]\n[notify.analysts]\nada = "ada@b.example"\n',
    ).notify
    assert found.channels.secrets == [tmp_path / "secret"]
    assert (found.channels.to, dict(found.analysts)) == (("o@b.example",), {"ada": "ada@b.example"})


@pytest.mark.parametrize("table", [
    'to = ["o@b.example"]',  # by which server?
    'mail_host = "m"\nmail_from = "a@b.example"',  # encrypted or not?
    'mail_host = "m"\nmail_tls = "tls"',  # from whom?
    'mail_host = "m"\nmail_tls = "none"\nmail_from = "a@b.example"\nmail_user = "u"\nmail_password = "p"',
    'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\nmail_user = "u"',
    'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example\\nBcc: x@y.example"',
    'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\nto = ["x@y.example, z@y.example"]',
    'mail_host = "m\\n"',
    'webhook = "http://h.example/"',
    'webhook = "https://user:word@h.example/"',
    'webhook = "https:///path"',
    'webhook = "https://h.example/a b"',
    'webhook = "https://h.example:x/"',
    'webhook_header = "file"',
    'unknown = "key"',
    '[notify.analysts]\nada = "ada@b.example"',
    'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\n[notify.analysts]\nada = 1',
    'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\n[notify.analysts]\n"A!" = "a@b.c"',
])  # fmt: skip
def test_invalid_notification_settings_are_refused_without_their_secrets(tmp_path: Path, table: str) -> None:
    with pytest.raises(RequestError) as refused:
        written(tmp_path, f"[notify]\n{table}\n")
    assert refused.value.code is Code.BAD_CONFIG
    assert "word@" not in str(refused.value)


@pytest.mark.parametrize("name", ["site", "coordinator"])
def test_an_example_explains_every_key_and_notifies_no_address(name: str) -> None:
    text = example(name)
    table = text[text.index("\n[notify]\n") :]
    assert [key for key in keys(Notify) if f"# {key} = " not in table] == []
    assert tomllib.loads(text)["notify"].keys() <= {"analysts"}
