"""What people are told: that a study waits or has ended, its short digest and by whom it is.

Nothing of a record, and nothing that an analyst wrote, neither a study's name nor its purpose: a mail is read
where nobody expects a stranger's words.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from email.utils import formatdate
from enum import StrEnum

from eigenveil.study.study import NAME

FOOT = "A program wrote this. It holds nothing of a record, and nothing that an analyst wrote."
SHORT_DIGEST = re.compile(r"[0-9a-f]{6,64}")


class What(StrEnum):
    """The log's names of what people are told of."""

    WAITS = "study-waits"
    RELEASED = "study-released"
    FAILED = "study-failed"
    CANCELLED = "study-cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to be told. `at` is Unix time; `site` is empty at the coordinator.

    Raises:
        ValueError: a name or a digest is none. A peer may have stated it.
    """

    what: What
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
        """The mail to one person. The same notice has the same id: one that was sent twice is known."""
        subject, body = self._words()
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = sender, recipient, subject
        mail["Date"] = formatdate(self.at)
        mail["Message-ID"] = f"<{self.what}.{self.study}.{self.site}@{self.federation}.eigenveil.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(f"{body}\n\n{FOOT}\n")
        return mail

    def _words(self) -> tuple[str, str]:
        """Subject and text."""
        study = f"study {self.study} by {self.analyst}, federation {self.federation}"
        show, result = f"    eigenveil study show {self.study}", f"    eigenveil study result {self.study}"
        match self.what:
            case What.WAITS:
                subject = f"A study waits for a decision at {self.site}: {self.study}"
                body = (
                    f"A person at {self.site} is asked about {study}.\n\n"
                    "What it is for, what would leave and what it costs:\n\n"
                    f"    eigenveil-site explain {self.study} --config FILE\n\n"
                    "Then, with the same ending: eigenveil-site approve, or eigenveil-site decline.\n"
                    "All of it as pages in a browser: eigenveil-site console --config FILE"
                )
                return subject, body
            case What.RELEASED:
                return f"Released: {self.study}", f"There is a result of {study}:\n\n{result}"
            case What.FAILED:
                return f"Ended without a result: {self.study}", f"No result of {study}. Why:\n\n{show}"
            case What.CANCELLED:
                return f"Cancelled: {self.study}", f"Cancelled or refused: {study}. Why:\n\n{show}"
