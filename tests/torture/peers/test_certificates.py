"""[R1] Bad certificates at both ends, and that the check sees one that gets in."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from unittest import mock

from cryptography import x509

from eigenveil.identity import Identity, parse_identity
from eigenveil_client.connection import tls
from eigenveil_server.pki.authority import fingerprint
from eigenveil_server.rpc import interceptor
from tests.server.rig import made, serving
from tests.torture.peers import certificates
from tests.torture.peers.certificates import (
    Report,
    bad_shapes,
    try_clients,
    try_servers,
    verdict,
)
from tests.torture.peers.entries import counted


def careless(pem: bytes) -> tuple[Identity, str, float, float]:
    """A gate that looks at the first URI only."""
    leaf = x509.load_pem_x509_certificate(pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return parse_identity(uris[0]), fingerprint(leaf), 0.0, math.inf


async def test_a_careless_gate_is_found(tmp_path: Path) -> None:
    flaws = ("two URIs", "for both", "for nothing stated", "two subjects", "an authority")
    shapes = {what: shape for what, shape in bad_shapes().items() if what in flaws}

    logging.getLogger("eigenveil").propagate = False
    try:
        report = Report()
        some = mock.patch.object(certificates, "bad_shapes", return_value=shapes)
        with counted() as entries, mock.patch.object(interceptor, "_read", careless), some:
            async with serving(made(tmp_path / "c")) as rig:
                await try_clients(rig, entries, report)
        faults = " ".join(report.faults)
    finally:
        logging.getLogger("eigenveil").propagate = True
    for what in flaws:
        assert f"client certificate: {what}: None" in faults


async def test_a_careless_client_is_found(tmp_path: Path) -> None:
    with mock.patch.object(tls, "check_coordinator"):
        report = Report()
        async with serving(made(tmp_path / "c")) as rig:
            await try_servers(rig.daemon.runtime.keys.authority, report)
        faults = " ".join(report.faults)
    for what in ("no URI", "two URIs", "another federation", "a site", "a wildcard", "for nothing stated"):
        assert f"server certificate: {what}: None" in faults


def test_there_are_as_many_as_were_promised() -> None:
    assert len(bad_shapes()) >= 24
    assert not verdict(Report(clients=24, servers=9)).passed
