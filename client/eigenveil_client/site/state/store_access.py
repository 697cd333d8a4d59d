"""Access to a site's state, for its daemon and for commands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, RequestError
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.concurrency import try_lock
from eigenveil_common.files import check_owner
from eigenveil_common.trusted_files import check_trusted, database_files


def has_state(config: SiteConfig) -> bool:
    """Return True if this site has or had a state. Does not create one."""
    return config.state.exists() or RollbackGuard(config.identity).noted() is not None


@contextmanager
def open_site_store(config: SiteConfig) -> Iterator[SiteStore]:
    """Open the site's store; close it at the end.

    Raises:
        RequestError: code `bad-config`, root in another user's folder, or a file that others can change.
        InternalError: code `storage`, also for a ledger that is missing or from an old copy."""
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    guard = RollbackGuard(config.identity)
    noted = guard.noted()
    if noted is not None and not config.state.exists():
        raise noted.lost(config.state)
    with closing(SiteStore(config.state, config.policy.budget, guard)) as store:
        if noted is not None and not noted.is_in(store.ledger):
            raise noted.lost(config.state)
        store.check_whole()
        yield store


def accept_loss(config: SiteConfig) -> Cost:
    """Accept a ledger that lost rows, while no daemon serves, as `SiteStore.accept_loss`."""
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    guard = RollbackGuard(config.identity)
    with exclusive_lock(config.state), closing(SiteStore(config.state, config.policy.budget, guard)) as store:
        return store.accept_loss()


@contextmanager
def exclusive_lock(state: Path) -> Iterator[None]:
    """Hold the lock that only one daemon on a state can have; the system frees it at exit. Raises
    RequestError, code `conflict`, if another process serves this state."""
    lock = try_lock(state.with_name("serve.lock"))
    if lock is None:
        raise RequestError(Code.CONFLICT, f"another process serves {state.parent}; stop it first")
    with lock:
        yield
