"""Both databases store dictionaries and site statements [R22] [R23]."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.dictionary.formats import parse_dictionary, sign_dictionary
from eigenveil.errors import Code
from eigenveil_common.examples import example
from eigenveil_server.storage import directory
from eigenveil_server.storage.database import Store, open_store
from tests.common.storage.places import Place
from tests.core.dictionary.test_admission import stated
from tests.support import refused

KEY = Ed25519PrivateKey.generate()
FIRST = parse_dictionary(example("dictionary"))


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with closing(open_store(place.where)) as opened:
        yield opened


def publish(store: Store, version: int) -> None:
    dictionary = replace(FIRST, version=version)
    signed = sign_dictionary(dictionary, "fed", KEY.sign)
    with store.writer.transaction() as change:
        directory.publish(change, dictionary, signed, at=1000 * version)


def test_versions_of_a_dictionary_rise_and_stay(store: Store) -> None:
    assert (directory.latest(store.reader), directory.latest_version(store.reader)) == (None, 0)
    for version in (1, 3):
        publish(store, version)
    for version in (3, 2, 1):
        with refused(Code.CONFLICT, "version 3 is published", f"says version {version}", "raise it to 4"):
            publish(store, version)
    stored = directory.history(store.reader)
    assert [(one.version, one.at) for one in stored] == [(1, 1000), (3, 3000)]
    assert [one.signed.read()[1].version for one in stored] == [1, 3]
    assert directory.latest(store.reader) == stored[-1]
    remaining = store.reader.rows("SELECT detail FROM audit WHERE kind = ?", ("dictionary-published",))
    assert [row["detail"] for row in remaining] == ["version 1", "version 3"]


def test_a_site_states_one_thing_at_a_time(store: Store) -> None:
    first, second = stated(("age", "größe [cm]")), stated(asks=True)
    for site, statement in (("anna", first), ("bert", second), ("anna", second), ("anna", first)):
        with store.writer.transaction() as change:
            directory.note_statement(change, site, statement)
    assert directory.statements(store.reader) == {"anna": first, "bert": second}
    with store.writer.transaction() as change:
        directory.note_statement(change, "anna", None)
    assert directory.statements(store.reader) == {"bert": second}
