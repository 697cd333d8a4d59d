"""Notices that a study waits or has ended, their delivery by mail or webhook, and probes of the servers.
Certificates are verified, a mail server without the configured TLS mode is refused, redirects of a webhook
are not followed. Server replies are not passed on, because they may quote a password."""

from __future__ import annotations

import http.client
import json
import re
import smtplib
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from email.utils import formatdate
from enum import StrEnum
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import NAME
from eigenveil_common.files import read_secret
from eigenveil_common.notify.config import Notify, Tls

FOOTER = "A program wrote this. It holds nothing of a record, and nothing that an analyst wrote."
HURRY = "The time to decide runs out. Afterwards the study goes on without this site, or ends."
SHORT_DIGEST = re.compile(r"[0-9a-f]{6,64}")
T = TypeVar("T")


class NoticeKind(StrEnum):
    """Log events that notices are about."""

    WAITS = "study-waits"
    REMINDER = "study-still-waits"
    RELEASED = "study-released"
    FAILED = "study-failed"
    CANCELLED = "study-cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Notice about a study. `at` is Unix time; `site` is empty at the coordinator. It has the study's short
    digest and its analyst, nothing of a record and no text of an analyst, such as a study's name or purpose,
    because readers of a mail do not expect foreign text. Raises ValueError: a name or a digest is invalid; a
    peer may have sent it."""

    kind: NoticeKind
    federation: str
    site: str
    study: str
    analyst: str
    at: int

    def __post_init__(self) -> None:
        for name in (self.federation, self.analyst, *([self.site] if self.site else [])):
            if not NAME.fullmatch(name):
                raise ValueError("not a name")
        if not SHORT_DIGEST.fullmatch(self.study):
            raise ValueError("not a digest")

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    def mail(self, sender: str, recipient: str) -> EmailMessage:
        """Return the mail to one recipient. Its id is fixed, so mail programs recognise duplicates."""
        subject, body = self._subject_and_body()
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = sender, recipient, subject
        mail["Date"] = formatdate(self.at)
        repeated = f".{self.at}" if self.kind is NoticeKind.REMINDER else ""  # of the others there is one
        local = f"{self.kind}.{self.study}.{self.site}{repeated}"
        mail["Message-ID"] = f"<{local}@{self.federation}.eigenveil.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(f"{body}\n\n{FOOTER}\n")
        return mail

    def _subject_and_body(self) -> tuple[str, str]:
        study = f"study {self.study} by {self.analyst}, federation {self.federation}"
        show, result = f"    eigenveil study show {self.study}", f"    eigenveil study result {self.study}"
        decide = (
            f"At {self.site} a person must decide about {study}.\n\n"
            "To see its purpose, what would be sent and what it costs:\n\n"
            f"    eigenveil-site explain {self.study} --config FILE\n\n"
            "Then run eigenveil-site approve or eigenveil-site decline with the same arguments.\n"
            "The same in a browser: eigenveil-site console --config FILE"
        )
        subject, body = {
            NoticeKind.WAITS: (f"A study waits for a decision at {self.site}", decide),
            NoticeKind.REMINDER: (
                f"A study still waits for a decision at {self.site}",
                f"{decide}\n\n{HURRY}",
            ),
            NoticeKind.RELEASED: ("Released", f"There is a result of {study}:\n\n{result}"),
            NoticeKind.FAILED: ("Ended without a result", f"No result of {study}. The reason:\n\n{show}"),
            NoticeKind.CANCELLED: ("Cancelled", f"Cancelled or refused: {study}. The reason:\n\n{show}"),
        }[self.kind]
        return f"{subject}: {self.study}", body


SECONDS = 20.0
HELO_NAME = "[127.0.0.1]"  # EHLO name; smtplib would look up our host name
RETRYABLE_STATUSES = (408, 429)  # client error statuses that a retry may resolve


class DeliveryError(Exception):
    """Failed delivery; `code` is the server's or 0, `permanent` means that a retry is useless."""

    def __init__(self, kind: str, code: int, *, permanent: bool) -> None:
        super().__init__(f"{kind} {code}" if code else kind)
        self.code = code
        self.permanent = permanent


def send_mail(notify: Notify, notice: Notice, recipient: str) -> None:
    """Send the mail. Raises DeliveryError, and EigenveilError for an unreadable file."""
    with _mail_server(notify) as server:
        server.send_message(notice.mail(notify.mail_from, recipient))


