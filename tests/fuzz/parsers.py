"""Inputs of people and files: studies and dictionaries in TOML, plans in JSON, records in CSV and Parquet;
and statements of sites and operators."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.directory import SiteStatement, statement_from_proto
from eigenveil.dictionary.formats import (
    SignedDictionary,
    dictionary_to_toml,
    parse_dictionary,
    sign_dictionary,
)
from eigenveil.errors import EigenveilError, RequestError
from eigenveil.identity import JOIN_FORMAT
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import plan_from_json
from eigenveil.reporting.document import RELEASE_SIGNATURE_CONTEXT, unsigned_release
from eigenveil.reporting.release_file import DOCUMENT, SIGNATURE, read_archive, write_archive
from eigenveil.reporting.verify import load_release
from eigenveil.signatures import formatted
from eigenveil.simulation import simulate
from eigenveil.study.study import Missing, Study
from eigenveil.study.toml import parse_study
from eigenveil_client.connection.identity import read_join
from eigenveil_client.site.config import load as load_config
from eigenveil_common.examples import example
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.records.genotypes.support import a_study as a_genotype_study
from tests.client.records.genotypes.support import counted, genotypes, plink
from tests.client.records.support import load
from tests.client.site.support import Authority
from tests.fuzz.hunt import Kind
from tests.fuzz.mutations import mutate_bytes, mutate_text
from tests.fuzz.site import mutate_json
from tests.server.rig import study_toml
from tests.support import a_column, a_study, limits
from tests.vectors.test_vectors import stored

ROWS = 30
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


class NotForAFile(Exception):
    """A file was refused by an error that is not about what somebody asked for."""


def parser_kinds(folder: Path) -> dict[str, Kind]:
    """One kind for each parser; files are written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    plan: str = stored("plan")["plan_json"]
    return {
        "study": Kind(seeds=_studies(), mutate=_as_text, feed=partial(_toml, parse_study)),
        "plan": Kind(seeds=(plan.encode(),), mutate=mutate_json, feed=_plan),
        "dictionary": Kind(
            seeds=(dictionary_to_toml(_few_columns()).encode(),),
            mutate=_as_text,
            feed=partial(_toml, parse_dictionary),
        ),
        "published": Kind(seeds=(_published(),), mutate=mutate_json, feed=_read_published),
        "statement": Kind(seeds=_statements(), mutate=mutate_bytes, feed=_read_statement),
        "csv": Kind(seeds=_tables(), mutate=_as_text, feed=partial(_records, folder / "records.csv")),
        "parquet": Kind(
            seeds=_parquet(folder / "seed.parquet"),
            mutate=mutate_bytes,
            feed=partial(_records, folder / "records.parquet"),
        ),
        "release": Kind(seeds=(bytes(_members()[DOCUMENT]),), mutate=mutate_json, feed=_release),
        "config": Kind(
            seeds=(example("site").encode(),), mutate=_as_text, feed=partial(_config, folder / "site.toml")
        ),
        "join": Kind(seeds=(_join(),), mutate=mutate_json, feed=partial(_read_join, folder / "join")),
    } | {ending: _genotypes(folder, ending) for ending in (".bed", ".bim", ".fam")}


