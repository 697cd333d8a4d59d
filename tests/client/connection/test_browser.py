"""An identity for a browser is the identity of the profile, and opens with its password only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from eigenveil.errors import Code
from eigenveil_client.connection import key_files
from eigenveil_client.connection.identity_files import read_pair
from tests.client.site.support import Stage
from tests.support import refused

PASSWORD = "correct horse"


def test_the_file_holds_the_very_key_and_whoever_signed_it_and_nobody_else_reads_it(
    stage: Stage, tmp_path: Path
) -> None:
    out, ca = tmp_path / "me.p12", tmp_path / "ca.pem"
    key_files.export_pkcs12(stage.config.identity, out, ca, PASSWORD)
    key, certificate, issuers = pkcs12.load_key_and_certificates(out.read_bytes(), PASSWORD.encode())
    own, leaf = read_pair(stage.config.identity)
    assert key is not None
    assert key.private_numbers() == own.private_numbers()  # type: ignore[union-attr]  # P-256, as ours are
    assert certificate == leaf
    assert [leaf.issuer] == [one.subject for one in issuers]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_key_and_certificates(out.read_bytes(), b"wrong")
    with refused(Code.CONFLICT):
        key_files.export_pkcs12(stage.config.identity, out, None, PASSWORD)


def test_a_short_password_leaves_no_file(stage: Stage, tmp_path: Path) -> None:
    with refused(Code.BAD_ARGUMENT, "8"):
        key_files.export_pkcs12(stage.config.identity, tmp_path / "me.p12", None, "short")
    assert list(tmp_path.glob("me.p12")) == []
