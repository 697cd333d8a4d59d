"""A hospital's offline root, as openssl makes one: it signs requests and drafts, in a folder of its own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from eigenveil_server.pki.authority_files import certificates
from eigenveil_server.pki.rotation import Signers

EXTENSIONS = "[v3_ca]\nbasicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n"


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Root:
    """The key and certificate in this folder, which it makes."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes")
        out = ("-keyout", self.key, "-out", self.certificate)
        openssl("req", "-x509", *curve, *out, "-subj", "/CN=Hospital Root", "-days", "99")
        (self.folder / "extensions").write_text(EXTENSIONS)

    @property
    def key(self) -> Path:
        return self.folder / "root.key"

    @property
    def certificate(self) -> Path:
        return self.folder / "root.pem"

    @property
    def signers(self) -> Signers:
        return Signers(certificates=tuple(certificates(self.certificate.read_bytes())))

    def certify(self, csr: Path) -> Path:
        signed = csr.with_suffix(".pem")
        extensions = ("-extfile", self.folder / "extensions", "-extensions", "v3_ca")
        chain = ("-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", *extensions)
        openssl("x509", "-req", "-in", csr, *chain, "-days", "90", "-sha384", "-out", signed)
        return signed

    def sign(self, draft: Path) -> Path:
        signature = self.folder / "openssl.sig"
        openssl("dgst", "-sha256", "-sign", self.key, "-out", signature, draft)
        return signature
