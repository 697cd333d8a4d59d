"""File of a release: any tool opens it, and a file that differs in one byte is refused [R32]."""

from __future__ import annotations

import copy
import hashlib
import io
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eigenveil import Simulation, simulate
from eigenveil.errors import Code
from eigenveil.numerics.encoding import parse_json
from eigenveil.reporting.document import release_document, signed_release, unsigned_release
from eigenveil.reporting.release_file import (
    TYPES,
    array_file,
    describe_array,
    read_archive,
    read_array,
    write_archive,
)
from eigenveil.reporting.verify import load_release, load_unsigned, verify_release
from tests.support import a_plan, a_study, refused

KEY = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\5")
PUBLIC = KEY.public_key().public_bytes_raw()


def run() -> Simulation:
    rows = np.random.default_rng(1).normal(50, 10, size=(300, 3))
    return simulate(a_study(components=2, epsilon=4.0), {"north": rows, "south": rows[:99]}, seed=1)


RUN = run()


def sealed(document: Any = RUN.document) -> bytes:
    return signed_release(document, RUN.result, sign=KEY.sign, public_key=PUBLIC)


FILE = sealed()
MEMBERS = read_archive(FILE)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
VALUES = (
    st.sampled_from(TYPES)
    .flatmap(lambda kind: arrays.arrays(kind, SHAPES))
    .filter(lambda values: bool(np.isfinite(values).all()))  # others are not read
)


def test_python_and_numpy_read_the_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(FILE)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == MEMBERS
    assert list(MEMBERS)[:2] == ["release.json", "signature.json"]
    assert parse_json(bytes(MEMBERS["release.json"])) == RUN.document
    found, release = np.load(io.BytesIO(FILE)), load_release(FILE)
    assert len(MEMBERS) == 2 + len(RUN.result.arrays) == 8
    for name, values in RUN.result.arrays.items():
        np.testing.assert_array_equal(found[f"pca/{name}"], values, strict=True)
        np.testing.assert_array_equal(release.result.arrays[name], values, strict=True)
    unsigned = load_unsigned(unsigned_release(RUN.document, RUN.result))
    assert unsigned is not None
    assert unsigned.result.to_dict() == release.result.to_dict() == RUN.result.to_dict()


@given(VALUES)
def test_an_array_is_written_as_numpy_does_and_read_again(values: Any) -> None:
    by_numpy = io.BytesIO()
    np.save(by_numpy, values)
    for other in (values, np.array(values, order="F"), values.astype(values.dtype.newbyteorder(">"))):
        assert array_file(other) == by_numpy.getvalue()
    read = read_array(describe_array("x", values), {"x": by_numpy.getvalue()})
    np.testing.assert_array_equal(read, values, strict=True)
    assert not read.flags.writeable


@pytest.mark.parametrize("document_bytes", [1000, 1001, 1007])
def test_sums_over_an_array_do_not_depend_on_the_length_of_the_document_before_it(
    document_bytes: int,
) -> None:
    """Within the file an array begins at any byte; NumPy adds one that is not aligned in another order."""
    values = np.random.default_rng(3).normal(size=(200, 200))
    members = {"release.json": bytes(document_bytes), "x": array_file(values)}
    read = read_array(describe_array("x", values), read_archive(write_archive(members)))
    assert read.flags.aligned
    assert read.sum() == values.sum()


@given(st.dictionaries(st.text("ab/._ -", min_size=1), st.binary()))
def test_an_archive_is_read_as_it_was_written(members: dict[str, bytes]) -> None:
    file = write_archive(members)
    assert [(name, bytes(data)) for name, data in read_archive(file).items()] == list(members.items())
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        assert [(one, archive.read(one)) for one in archive.namelist()] == list(members.items())


def test_every_flipped_byte_and_every_cut_are_refused() -> None:
    for place in range(len(FILE)):
        flipped = bytearray(FILE)
        flipped[place] ^= 1 << place % 8
        for changed in (bytes(flipped), FILE[:place], FILE[:place] + FILE[place + 1 :]):
            with refused(Code.BAD_RELEASE):
                load_release(changed)


