"""What a site's commands tell of analysts' cards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from eigenveil_client.site.analysts.kind import ANALYSTS
from eigenveil_client.site.roster import views
from eigenveil_client.site.roster.pin import Standing
from eigenveil_client.site.roster.roster import Roster
from eigenveil_common.doctor import Check, ok, warn

UNSIGNED = {
    "answered": "answered, in names that are the coordinator's word alone, until a first card is confirmed",
    "refused": "refused",
}


def listed(folder: Path) -> dict[str, Any]:
    """The analysts by name, what was put aside, and what becomes of unsigned studies. Raises as `Roster`."""
    held = Roster(ANALYSTS, folder).held()
    return {"unsigned": "refused" if held.ever_confirmed else "answered", **views.listed(held)}


def check_analysts(folder: Path) -> Check:
    """Whether studies have to be signed here. Raises as `listed`, and as `Roster.check_unchanged`."""
    roster, name = Roster(ANALYSTS, folder), "analysts' keys"
    roster.check_unchanged()
    told = listed(folder)
    count = Counter(row["standing"] for row in told["analysts"])
    unconfirmed = count[Standing.IMPORTED.value]
    text = (
        f"confirmed: {count[Standing.CONFIRMED.value]}, not confirmed: {unconfirmed}; studies that nobody "
        f"signed are {UNSIGNED[told['unsigned']]}"
    )
    if unconfirmed:
        return warn(name, text, "telephone each: eigenveil-site analysts confirm NAME")
    if told["unsigned"] == "answered":
        todo = "take in an analyst's card: eigenveil-site analysts import FILE, then confirm NAME"
        return warn(name, text, todo)
    return ok(name, text)
