"""Hypothesis for every test: the same examples on every run, and no deadline on a busy machine.

`pytest --hypothesis-profile=explore` looks for new examples.
"""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")
