"""Rounds of a study, central and masked: session, answers, release, and the step to the next query."""