def _as_text(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return mutate_bytes(data, rng)
    return mutate_text(data.decode(), rng).encode(errors="surrogatepass")


def _studies() -> tuple[bytes, ...]:
    everything = (
        study_toml(minimum_cohort=5, quorum=2)
        .replace("[privacy]", 'purpose = "none"\nrank = "block"\n[privacy]\nradius = 0.8')
        .replace("[records]", '[records]\nmissing = "drop"\nscaling = "none"\ncentring = true')
    )
    alike = '\n[[columns]]\nnames = ["rs1_A", "rs2_C"]\nunit = "alleles"\nlower = 0\nupper = 2\n'
    return study_toml().encode(), everything.encode(), (study_toml() + alike).encode()


async def _toml(parse: Callable[[str], object], data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # whoever reads the file or the message refuses it before
    _only_requests(parse, text)


async def _plan(data: bytes) -> None:
    plan_from_json(data)


def _few_columns() -> Dictionary:
    own = parse_dictionary(example("dictionary"))
    return replace(own, columns=own.columns[-2:])


def _published() -> bytes:
    return sign_dictionary(_few_columns(), "fed", lambda statement: b"").signed_json


async def _read_published(data: bytes) -> None:
    SignedDictionary(signed_json=data, signature=b"").read()


def _statements() -> tuple[bytes, ...]:
    offers = SiteStatement(
        columns=("age", "bmi"), needs_approval=True, max_missing=1, max_unreadable=0, max_out_of_bounds=1
    )
    limited = replace(offers, columns=None, limits=limits(person_column="patient", sites_per_person=2))
    return tuple(one.to_proto().SerializeToString() for one in (offers, limited))


async def _read_statement(data: bytes) -> None:
    try:
        message = pb.SiteStatement.FromString(data)
    except DecodeError:
        return  # gRPC refuses it before
    statement_from_proto(message)


@cache
def _members() -> dict[str, memoryview]:
    """The document and the arrays of a release."""
    found = simulate(a_study(2), {"north": np.zeros((ROWS, 2)), "south": np.ones((ROWS, 2))}, seed=1)
    kept = {name: found.document[name] for name in ("format", "required", "results", "rounds")}
    return read_archive(unsigned_release(kept, found.result))


def _signed(document: bytes) -> bytes:
    signature = KEY.sign(RELEASE_SIGNATURE_CONTEXT + document)
    who = {"public_key": KEY.public_key().public_bytes_raw().hex(), "signature": signature.hex()}
    return write_archive({DOCUMENT: b"", SIGNATURE: canonical(who)} | _members() | {DOCUMENT: document})


async def _release(data: bytes) -> None:
    """A document, beside arrays that are as they should be; and an archive with something wrong."""
    try:
        document = canonical(json.loads(data))
    except (ValueError, RecursionError):  # as it is, then
        document = data
    signed = _signed(document)
    for odd in (data, _signed(data), mutate_bytes(signed, random.Random(data))):
        with suppress(RequestError):
            load_release(odd)
    _only_requests(load_release, signed)


async def _config(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _only_requests(load_config, path)


def _join() -> bytes:
    trusted = Authority().trusting()
    statement = {
        "token": "t", "role": "site", "name": "anna", "federation": trusted.federation,
        "coordinator": "127.0.0.1:1", "enrol": "127.0.0.1:2", "authorities": trusted.to_json().decode(),
    }  # fmt: skip
    return canonical(formatted(JOIN_FORMAT, statement))


async def _read_join(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)
    _only_requests(read_join, path)


def _only_requests(parse: Callable[..., object], *arguments: object) -> None:
    try:
        parse(*arguments)
    except RequestError:
        raise
    except EigenveilError as problem:
        raise NotForAFile(repr(problem)) from problem


def _wanted() -> Study:
    columns = (a_column("age", fill=50.0), a_column("pulse", 0, 200, fill=60.0))
    return a_study(columns=columns, missing=Missing.FILL, person_column="person")


def _tables() -> tuple[bytes, ...]:
    cells = [f"{row * 3.1:.2f},{row % 7},p{row // 2}" for row in range(ROWS)]
    plain = "\n".join(["age [year],pulse,person", *cells, ""])
    quoted = plain.replace("p3", '"p""3"').replace("9.30", "NA").replace("\n", "\r\n")
    return plain.encode(), quoted.encode(), b"\xef\xbb\xbf" + plain.encode()


def _parquet(path: Path) -> tuple[bytes, ...]:
    row = np.arange(ROWS)
    people = [f"p{number}" for number in row]
    table = pa.table({"age": row * 3.1, "pulse": pa.array(row % 7, pa.int32()), "person": people})
    seeds = []
    for compression in ("none", "snappy"):
        parquet.write_table(table, path, compression=compression)
        seeds.append(path.read_bytes())
    return tuple(seeds)


def _genotypes(folder: Path, ending: str) -> Kind:
    """One of the three files of PLINK, beside two that are as they should be."""
    path = plink(folder / f"of-{ending[1:]}.bed", genotypes(ROWS, 3))

    async def feed(data: bytes) -> None:
        path.with_suffix(ending).write_bytes(data)
        _only_requests(load, path, a_genotype_study(counted(3), fill=1.0))

    seed = path.with_suffix(ending).read_bytes()
    return Kind(seeds=(seed,), mutate=mutate_bytes if ending == ".bed" else _as_text, feed=feed)


async def _records(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _only_requests(partial(load, unreadable=lambda _: None), path, _wanted())  # as a site's daemon reads
    _only_requests(load, path, _wanted())
