"""Creation of a federation, join files, and denial of identities."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, RequestError
from eigenveil.identity import JOIN_FORMAT, Role
from eigenveil.protocol.authorities import ListedAuthority
from eigenveil.signatures import formatted
from eigenveil.study.checks import toml_text
from eigenveil_common.files import (
    check_new,
    is_occupied,
    make_folder,
    storage_errors,
    write_durably,
    write_secret,
)
from eigenveil_common.storage.database import Expect
from eigenveil_server.config import CONFIG_NAME, Config
from eigenveil_server.pki.authority import Authority
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.authority_lists import AuthorityListStore
from eigenveil_server.pki.keys import ServerCertificate, create_keys, first_release_keys, load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import as_datetime, unix_ms
from eigenveil_server.storage.database import existing_store, open_store

# Keys of coordinator.toml that `init` may set, in their order in the file.
INITIAL_KEYS = (
    "federation", "host", "listen", "port", "enrol_port", "budget_epsilon", "budget_delta",
    "max_epsilon_per_study", "database",
)  # fmt: skip


def create(folder: Path, csr: Path | None = None, **values: Any) -> Path:
    """Create keys, configuration and database in an empty folder. Return the path of coordinator.toml.
    `values` are of `INITIAL_KEYS`, an empty text for a default. On failure the folder is emptied again.
    Raises RequestError: a value is invalid, or the folder or the database is not empty."""
    stated = {key: values[key] for key in INITIAL_KEYS if values.get(key, "") != ""}
    config, path = Config(**stated, state=folder.resolve()), folder / CONFIG_NAME
    if csr is not None:
        check_new(csr)
    _claim(folder, path)
    try:
        _make_authority(config, create_keys(config.files), csr)
        toml = toml_text(stated | {"state": "."}).encode()
        write_durably(path, toml, mode=0o600)  # the database URL may contain a password
        open_store(config.store, Expect.NEW).close()  # last: a database on a server is not undone here
    except BaseException:
        for made in (*(one for one in folder.iterdir() if one != path), path):
            made.unlink()
        raise
    return path


def _make_authority(config: Config, key: ec.EllipticCurvePrivateKey, csr: Path | None) -> None:
    """Create the first authority as its own root, or write a request for one to `csr`."""
    if csr is not None:
        write_durably(csr, Authority.request(config.federation, key))
        return
    certificate = Authority.create(config.federation, as_datetime(unix_ms()), key).certificate
    AuthorityListStore(config.files).change(
        federation=config.federation,
        authorities=(ListedAuthority(certificate=certificate, issues=True, signs=True),),
        threshold=1,
        release_keys=first_release_keys(config.files),
    )
    ServerCertificate(config, load_keys(config.files), unix_ms)


def _claim(folder: Path, path: Path) -> None:
    """Create the folder and, if it is empty, the file at `path`. Of two concurrent calls one fails."""
    make_folder(folder, mode=0o700)
    with storage_errors("make", path), suppress(FileExistsError):
        if not is_occupied(folder):
            path.touch(mode=0o600, exist_ok=False)
            return
    raise RequestError(
        Code.CONFLICT, f"{folder} is not empty, and a federation is never overwritten; choose a new folder"
    )


def join_file(
    config: Config,
    role: Role,
    name: str,
    valid_ms: int,
    out: Path | None,
    *,
    lift_denial: bool = False,
    device: str = "",
) -> dict[str, Any]:
    """Return a one-time token with all data for enrolment, and write them to `out` if given. Raises
    PeerError: `name` is invalid; RequestError: `out` exists already, or `name` is denied and `lift_denial` is
    not set; InternalError: code `storage`, also if `out` cannot be written; then no token was made."""
    if out is not None:
        check_new(out)  # before a new token voids the one handed out
    authorities = Authorities(config.files).current_list.to_json().decode()
    with closing(existing_store(config)) as store:
        registry = Registry(store, config.federation, unix_ms)
        token = registry.new_token(role, name, valid_ms, lift_denial=lift_denial, device=device)
    host = f"[{config.host}]" if ":" in config.host else config.host
    values = {
        "token": token,
        "role": role.value,
        "name": name,
        "federation": config.federation,
        "coordinator": f"{host}:{config.port}",
        "enrol": f"{host}:{config.enrol_port}",
        "authorities": authorities,
    }
    join = formatted(JOIN_FORMAT, values)
    if out is not None:
        write_secret(out, json.dumps(join, indent=2, sort_keys=True).encode() + b"\n")
    return join


def deny_identity(config: Config, role: Role, name: str) -> None:
    """Add an identity to the deny-list. A serving coordinator applies it from the next message on."""
    with closing(existing_store(config)) as store:
        Registry(store, config.federation, unix_ms).deny(role, name)
