"""Why a person at a site declines a study: one word of a fixed list, and a sentence that its analyst reads.

The list is closed, so that what a person says names no patient. Only a person's decline has one of these
words: what a site refuses because of its records is `failure` to whoever is outside, always.
"""

from __future__ import annotations

from enum import StrEnum

from eigenveil.errors import Code, RequestError

LONGEST_TEXT = 300  # characters
LONGEST_NAME = 100


class DeclineWord(StrEnum):
    """The reasons that a person may state."""

    PURPOSE = "purpose"
    COLUMNS = "columns"
    ANALYST = "analyst"
    BUDGET = "budget"
    TIMING = "timing"
    UNSTATED = "unstated"

    @property
    def sentence(self) -> str:
        """What the analyst reads; what follows the name of the site."""
        return SENTENCES[self]


SENTENCES = {
    DeclineWord.PURPOSE: "what the study is for is not covered there",
    DeclineWord.COLUMNS: "a column of the study may not be used there",
    DeclineWord.ANALYST: "who asks is not known there",
    DeclineWord.BUDGET: "the study would take too much of the budget there",
    DeclineWord.TIMING: "it is not the time for it there",
    DeclineWord.UNSTATED: "no reason was stated",
}


def checked_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """`text`, if it is one line of characters that can be seen: nothing that moves a cursor or turns the
    direction of writing. Whoever shows it must escape it still.

    Raises:
        RequestError: code `bad-argument`.
    """
    if len(text) > longest or not text.isprintable():
        raise RequestError(
            Code.BAD_ARGUMENT, f"write at most {longest} characters in one line, all of which can be seen"
        )
    return text
