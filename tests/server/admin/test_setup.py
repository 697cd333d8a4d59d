"""Making a federation: whole, or not at all."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from cryptography import x509

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_server.config import CONFIG_NAME
from tests.client.site.support import at_failpoint
from tests.server.process import command
from tests.server.rig import made

LONGEST = "f" * 63
FILES = 7  # that are replaced by whole ones: keys, certificates, coordinator.toml


def common_names(certificates: bytes) -> set[str]:
    loaded = x509.load_pem_x509_certificates(certificates)
    return {str(one.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value) for one in loaded}


def test_a_federation_may_have_the_longest_name(tmp_path: Path) -> None:
    """Found here: its authority's common name was too long, and the folder taken by half a federation."""
    folder = tmp_path / "c"
    code, _, err = command("init", "--dir", str(folder), "--federation", LONGEST)
    assert code == 0, err
    config = ("--config", str(folder / CONFIG_NAME))
    assert command("ca", "csr", "--out", str(tmp_path / "ca.csr"), *config)[0] == 0
    assert command("ca", "rotate", *config)[0] == 0
    names = common_names((folder / "ca.pem").read_bytes())
    assert len(names) == 2, "each has a name of its own"
    assert {len(name) for name in names} == {64}
    leaf = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    uris = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert uris.get_values_for_type(x509.UniformResourceIdentifier) == [
        f"eigenveil://{LONGEST}/coordinator/coordinator"
    ]


@pytest.mark.parametrize("passage", range(1, FILES + 1))
def test_an_init_that_fails_leaves_an_empty_folder(tmp_path: Path, passage: int) -> None:
    folder, passages = tmp_path / "c", count(1)

    def fail() -> None:
        if next(passages) == passage:
            raise OSError("the disk is full")

    with at_failpoint("file-replacing", fail), pytest.raises(InternalError, match="full"):
        made(folder)
    assert list(folder.iterdir()) == []
    made(folder)


def test_a_folder_that_another_init_is_filling_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    looked = Path.iterdir

    def overtaken(path: Path) -> object:
        found = list(looked(path))
        (folder / CONFIG_NAME).write_text("of the other")
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", overtaken)
        with pytest.raises(RequestError, match="not empty") as refused:
            made(folder)
    assert refused.value.code is Code.CONFLICT
    assert (folder / CONFIG_NAME).read_text() == "of the other"
