"""Move of a site to another machine: its identity, its ledgers and its configuration in one folder, after
which it is not served here. The records are not part of it. If two copies are served nevertheless, the
coordinator refuses one of them [R18]."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.store import SiteStore, open_database
from eigenveil_client.site.state.store_access import exclusive_lock, moved_mark, open_site_store
from eigenveil_common.copied_folder import (
    Manifest,
    copy_files,
    new_folder,
    read_manifest,
    with_paths,
    write_manifest,
)
from eigenveil_common.files import failpoint, path_exists, read, read_text, write_secret
from eigenveil_common.storage.database import Expect

MOVE_FORMAT = "eigenveil-site-move/1"
CONFIG_NAME, IDENTITY, STATE = "site.toml", "identity", "state.db"


def move_out(config_path: Path, config: SiteConfig, out: Path, *, again: bool = False) -> Manifest:
    """Mark this site as moved, so that no daemon and no command uses it here afterwards, and write it into
    the new folder `out`. `again`: write it once more. Raises RequestError: a daemon is running, `out` exists,
    or the site is marked already; InternalError: code `storage`, a chain or a page is damaged."""
    load_identity(config.identity)
    mark = moved_mark(config.identity)
    with exclusive_lock(config.state):
        if path_exists(mark) and not again:
            raise RequestError(
                Code.CONFLICT,
                f"this site was written for another machine ({read_text(mark).strip()}). If that folder is "
                "lost, and no daemon was started with it, add --again",
            )
        with open_site_store(config, even_if_moved=True) as store, new_folder(out) as here:
            store.egress.verify(store.ledger)
            write_secret(mark, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n".encode())
            failpoint("move-marked")  # from here on nothing is decided here that the copy would lack
            try:
                return _write(config_path, config, store, here)
            except Exception:
                if not again:
                    mark.unlink()
                raise


def _write(config_path: Path, config: SiteConfig, store: SiteStore, here: Path) -> Manifest:
    """Write the site into the folder `here`."""
    store.database.copy_to(here / STATE)
    write_secret(here / "egress.key", read(config.state.with_name("egress.key")))
    (here / IDENTITY).mkdir(mode=0o700)
    for path in _identity_files(config.identity):
        write_secret(here / IDENTITY / path.name, read(path))
    text = read(config_path).decode("utf-8-sig")
    write_secret(here / CONFIG_NAME, with_paths(text, identity=IDENTITY, state=STATE).encode())
    manifest = write_manifest(here, MOVE_FORMAT, config.name, store.ledger.ledger)
    failpoint("move-written")
    return manifest


def move_in(source: Path, folder: Path) -> tuple[Manifest, SiteConfig]:
    """Make the new folder of a site that moved here; return its manifest and configuration. Raises
    RequestError: `source` is not complete, or `folder` exists; InternalError: code `storage`."""
    manifest = read_manifest(source, MOVE_FORMAT, "a complete folder of `eigenveil-site move-out`")
    with new_folder(folder) as here:
        copy_files(source, manifest, here)
        config = site_config.load(here / CONFIG_NAME)
        with closing(open_database(config.state, Expect.TO_UPGRADE)) as database:
            outdated = bool(database.pending)
        if not outdated:  # else `upgrade` checks it
            with open_site_store(config) as store:
                if not manifest.describes(store.ledger.ledger):
                    raise RequestError(Code.BAD_CONFIG, f"the ledger in {source} differs from the manifest")
                store.egress.verify(store.ledger)
        failpoint("move-checked")
    return manifest, site_config.load(folder / CONFIG_NAME)


def _identity_files(identity: Path) -> list[Path]:
    """Return the files of an identity: no lock, no mark of an earlier move, no file being written."""
    skipped = {moved_mark(identity).name}
    there = (path for path in sorted(identity.iterdir()) if path.is_file())
    return [path for path in there if not path.name.startswith(".") and path.name not in skipped]
