"""Connections by address, against a model that searches all of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eigenveil_server.front.pending_connections import ConnectionsByAddress

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 30)), max_size=60)


@given(steps=STEPS)
def test_the_oldest_of_the_address_with_the_most_is_known_at_every_moment(
    steps: list[tuple[str, bool, int]],
) -> None:
    found, opened = ConnectionsByAddress[int](), dict[int, str]()
    for number, (address, comes, which) in enumerate(steps):
        if comes or not opened:
            found.add(number, address)
            opened[number] = address
        else:
            gone = which if which in opened else next(iter(opened))
            found.remove(gone)
            found.remove(gone)  # it is gone already
            del opened[gone]
        assert found.all() == tuple(opened)
        assert len(found) == len(opened)
        if opened:
            count = Counter(opened.values())
            most = max(count.values())
            firsts = {next(n for n in opened if opened[n] == one) for one in count if count[one] == most}
            assert found.oldest_of_busiest_address() in firsts
