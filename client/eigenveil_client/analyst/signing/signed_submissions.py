"""Ids of submissions that were signed on this machine, beside the key until their signatures end [R31].

A study under a second id could run beside the first, whatever the coordinator said of that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil_common.files import check_owner, is_there, read_secret, write_secret
from eigenveil_common.locks import locked

NAME = "submissions.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSubmission:
    """The id of a submission, the digest of its `study`, and the Unix time at which its signature ends."""

    submission: str
    study: str
    expires: int


def signed_submissions(folder: Path, now: float) -> tuple[SignedSubmission, ...]:
    """Those in an identity's `folder` whose signature has not ended at the Unix time `now`, the oldest first.

    Raises:
        RequestError: code `bad-config`, their file is damaged, a link, or others can read it.
        InternalError: code `storage`.
    """
    path = folder / NAME
    if not is_there(path):
        return ()
    try:
        stored = [_submission(row) for row in parse_json(read_secret(path))["submissions"]]
    except (ValueError, KeyError, TypeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{path} is damaged: it holds the ids of what you signed, which may still run. Put it back "
            "from a copy; or move it away, and submit what you signed before only with its --submission",
        ) from problem
    return tuple(one for one in stored if one.expires > now)


def store_submission(folder: Path, signed: SignedSubmission, now: float) -> None:
    """Add one, durable on return, and drop those that have ended; of a repeated one the later end counts.

    Raises:
        RequestError: as `signed_submissions`, and root in another user's folder.
        InternalError: code `storage`.
    """
    check_owner(folder)
    with locked(folder):
        stored = {(one.submission, one.study): one for one in signed_submissions(folder, now)}
        before = stored.pop((signed.submission, signed.study), signed)
        latest = max(before, signed, key=lambda one: one.expires)
        rows = [asdict(one) for one in (*stored.values(), latest)]
        write_secret(folder / NAME, canonical({"submissions": rows}))


def _submission(row: dict[str, object]) -> SignedSubmission:
    one = SignedSubmission(**row)  # type: ignore[arg-type]
    if [type(one.submission), type(one.study), type(one.expires)] != [str, str, int]:
        raise TypeError
    return one
