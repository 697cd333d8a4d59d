"""Checks of `eigenveil-coordinator doctor`: files, database, ledger, certificates, reachability. They change
nothing, and work also while the coordinator is not serving."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from cryptography import x509

from eigenveil.accounting.budget import Conversion
from eigenveil.errors import EigenveilError
from eigenveil_common.config import load
from eigenveil_common.doctor import Check, Level, certificate, disk, examine, fail, ok, permissions, warn
from eigenveil_common.files import read
from eigenveil_common.notify.outbox import check_notify
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.trusted_files import database_files, trusted_entries
from eigenveil_server.config import Config, split_listen
from eigenveil_server.pki.authority_files import certificates
from eigenveil_server.pki.authority_lists import AuthorityListStore
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import as_datetime, unix_ms
from eigenveil_server.recovery.checkpoints import awaited_sites, read_marker
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.repository import check_whole

STEP_SECONDS = 10.0
BACKWARDS_MS = 60_000
SHORT_CA, SHORT_LEAF = timedelta(days=90), timedelta(days=1)


def coordinator_checks(config_file: Path) -> list[Check]:
    """Run all checks of a coordinator."""
    try:
        config = load(config_file, Config)
    except EigenveilError as problem:
        return [fail("configuration", str(problem))]
    files = config.files
    keys = [files.ca_key, files.server_key, files.release_key, files.audit_key]
    secrets = [*keys, files.database, config_file, files.lock, *config.notify.channels.secrets]
    trusted = [*trusted_entries(files.folder), *database_files(files.database)]
    settings = [config_file.absolute().parent, *trusted]
    return [
        ok("configuration", f"{config_file} is of federation {config.federation}"),
        disk(files.folder),
        examine("permissions", partial(permissions, secrets, [files.folder], settings)),
        examine("keys", partial(_keys, config)),
        *_stored(config),
        *(_exposed(key, getattr(config, key)) for key in ("metrics", "health") if getattr(config, key)),
        examine("authority", partial(_authority, config)),
        examine("authorities", partial(_list, config)),
        *check_notify(config.notify.channels),
        *_reached(config),
    ]


def _keys(config: Config) -> Check:
    load_keys(config.files)
    return ok("keys", "authority key, release key and audit key are usable")


def _stored(config: Config) -> list[Check]:
    """Check the database and its contents."""
    try:
        store = existing_store(config)
    except EigenveilError as problem:
        return [fail("database", str(problem))]
    with closing(store):
        return [
            examine("database", partial(_database, config, store)),
            examine("ledger", partial(_ledger, config, store)),
            examine("checkpoints", partial(_checkpoints, config, store)),
            examine("clock", partial(_clock, store)),
            *_identities(config, store),
        ]


def _database(config: Config, store: Store) -> Check:
    """Check the database; opening it has verified the modes in the text."""
    check_whole(store)
    postgres = "PostgreSQL answers, with synchronous_commit, fsync and full_page_writes on"
    sqlite = f"SQLite {config.files.database} is whole, with journal_mode WAL and synchronous FULL"
    return ok("database", postgres if config.database else sqlite)


def _ledger(config: Config, store: Store) -> Check:
    ledger = LedgerStore(store.reader, config.budget, unix_ms).ledger
    whole, conversion = ledger.limit.micro_rho, Conversion(delta=config.budget_delta, exact=ledger.exact)
    left = conversion.left(max(0, whole - ledger.committed().micro_rho), whole)
    return ok("ledger", f"the chain is consistent; left of {conversion.spent(whole)}: {left}")


def _checkpoints(config: Config, store: Store) -> Check:
    """Check that no site has shown a newer ledger than this one."""
    if config.files.marker.exists():
        site, _ = read_marker(config.files.marker)
        text = f"site {site} showed a newer checkpoint than this ledger; serve refuses to start without it"
        return fail("checkpoints", text, "restore a newer backup, or run accept-loss if there is none")
    if missing := ", ".join(awaited_sites(store.reader)):
        text = f"these sites have not shown a checkpoint since the restore: {missing}; no round opens"
        return warn("checkpoints", text, "have the daemons of these sites started; deny a site that has left")
    return ok("checkpoints", "no site has shown a newer checkpoint than this ledger, and none is awaited")


def _clock(store: Store) -> Check:
    """Check that the clock is not behind the last entry of the audit log."""
    last = store.reader.rows("SELECT MAX(at) FROM audit")[0][0]
    if last is not None and unix_ms() < last - BACKWARDS_MS:
        text = f"it is {as_datetime(unix_ms()):%Y-%m-%d %H:%M} UTC here, but the last audit entry is later"
        return fail("clock", text, "synchronise this machine with a time server")
    return ok("clock", f"{as_datetime(unix_ms()):%Y-%m-%d %H:%M:%S} UTC, not before the last audit entry")


def _identities(config: Config, store: Store) -> list[Check]:
    """Check for expired certificates: their owners have been offline and did not renew."""
    known = [one for one in Registry(store, config.federation, unix_ms).enrolled() if not one.denied]
    late = [f"{one.role}/{one.name}" for one in known if one.expires_at <= unix_ms()]
    if late:
        todo = "make a new join file for each that should return"
        return [warn("certificates", f"expired: {', '.join(late)}", todo)]
    return [ok("certificates", f"none of the {len(known)} participants has an expired certificate")]


def _authority(config: Config) -> Check:
    ends = min(one.not_valid_after_utc for one in certificates(read(config.files.ca)))
    return certificate("authority", ends, SHORT_CA, "rotate the authority before it ends: see ca")


def _list(config: Config) -> Check:
    """Check the list of authorities, and a draft that waits for signatures."""
    lists = AuthorityListStore(config.files)
    current = lists.in_force
    todo = "renew it for another year: eigenveil-coordinator ca extend"
    days = certificate("authorities", current.ends, SHORT_CA, todo)
    must = f"{current.threshold} of {len(current.signers)} must sign the next"
    text = f"list of version {current.version}, {must}: {days.text}"
    if lists.draft is not None and days.level is Level.OK:
        return warn("authorities", f"{text}; a list waits for signatures", "see ca show, then ca accept")
    return replace(days, text=text)


def _exposed(key: str, address: str) -> Check:
    """Check that a plain-text listener, which reveals the budget, is not reachable from outside."""
    host, port = split_listen(address)
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as problem:
        return fail(key, f"{address} cannot be resolved here ({problem.strerror})", f"correct `{key}`")
    public = sorted(one for one in found if not _is_private(one))
    if public:
        todo = "listen on 127.0.0.1 or on an address of a private network"
        return warn(key, f"{address} is plain text and reachable from outside ({', '.join(public)})", todo)
    return ok(key, f"{address} is on this machine or in a private network")


def _is_private(address: str) -> bool:
    """Return True for an address of a private network. The unspecified address counts as public."""
    one = ipaddress.ip_address(address.partition("%")[0])
    return one.is_private and not one.is_unspecified


def _reached(config: Config) -> list[Check]:
    """Check DNS, then both listeners as a client sees them."""
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        todo = "sites connect to this name: add it to DNS, or correct `host`"
        return [fail("dns", f"{config.host} cannot be resolved here ({problem.strerror})", todo)]
    addresses = ", ".join(sorted({str(one[4][0]) for one in found}))
    ports = {"port": config.port, "enrol port": config.enrol_port}
    listeners = [_listener(config, about, port) for about, port in ports.items()]
    return [ok("dns", f"{config.host} is {addresses}"), *listeners]


def _listener(config: Config, about: str, port: int) -> Check:
    where = f"{config.host}:{port}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as clients do: see `authorities`
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cafile=str(config.files.ca))
        with (
            socket.create_connection((config.host, port), STEP_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=config.host) as tls,
        ):
            leaf = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
    except ssl.SSLError as problem:
        why = getattr(problem, "verify_message", "") or problem.reason or "TLS failed"
        todo = "another program uses this port, or a firewall inspects TLS"
        return fail(about, f"{where} does not answer with the federation's certificate ({why})", todo)
    except OSError as problem:
        todo = "start eigenveil-coordinator serve, or open the port in the firewall"
        return warn(about, f"there is no answer at {where} ({problem})", todo)
    todo = "it is renewed while serving; see the coordinator's log"
    days = certificate(about, leaf.not_valid_after_utc, SHORT_LEAF, todo)
    return replace(days, text=f"TLS 1.3 at {where}, certificate: {days.text}")
