"""`eigenveil-coordinator doctor`: files, database, ledger, certificates, and whether it can be reached.

It reads only, and works whether or not the coordinator is serving.
"""

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
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil_common.config import load
from eigenveil_common.doctor import Check, Level, certificate, disk, examine, fail, ok, permissions, warn
from eigenveil_common.files import read
from eigenveil_common.notify.outbox import check_notify
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.trusted_files import believed, database_files
from eigenveil_server.clock import as_datetime, unix_ms
from eigenveil_server.config import Config, split_listen
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.lists import Lists
from eigenveil_server.pki.registry import Registry
from eigenveil_server.recovery.checkpoints import awaited, read_marker
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.integrity import check_whole

STEP_SECONDS = 10.0
BACKWARDS_MS = 60_000
SHORT_CA, SHORT_LEAF = timedelta(days=90), timedelta(days=1)


def coordinator_checks(config_file: Path) -> list[Check]:
    """Everything about a coordinator."""
    try:
        config = load(config_file, Config)
    except EigenveilError as problem:
        return [fail("configuration", str(problem))]
    files = config.files
    secrets = [
        files.ca_key,
        files.server_key,
        files.release_key,
        files.audit_key,
        files.database,
        config_file,
        files.lock,
        *config.notify.way.secrets,
    ]
    settings = [config_file.absolute().parent, *believed(files.folder), *database_files(files.database)]
    return [
        ok("configuration", f"{config_file} is of federation {config.federation}"),
        disk(files.folder),
        examine("permissions", partial(permissions, secrets, [files.folder], settings)),
        examine("keys", partial(_keys, config)),
        *_stored(config),
        *(_exposed(key, getattr(config, key)) for key in ("metrics", "health") if getattr(config, key)),
        examine("authority", partial(_authority, config)),
        examine("authorities", partial(_list, config)),
        *check_notify(config.notify.way),
        *_reached(config),
    ]


def _keys(config: Config) -> Check:
    load_keys(config.files)
    return ok("keys", "the authority's, the release key and the audit key can be used")


def _stored(config: Config) -> list[Check]:
    """The database, and what is in it."""
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
    """Opening it has insisted on these modes."""
    check_whole(store)
    if config.database:
        return ok("database", "PostgreSQL answers, with synchronous_commit, fsync and full_page_writes on")
    text = f"SQLite {config.files.database} is whole, with journal_mode WAL and synchronous FULL"
    return ok("database", text)


def _ledger(config: Config, store: Store) -> Check:
    books = LedgerStore(store.reader, config.budget, unix_ms).ledger
    whole, told = books.limit.micro_rho, Conversion(delta=config.budget_delta, exact=books.exact)
    left = told.left(max(0, whole - books.committed().micro_rho), whole)
    return ok("ledger", f"the chain replays; left of {told.spent(whole)}: {left}")


def _checkpoints(config: Config, store: Store) -> Check:
    """Whether this is the newest state of the coordinator, as far as its sites have said."""
    if config.files.marker.exists():
        site, _ = read_marker(config.files.marker)
        text = f"site {site} showed a later checkpoint than the ledger had; serve refuses until it is there"
        return fail("checkpoints", text, "restore a newer backup; if there is none: accept-loss")
    if missing := awaited(store.reader):
        text = (
            f"since the restore no checkpoint was shown yet by {', '.join(missing)}; no round is asked before"
        )
        return warn(
            "checkpoints", text, "have these sites' daemons started; for one that is gone for good: deny"
        )
    return ok(
        "checkpoints", "no site has shown a later checkpoint than this ledger's, and none is waited for"
    )


def _clock(store: Store) -> Check:
    """Nobody here knows the time; but a clock that was put back behind the last entry is wrong."""
    last = store.reader.rows("SELECT MAX(at) FROM audit")[0][0]
    if last is not None and unix_ms() < last - BACKWARDS_MS:
        text = f"it is {as_datetime(unix_ms()):%Y-%m-%d %H:%M} UTC here, but the last entry is later"
        return fail("clock", text, "let this machine follow a time server")
    return ok("clock", f"{as_datetime(unix_ms()):%Y-%m-%d %H:%M:%S} UTC, not before the last entry")


def _identities(config: Config, store: Store) -> list[Check]:
    """Whose certificates have ended: they did not renew, so they were not here for a while."""
    registry = Registry(store, config.federation, unix_ms)
    known = [one for one in registry.enrolled() if not one.denied]
    late = [f"{one.role}/{one.name}" for one in known if one.expires_at <= unix_ms()]
    if late:
        todo = "make a new join file for each that shall come back"
        return [warn("certificates", f"ended: {', '.join(late)}", todo)]
    return [ok("certificates", f"none of the {len(known)} sites and analysts has one that ended")]


def _authority(config: Config) -> Check:
    try:
        authorities = x509.load_pem_x509_certificates(read(config.files.ca))
    except ValueError as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"{config.files.ca} is damaged; restore it from the backup"
        ) from problem
    ends = min(one.not_valid_after_utc for one in authorities)
    return certificate("authority", ends, SHORT_CA, "roll the federation's authority over before it ends")


def _list(config: Config) -> Check:
    """The list of authorities, and whether one waits for signatures."""
    lists = Lists(config.files)
    held = lists.in_force
    todo = "make it anew for another year: eigenveil-coordinator ca extend"
    days = certificate("authorities", held.ends, SHORT_CA, todo)
    must = f"{held.threshold} of {len(held.signers)} must sign the next"
    text = f"list of version {held.version}, {must}: {days.text}"
    if lists.draft is not None and days.level is Level.OK:
        return warn("authorities", f"{text}; a list waits for signatures", "see ca show, then ca accept")
    return replace(days, text=text)


def _exposed(key: str, address: str) -> Check:
    """Plain listeners are for this machine or a private network: whoever reaches them reads the budget."""
    host, port = split_listen(address)
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as problem:
        return fail(key, f"{address} has no address here ({problem.strerror})", f"mend `{key}`")
    public = sorted(one for one in found if not _is_private(one))
    if public:
        todo = "listen on 127.0.0.1 or on an address of a private network"
        return warn(
            key, f"{address} is plain text and may be reached from anywhere ({', '.join(public)})", todo
        )
    return ok(key, f"{address} is of this machine or of a private network")


def _is_private(address: str) -> bool:
    """Whether only neighbours reach it; every address of the machine at once counts as public."""
    one = ipaddress.ip_address(address.partition("%")[0])
    return one.is_private and not one.is_unspecified


def _reached(config: Config) -> list[Check]:
    """DNS, then both listeners as a client would find them."""
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        todo = "this is the name that sites dial: give it an address, or mend `host`"
        return [fail("dns", f"{config.host} has no address here ({problem.strerror})", todo)]
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
        todo = "another program listens there, or TLS inspection is between"
        return fail(about, f"{where} does not answer with the federation's certificate ({why})", todo)
    except OSError as problem:
        todo = "start eigenveil-coordinator serve, or let the firewall pass it"
        return warn(about, f"nobody answers at {where} ({problem})", todo)
    todo = "it is renewed while serving: see the coordinator's log"
    days = certificate(about, leaf.not_valid_after_utc, SHORT_LEAF, todo)
    return replace(days, text=f"TLS 1.3 at {where}, certificate: {days.text}")
