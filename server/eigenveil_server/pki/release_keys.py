"""A new release key for the federation [R34].

    prepare   makes the next key and announces it in a list of authorities: every client accepts both keys
    switch    makes a list by which the next key signs from now on; the coordinator is stopped meanwhile

A list may wait for signatures from other machines (`ca sign`): that of `prepare` for `ca accept`, that of
`switch` for `switch --signature`. The old key signs the new one, and stays in the list: what it signed can be
verified for ever. The switch deletes the old private key. After a crash repeat the command; `serve` completes
a switch, too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.dictionary.formats import DICTIONARY_SIGNED
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.authorities import AuthorityList, succession_bytes
from eigenveil.protocol.plan import PLAN_SIGNED
from eigenveil.signatures import check_signature
from eigenveil_common.files import failpoint, path_exists, sync, write_secret
from eigenveil_server.config import Config, Files
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.authority_lists import AuthorityListStore, rotation_status
from eigenveil_server.pki.keys import read_release_key
from eigenveil_server.pki.rotation import locked_lists
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import Store, audit, existing_store, lock_folder


def prepare(config: Config, *, replacing: bool = False) -> bool:
    """Make the next release key and announce it; with `replacing`, in place of one that is announced already.
    Return False if the list waits for signatures. Raises RequestError: code `conflict`, a key is announced
    already."""
    files = config.files
    with locked_lists(config) as lists:
        current = lists.in_force
        announced = len(current.accepted_keys) > 1
        if announced and not replacing:
            raise RequestError(
                Code.CONFLICT,
                "the next release key is announced already; go on with: release-key switch. If it was "
                "stolen, run: release-key prepare --replace",
            )
        if not path_exists(files.next_release_key) or announced:
            write_secret(files.next_release_key, Ed25519PrivateKey.generate().private_bytes_raw())
        failpoint("release-key-made")
        public = _public(read_release_key(files.next_release_key))
        succession = read_release_key(files.release_key).sign(succession_bytes(config.federation, public))
        return lists.change(release_keys=current.with_next_key(public, succession))


def switch(config: Config, signatures: Sequence[bytes] = (), *, anyway: bool) -> bool:
    """Sign with the announced key from now on. Return False if the list waits for signatures; then the same
    command with these `signatures` puts it in force. Raises RequestError: code `conflict`, the coordinator is
    serving, no key is announced, or a client does not know the key yet and could not go on (unless
    `anyway`)."""
    with lock_folder(config), locked_lists(config) as lists, closing(existing_store(config)) as store:
        store.acquire_server_lock()
        current = lists.in_force
        if current.release_key == _public(read_release_key(config.files.release_key)):
            if len(current.accepted_keys) == 1:
                raise RequestError(
                    Code.CONFLICT,
                    f"nothing to switch: {current.release_key.hex()[:16]}... signs, and no next key is "
                    "announced. To announce one: release-key prepare",
                )
            behind = ", ".join(rotation_status(config).without_current_list)
            if behind and not anyway:
                raise RequestError(
                    Code.CONFLICT,
                    f"these do not have the list with the next release key: {behind}. Start the "
                    "coordinator until they have connected, or add --anyway; who cannot connect then needs a "
                    "new join file",
                )
            _check_next(config.files, current)
            if signatures:
                _check_draft(lists, current)
                lists.accept(signatures)
            elif not lists.change(release_keys=current.with_next_signing()):
                return False
            failpoint("release-key-listed")
        complete(config.files, store)
        return True


def _check_next(files: Files, current: AuthorityList) -> None:
    """Check that this machine can sign with the announced key, before a list says that it does."""
    there = path_exists(files.next_release_key)
    if not there or _public(read_release_key(files.next_release_key)) != current.accepted_keys[-1]:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{files.next_release_key} is not the announced key; restore it from a backup, or announce "
            "another one: release-key prepare --replace",
        )


def _check_draft(lists: AuthorityListStore, current: AuthorityList) -> None:
    if (draft := lists.draft) is not None and draft.release_key == current.release_key:
        raise RequestError(
            Code.CONFLICT,
            "the list that waits does not change the release key; bring its signatures with: ca accept",
        )


def complete(files: Files, store: Store) -> None:
    """Complete a switch whose list is in force: sign again what is sent, and put the key in its place. It
    does nothing if there is nothing to complete."""
    current = Authorities(files).current_list
    if current.release_key == _public(read_release_key(files.release_key)):
        return
    key = read_release_key(files.next_release_key) if path_exists(files.next_release_key) else None
    if key is None or _public(key) != current.release_key:
        raise RequestError(
            Code.BAD_CONFIG,
            f"neither {files.release_key} nor {files.next_release_key} is the release key in the list of "
            "authorities; restore all files from one backup",
        )
    _resign_stored(store, current, key)
    failpoint("release-key-signed-again")
    os.replace(files.next_release_key, files.release_key)
    sync(files.folder)
    failpoint("release-key-replaced")


def _resign_stored(store: Store, current: AuthorityList, key: Ed25519PrivateKey) -> None:
    """Sign with `key` the plans of all studies, and the dictionary in force: they are sent to clients that
    accept no earlier key, also when an ended study is submitted again. All else is signed when it is sent, or
    verified by its chain."""
    with store.writer.transaction() as change:
        for row in change.execute("SELECT digest, plan_json, signature FROM studies"):
            signature = _resigned(current, key, PLAN_SIGNED + row["plan_json"], row["signature"])
            change.execute("UPDATE studies SET signature = ? WHERE digest = ?", (signature, row["digest"]))
        latest = "SELECT version, signed_json, signature FROM dictionaries ORDER BY version DESC LIMIT 1"
        for row in change.execute(latest):
            signature = _resigned(current, key, DICTIONARY_SIGNED + row["signed_json"], row["signature"])
            change.execute(
                "UPDATE dictionaries SET signature = ? WHERE version = ?", (signature, row["version"])
            )
        audit(change, unix_ms(), "release-key-changed", "release-key", current.release_key.hex())


def _resigned(current: AuthorityList, key: Ed25519PrivateKey, signed: bytes, signature: bytes) -> bytes:
    """Return the signature of `key` over bytes that an earlier release key signed."""
    check_signature(current.known_keys, signature, signed, "a stored signature is not of this federation")
    return key.sign(signed)


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def status(config: Config) -> dict[str, Any]:
    """Return the release keys, oldest first, and the clients that do not have the list in force."""
    current, rotation = Authorities(config.files).current_list, rotation_status(config)
    return {
        "release_keys": [{"key": one.key.hex(), "use": one.use.value} for one in current.release_keys],
        "without_current_list": list(rotation.without_current_list),
        "draft": rotation.draft and rotation.draft.as_dict(),
    }


def status_text(found: dict[str, Any]) -> str:
    """Return `status` as text."""
    lines = [f"{one['use']:<8} {one['key']}" for one in found["release_keys"]]
    behind = ", ".join(found["without_current_list"]) or "none"
    lines.append(f"without the current list of authorities: {behind}")
    if found["draft"] is not None:
        lines.append("A list waits for signatures: run the command that made it, and do what it prints")
    return "\n".join(lines)
