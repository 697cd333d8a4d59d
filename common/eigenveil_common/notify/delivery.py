"""One mail or one webhook call on its way, by the standard library; and whether the other end answers.

Certificates are checked, a mail server that does not offer the TLS that is stated is not spoken to, and a
webhook is not followed elsewhere. Nothing that the other end said is passed on: it may quote a password.
"""

from __future__ import annotations

import http.client
import smtplib
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from urllib.parse import urlsplit

from eigenveil.errors import Code, RequestError
from eigenveil_common.files import read_secret
from eigenveil_common.notify.config import Notify, Tls
from eigenveil_common.notify.message import Notice

SECONDS = 20.0
GREETED_AS = "[127.0.0.1]"  # to a mail server: smtplib would ask the name service for our own name
ANOTHER_TRY = (408, 429)  # of what HTTP calls our fault


class Undelivered(Exception):
    """It did not arrive. `code` is the server's, 0 where it said nothing; `lasting`: nor will it later."""

    def __init__(self, kind: str, code: int, *, lasting: bool) -> None:
        super().__init__(f"{kind} {code}" if code else kind)
        self.code = code
        self.lasting = lasting


def send_mail(notify: Notify, notice: Notice, recipient: str) -> None:
    """Hand the mail to the server.

    Raises:
        Undelivered. EigenveilError: the password or the authorities cannot be read.
    """
    with _mail_server(notify) as server:
        server.send_message(notice.mail(notify.mail_from, recipient))


def call_webhook(notify: Notify, notice: Notice) -> None:
    """Post the notice as JSON; any answer of 200 to 299 will do. Raises as `send_mail`."""
    headers = {"Content-Type": "application/json", "User-Agent": "eigenveil", **_stated_header(notify)}
    parts = urlsplit(notify.webhook)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with _webhook_host(notify) as host:
        host.request("POST", target, notice.to_json(), headers)
        status = host.getresponse().status
    if not 200 <= status < 300:
        lasting = 300 <= status < 500 and status not in ANOTHER_TRY
        raise Undelivered("HTTPStatus", status, lasting=lasting)


def reach(notify: Notify) -> Iterator[tuple[str, str]]:
    """What is tried, and what came of it ("" if all is well): no mail is sent and nothing is posted.

    Raises:
        EigenveilError: a password, a header or the authorities cannot be read.
    """
    if notify.mail_host:
        yield f"the mail server {notify.mail_host}:{notify.mail_port}", _tried_mail(notify)
    if notify.webhook:
        yield f"the webhook's server {urlsplit(notify.webhook).hostname}", _tried_webhook(notify)


def _tried_mail(notify: Notify) -> str:
    try:
        with _mail_server(notify) as server:
            server.noop()
    except Undelivered as problem:
        return str(problem)
    return ""


def _tried_webhook(notify: Notify) -> str:
    _stated_header(notify)
    try:
        with _webhook_host(notify) as host:
            host.connect()
    except Undelivered as problem:
        return str(problem)
    return ""


@contextmanager
def _mail_server(notify: Notify) -> Iterator[smtplib.SMTP]:
    """A session with the server, encrypted and logged in as stated."""
    password = None if notify.mail_password is None else _line(read_secret(notify.mail_password))
    context, where = _context(notify), (notify.mail_host, notify.mail_port, GREETED_AS)
    try:
        direct = notify.mail_tls is Tls.TLS
        kind = partial(smtplib.SMTP_SSL, context=context) if direct else smtplib.SMTP
        with kind(*where, timeout=SECONDS) as server:
            if notify.mail_tls is Tls.STARTTLS:
                server.starttls(context=context)
            if password is not None:
                server.login(notify.mail_user, password)
            yield server
    except smtplib.SMTPRecipientsRefused as problem:
        ((code, _),) = problem.recipients.values()  # each mail has one
        raise Undelivered("SMTPRecipientsRefused", code, lasting=code >= 500) from None
    except smtplib.SMTPAuthenticationError as problem:  # which an operator mends
        raise Undelivered("SMTPAuthenticationError", problem.smtp_code, lasting=False) from None
    except smtplib.SMTPResponseException as problem:
        lasting = problem.smtp_code >= 500
        raise Undelivered(type(problem).__name__, problem.smtp_code, lasting=lasting) from None
    except (smtplib.SMTPException, OSError) as problem:
        raise Undelivered(type(problem).__name__, 0, lasting=False) from None


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
        raise Undelivered(type(problem).__name__, 0, lasting=False) from None


def _context(notify: Notify) -> ssl.SSLContext:
    """TLS with a certificate that is checked, against the system's authorities or the stated ones."""
    try:
        return ssl.create_default_context(cafile=notify.authorities)
    except OSError as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"authorities = {str(notify.authorities)!r} holds no certificates in PEM"
        ) from problem


def _stated_header(notify: Notify) -> dict[str, str]:
    """The one header that the file holds, `Name: value`.

    Raises:
        RequestError: the file is missing, readable by others, or holds something else.
    """
    if notify.webhook_header is None:
        return {}
    name, colon, value = _line(read_secret(notify.webhook_header)).partition(":")
    if not colon or not name.replace("-", "").isalnum() or not value.isprintable():
        raise RequestError(
            Code.BAD_CONFIG, "webhook_header must hold one line, such as Authorization: Bearer ..."
        )
    return {name: value.strip()}


def _line(data: bytes) -> str:
    """The one line of a file.

    Raises:
        RequestError: code `bad-config`; it is not quoted.
    """
    try:
        line = data.decode("ascii").rstrip("\r\n")
    except UnicodeDecodeError:
        line = ""
    if not line or not line.isprintable():
        raise RequestError(
            Code.BAD_CONFIG, "mail_password and webhook_header are files of one line of plain text"
        )
    return line
