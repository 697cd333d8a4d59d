"""Whether the ethics approval still holds, and whether it soon ends: for checks, and for the daemon's log."""

from __future__ import annotations

from eigenveil.errors import Code
from eigenveil_client.site.policy import Policy
from eigenveil_common.doctor import Check, fail, ok, warn

ENDS_SOON_DAYS = 30


def approval(policy: Policy, now: int) -> Check:
    """The state of the approval at the Unix time `now`."""
    verdict, days = policy.about_time(now), policy.days_left(now)
    if not verdict.passed:
        text = f"{verdict.text} and nothing is answered"
        return fail("approval", text, "renew it, then set approval_ends in site.toml", code=Code.POLICY)
    if days < ENDS_SOON_DAYS:
        return warn("approval", f"{verdict.text}, in {days:.1f} days", "renew it in time")
    return ok("approval", verdict.text)