def with_members(*names: str) -> bytes:
    """The file with these members in this order; a new one has a mean."""
    return write_archive({name: MEMBERS.get(name, MEMBERS["pca/mean.npy"]) for name in names})


NAMES = list(MEMBERS)
STRANGE = {"before": b"#" + FILE, "behind": FILE + b"\0", "two": FILE + FILE, "none": write_archive({})}
for at, member in enumerate(NAMES):
    others = NAMES[:at] + NAMES[at + 1 :]
    STRANGE[f"without {member}"] = with_members(*others)
    STRANGE[f"{member} last"] = with_members(*others, member)
    STRANGE[f"more before {member}"] = with_members(*NAMES[:at], "pca/meam.npy", *NAMES[at:])
    STRANGE[f"twice, before {member}"] = STRANGE[f"more before {member}"].replace(b"meam", b"mean")
assert STRANGE.pop(f"{NAMES[-1]} last") == FILE == with_members(*NAMES)


@pytest.mark.parametrize("name", STRANGE)
def test_missing_moved_further_and_repeated_members_are_refused(name: str) -> None:
    with refused(Code.BAD_RELEASE):
        load_release(STRANGE[name])


@pytest.mark.parametrize("changes", [
    {"dtype": "<i4"}, {"dtype": "<i4", "shape": [2, 6]}, {"dtype": ">f8"}, {"dtype": "<i8"}, {"dtype": "|O"},
    {"shape": [3, 2]}, {"shape": [6]}, {"shape": [2, 2]}, {"shape": [-2, -3]}, {"shape": ["2", 3]},
    {"shape": [2, 3, True]}, {"shape": 6}, {"sha256": "00" * 32}, {"file": "pca/mean.npy"}, {"file": None},
])  # fmt: skip
def test_an_array_of_another_type_or_shape_than_stated_is_refused(changes: dict[str, Any]) -> None:
    document = copy.deepcopy(RUN.document)
    document["results"]["pca"]["arrays"]["components"] |= changes
    with refused(Code.BAD_RELEASE, "not an intact"):
        load_release(sealed(document))


def test_unknown_keys_and_kinds_of_result_are_ignored() -> None:
    document, times = copy.deepcopy(RUN.document), np.arange(4, dtype=np.int32)
    later = {"arrays": {"times": describe_array("survival/times.npy", times)}, "rate": 0.5}
    document |= {"later": [1], "results": document["results"] | {"survival": later}}
    document["results"]["pca"] |= {"further": "text"}
    file = write_archive(read_archive(sealed(document)) | {"survival/times.npy": array_file(times)})
    release = load_release(file)
    verify_release(release, PUBLIC)
    assert release.result.to_dict() == RUN.result.to_dict()
    for wrong in (sealed(document), file.replace(array_file(times), array_file(times[::-1]))):
        with refused(Code.BAD_RELEASE, "not an intact"):
            load_release(wrong)


@pytest.mark.parametrize("required", [["weights"], ["weights", "more"], "weights", [["weights"]], None])
def test_what_a_reader_must_know_and_does_not_is_refused(required: Any) -> None:
    words = ["requires", "weights"] if isinstance(required, list) and "weights" in required else []
    with refused(Code.BAD_RELEASE, *words):
        load_release(sealed(RUN.document | {"required": required}))


def test_two_simulations_with_one_seed_are_equal_bytes() -> None:
    files = {hashlib.sha256(unsigned_release(one.document, one.result)).digest() for one in (RUN, run())}
    assert len(files) == 1


def test_a_million_numbers_are_sealed_in_a_twentieth_of_the_time_of_their_text() -> None:
    names, matrix = tuple(f"c{i}" for i in range(1000)), np.random.default_rng(1).normal(size=(1000, 1000))
    wide = replace(
        RUN.result, columns=names, components=matrix[:2], mean=matrix[0], scale=matrix[1], covariance=matrix
    )

    def seal() -> None:
        document = release_document(a_plan(), wide, [], rounds=[], private=False)
        signed_release(document, wide, sign=KEY.sign, public_key=PUBLIC)

    def seconds(work: Callable[[], Any]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    assert 20 * min(seconds(seal) for _ in range(3)) < seconds(lambda: rfc8785.dumps(matrix.tolist()))
