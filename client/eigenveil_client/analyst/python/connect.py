"""The function `eigenveil.connect`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from eigenveil_common.command import require_extra

if TYPE_CHECKING:
    from eigenveil_client.analyst.python.connected import ConnectedFederation


def connect(profile: str | os.PathLike[str] | None = None) -> ConnectedFederation:
    """Return the federation that you are enrolled with as an analyst.

    `profile` is the folder of your identity (default: $EIGENVEIL_PROFILE or ~/.config/eigenveil). The
    coordinator is called when it is needed. Every call blocks, in a notebook as well, and raises the errors
    of the command `eigenveil`.

    Raises:
        RequestError: code `bad-config`, the profile is not enrolled, or a library of `eigenveil[analyst]` is
        not
            installed.
        PeerError: code `identity`, the certificate has expired.

    >>> import eigenveil
    >>> eigenveil.connect("nobody")
    Traceback (most recent call last):
    eigenveil.errors.RequestError: nobody holds no identity; enrol with a join file from the coordinator
    """
    with require_extra("analyst"):
        from eigenveil_client.analyst.python.connected import ConnectedFederation
    return ConnectedFederation(None if profile is None else Path(profile))
