"""What has come from many addresses, against a model that looks at all of it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eigenveil_server.front.by_address import ByAddress

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 30)), max_size=60)


@given(steps=STEPS)
def test_the_oldest_of_the_address_with_the_most_is_known_at_every_moment(
    steps: list[tuple[str, bool, int]],
) -> None:
    found, there = ByAddress[int](), dict[int, str]()
    for number, (address, comes, which) in enumerate(steps):
        if comes or not there:
            found.add(number, address)
            there[number] = address
        else:
            gone = which if which in there else next(iter(there))
            found.remove(gone)
            found.remove(gone)  # it is gone already
            del there[gone]
        assert found.all() == tuple(there)
        assert len(found) == len(there)
        if there:
            count = Counter(there.values())
            most = max(count.values())
            firsts = {next(n for n in there if there[n] == one) for one in count if count[one] == most}
            assert found.oldest_of_most() in firsts
