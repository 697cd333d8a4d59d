"""A site's state, opened: by its daemon, or by a command beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, RequestError
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.rollback_guard import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import check_owner
from eigenveil_common.locks import try_lock
from eigenveil_common.trusted_files import check_trusted, database_files


def begun(config: SiteConfig) -> bool:
    """Whether this site has a state, or had one: looking must not make a new one."""
    return config.state.exists() or RollbackGuard(config.identity).seen() is not None


@contextmanager
def opened(config: SiteConfig) -> Iterator[SiteStore]:
    """The site's store, closed at the end.

    Raises:
        RequestError: code `bad-config`, root in another user's folder, or a file that others can change.
        InternalError: code `storage`, also for a ledger that is gone or was put back.
    """
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    guard = RollbackGuard(config.identity)
    seen = guard.seen()
    if seen is not None and not config.state.exists():
        raise seen.lost(config.state)
    with closing(SiteStore(config.state, config.policy.budget, guard)) as store:
        if seen is not None and not seen.is_in(store.ledger):
            raise seen.lost(config.state)
        store.check_whole()
        yield store


def accept_loss(config: SiteConfig) -> Cost:
    """Go on with a ledger that lost rows, charging what they had spent or set aside; the charge.

    Raises:
        RequestError: code `conflict`, nothing is lost or the daemon is serving; the budget does not hold it.
        InternalError: code `storage`.
    """
    check_owner(config.state.parent)
    check_trusted([config.state.parent, *database_files(config.state)])
    guard = RollbackGuard(config.identity)
    with alone(config.state), closing(SiteStore(config.state, config.policy.budget, guard)) as store:
        return store.accept_loss()


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the lock that two daemons on one state cannot both hold; the system frees it at exit.

    Raises:
        RequestError: code `conflict`, another process serves this state.
    """
    lock = try_lock(state.with_name("serve.lock"))
    if lock is None:
        raise RequestError(Code.CONFLICT, f"another process serves {state.parent}; stop it first")
    with lock:
        yield
