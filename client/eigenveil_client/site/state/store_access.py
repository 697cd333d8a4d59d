"""Access to a site's state, for its daemon and for commands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import IO

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, RequestError
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore, open_database
from eigenveil_common.concurrency import try_lock
from eigenveil_common.files import check_owner, path_exists, read_text, storage_errors
from eigenveil_common.storage import upgrade
from eigenveil_common.storage.database import Expect
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_common.storage.upgrade import Upgrade
from eigenveil_common.trusted_files import check_trusted, database_files


def has_state(config: SiteConfig) -> bool:
    """Return True if this site has or had a state. Does not create one."""
    return config.state.exists() or RollbackGuard(config.identity).noted() is not None


def moved_mark(identity: Path) -> Path:
    """Return the file that says that this site has moved to another machine."""
    return identity / "moved"


@contextmanager
def open_site_store(config: SiteConfig, *, even_if_moved: bool = False) -> Iterator[SiteStore]:
    """Open the site's store; close it at the end.

    Raises:
        RequestError: code `bad-config`, root in another user's folder, or a file that others can change;
            `conflict`, the site has moved to another machine.
        InternalError: code `storage`, also for a ledger that is missing or from an old copy."""
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    if not even_if_moved:
        _check_here(config.identity)
    guard = RollbackGuard(config.identity)
    noted = guard.noted()
    if noted is not None and not config.state.exists():
        raise noted.lost(config.state)
    with closing(SiteStore(config.state, config.policy.budget, guard)) as store:
        if noted is not None and not noted.is_in(store.ledger):
            raise noted.lost(config.state)
        store.check_whole()
        yield store


def _check_here(identity: Path) -> None:
    mark = moved_mark(identity)
    if path_exists(mark):
        raise RequestError(
            Code.CONFLICT,
            f"this site moved to another machine ({read_text(mark).strip()}), where its ledger goes on. To "
            f"serve it here again, if no daemon ever started there: destroy all copies and delete {mark}",
        )


def upgrade_state(config: SiteConfig, *, dry_run: bool = False) -> Upgrade:
    """Upgrade the site's database to this program's schema version, while no daemon serves; `dry_run`: only
    say what would be done, also beside a daemon. Raises as `open_site_store`; nothing has changed then."""
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    if not config.state.exists():
        raise RequestError(Code.NOT_FOUND, f"there is no {config.state}; the daemon makes it")
    with (
        nullcontext() if dry_run else exclusive_lock(config.state),
        closing(open_database(config.state, Expect.TO_UPGRADE)) as database,
    ):
        backup = upgrade.backup_path(database)
        report = upgrade.describe(database, str(backup))
        if dry_run:
            return report
        return upgrade.upgrade(
            database, report,
            back_up=lambda: upgrade.back_up_file(database, backup),
            check=lambda _: _check_upgraded(config, database),
        )  # fmt: skip


def _check_upgraded(config: SiteConfig, database: SqliteDatabase) -> None:
    """Check every page, chain and digest of a database within the transaction that upgraded it."""
    guard = RollbackGuard(config.identity)
    store = SiteStore(config.state, config.policy.budget, guard, database=database)
    noted = guard.noted()
    if noted is not None and not noted.is_in(store.ledger):
        raise noted.lost(config.state)
    store.egress.verify(store.ledger)
    store.check_whole()


def accept_loss(config: SiteConfig) -> Cost:
    """Accept a ledger that lost rows, while no daemon serves, as `SiteStore.accept_loss`."""
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    guard = RollbackGuard(config.identity)
    with exclusive_lock(config.state), closing(SiteStore(config.state, config.policy.budget, guard)) as store:
        return store.accept_loss()


LOCK = "serve.lock"
OUTDATED, RESTART = "the daemon runs with an older site.toml", "restart eigenveil-site serve"


@contextmanager
def exclusive_lock(state: Path) -> Iterator[IO[bytes]]:
    """Hold the lock that only one daemon on a state can have, and return its file; the system frees it at
    exit. Raises RequestError, code `conflict`, if another process serves this state."""
    lock = try_lock(state.with_name(LOCK))
    if lock is None:
        raise RequestError(Code.CONFLICT, f"another process serves {state.parent}; stop it first")
    with lock:
        yield lock


def note_configuration(lock: IO[bytes], config: SiteConfig) -> None:
    """Write the digest of the configuration that a daemon serves with into its lock file, behind the first
    byte, which Windows locks for reading too."""
    with storage_errors("write", config.state.with_name(LOCK)):
        lock.seek(1)
        lock.write(_config_digest(config))
        lock.truncate()
        lock.flush()


def runs_outdated(config: SiteConfig) -> bool:
    """Return True if a daemon serves this state with another configuration than `config`. A daemon that notes
    none, of an earlier version, counts as up to date."""
    path = config.state.with_name(LOCK)
    if not path_exists(path):
        return False
    with storage_errors("read", path), path.open("rb") as file:
        file.seek(1)
        noted = file.read()
    return noted not in (b"", _config_digest(config)) and is_served(config.state)


def is_served(state: Path) -> bool:
    """Return True if a daemon serves this state now, and not only left files."""
    path = state.with_name(LOCK)
    if not path_exists(path):
        return False
    lock = try_lock(path)
    if lock is not None:
        lock.close()
    return lock is None


def _config_digest(config: SiteConfig) -> bytes:
    return sha256(repr(config).encode()).digest()
