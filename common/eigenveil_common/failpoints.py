"""Named places at which a test can end this process, as a power cut or the kernel would.

Nothing happens at a failpoint unless something armed it in this very process, by a call of `arm`. No
command, configuration or environment variable leads to one; a test of the repository holds to that.
"""

from __future__ import annotations

from collections.abc import Callable

_actions: dict[str, Callable[[], None]] = {}


def failpoint(name: str) -> None:
    """Do what `name` was armed with; in production, look into an empty dict."""
    action = _actions.get(name)
    if action is not None:
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Have `action` called at every passage of `name` from now on, on the thread that passes."""
    _actions[name] = action


def disarm() -> None:
    _actions.clear()
