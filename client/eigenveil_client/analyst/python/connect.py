"""`eigenveil.connect`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from eigenveil_common.command import needing

if TYPE_CHECKING:
    from eigenveil_client.analyst.python.connected import ConnectedFederation


def connect(profile: str | os.PathLike[str] | None = None) -> ConnectedFederation:
    """The federation that you are enrolled with as an analyst. `profile` is the folder of your identity,
    unless it is $EIGENVEIL_PROFILE or ~/.config/eigenveil. The coordinator is called when it is needed.

    Every call blocks, in a notebook as well, and raises what the command `eigenveil` would say.

    Raises:
        RequestError: code `bad-config`, nobody is enrolled there, or a library of `eigenveil[analyst]` is not
            installed.
        PeerError: code `identity`, the certificate has ended.

    >>> import eigenveil
    >>> eigenveil.connect("nobody")
    Traceback (most recent call last):
    eigenveil.errors.RequestError: nobody holds no identity; enrol with a join file from the coordinator
    """
    with needing("analyst"):
        from eigenveil_client.analyst.python.connected import ConnectedFederation
    return ConnectedFederation(None if profile is None else Path(profile))