def call_webhook(notify: Notify, notice: Notice) -> None:
    """Post the notice as JSON; status 200 to 299 is success. Raises as `send_mail`."""
    headers = {"Content-Type": "application/json", "User-Agent": "eigenveil", **_stated_header(notify)}
    parts = urlsplit(notify.webhook)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with _webhook_host(notify) as host:
        host.request("POST", target, notice.to_json(), headers)
        status = host.getresponse().status
    if not 200 <= status < 300:
        permanent = 300 <= status < 500 and status not in RETRYABLE_STATUSES
        raise DeliveryError("HTTPStatus", status, permanent=permanent)


def probe_servers(notify: Notify) -> Iterator[tuple[str, str]]:
    """Yield each configured server and its error ("" if it answers), without sending a mail or posting.
    Raises EigenveilError: a password, a header or the authorities cannot be read."""
    if notify.mail_host:
        error = _error_of(_mail_server(notify), smtplib.SMTP.noop)
        yield f"the mail server {notify.mail_host}:{notify.mail_port}", error
    if notify.webhook:
        _stated_header(notify)
        error = _error_of(_webhook_host(notify), http.client.HTTPSConnection.connect)
        yield f"the webhook's server {urlsplit(notify.webhook).hostname}", error


def _error_of(server: AbstractContextManager[T], probe: Callable[[T], object]) -> str:
    try:
        with server as opened:
            probe(opened)
    except DeliveryError as problem:
        return str(problem)
    return ""


@contextmanager
def _mail_server(notify: Notify) -> Iterator[smtplib.SMTP]:
    """Open a session with the mail server, with the configured TLS mode and login."""
    password = None if notify.mail_password is None else _single_line(read_secret(notify.mail_password))
    context, address = _context(notify), (notify.mail_host, notify.mail_port, HELO_NAME)
    try:
        kind = partial(smtplib.SMTP_SSL, context=context) if notify.mail_tls is Tls.TLS else smtplib.SMTP
        with kind(*address, timeout=SECONDS) as server:
            if notify.mail_tls is Tls.STARTTLS:
                server.starttls(context=context)
            if password is not None:
                server.login(notify.mail_user, password)
            yield server
    except smtplib.SMTPRecipientsRefused as problem:
        ((code, _),) = problem.recipients.values()  # each mail has one
        raise DeliveryError("SMTPRecipientsRefused", code, permanent=code >= 500) from None
    except smtplib.SMTPResponseException as problem:
        fixable = isinstance(problem, smtplib.SMTPAuthenticationError)  # by an operator
        permanent = problem.smtp_code >= 500 and not fixable
        raise DeliveryError(type(problem).__name__, problem.smtp_code, permanent=permanent) from None
    except (smtplib.SMTPException, OSError) as problem:
        raise DeliveryError(type(problem).__name__, 0, permanent=False) from None


@contextmanager
def _webhook_host(notify: Notify) -> Iterator[http.client.HTTPSConnection]:
    parts = urlsplit(notify.webhook)
    host = http.client.HTTPSConnection(
        str(parts.hostname), parts.port or 443, timeout=SECONDS, context=_context(notify)
    )
    try:
        with closing(host):
            yield host
    except (http.client.HTTPException, OSError) as problem:
        raise DeliveryError(type(problem).__name__, 0, permanent=False) from None


def _context(notify: Notify) -> ssl.SSLContext:
    """Return a TLS context that verifies certificates against the system's or the configured authorities."""
    try:
        return ssl.create_default_context(cafile=notify.authorities)
    except OSError as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"authorities = {str(notify.authorities)!r} has no PEM certificates"
        ) from problem


def _stated_header(notify: Notify) -> dict[str, str]:
    """Return the header `Name: value` of the configured file."""
    if notify.webhook_header is None:
        return {}
    name, colon, value = _single_line(read_secret(notify.webhook_header)).partition(":")
    if not colon or not name.replace("-", "").isalnum() or not value.isprintable():
        raise RequestError(
            Code.BAD_CONFIG, "the file webhook_header must hold one line, such as Authorization: Bearer ..."
        )
    return {name: value.strip()}


def _single_line(data: bytes) -> str:
    """Return the single line of a secret file."""
    try:
        line = data.decode("ascii").rstrip("\r\n")
    except UnicodeDecodeError:
        line = ""
    if not line or not line.isprintable():
        raise RequestError(
            Code.BAD_CONFIG, "the files mail_password and webhook_header must hold one line of plain text"
        )
    return line
