"""`eigenveil-site check` and `doctor`: configuration, files, ledgers, records; then the network."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from eigenveil.errors import Code, EigenveilError
from eigenveil.protocol.plan import Plan
from eigenveil.study.grid import record_bytes
from eigenveil_client.connection import doctor
from eigenveil_client.connection.cluster import Cluster, versions
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.records.apart import reader
from eigenveil_client.records.recoding.measure import check_rules
from eigenveil_client.records.records import Constant
from eigenveil_client.records.tables.cells import Unreadable
from eigenveil_client.records.tables.table import find_column
from eigenveil_client.site import config as site_config
from eigenveil_client.site.analysts.kind import ANALYSTS
from eigenveil_client.site.analysts.views import check_analysts
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon.service import analysts, approval, check_role
from eigenveil_client.site.engine_config import Kind
from eigenveil_client.site.peers import keys, rule
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.peers.views import check_peers
from eigenveil_client.site.plausible import dictionary, ranges
from eigenveil_client.site.state.opening import begun, opened
from eigenveil_common.doctor import Check, disk, examine, fail, ok, warn
from eigenveil_common.notify.outbox import check_notify
from eigenveil_common.trusted_files import database_files

NAMED = 100  # columns whose names are said
AHEAD_SECONDS = 3600  # of the state before the clock: nothing that summer time or a slow clock does
LEFT_OUT = "lines that are left out"
MISSING = "cells that cannot be read and count as missing"


def offline_checks(config: SiteConfig, plan: Plan | None) -> list[Check]:
    """Everything that can be checked without the coordinator; with a plan, whether it would be answered."""
    now = _clock(config)
    checks = [
        examine("identity", partial(_identity, config)),
        examine("peers", partial(_peers, config)),
        examine("analysts' keys", partial(_analysts, config)),
        examine("confirmed cards", partial(_confirmed, config)),
        examine("ledger", partial(_ledger, config)),
        approval(config.policy, now),
        analysts(config.policy),
        examine("records", partial(_file, config)),
        examine("engine", partial(_engine, config, plan)),
        *_state_time(now),
    ]
    if plan is not None:
        verdicts = [*config.policy.verdicts(plan, now)]
        with suppress(EigenveilError):  # what is wrong with the cards is a check of its own
            verdicts += rule.verdicts(config.identity, config.name, plan, config.policy.secrecy)
        for verdict in verdicts:
            about = f"policy {verdict.rule}"
            failed = fail(about, verdict.text, code=Code.POLICY)
            checks.append(ok(about, verdict.text) if verdict.passed else failed)
        unreadable: list[Unreadable] = []
        study = examine("study", partial(_study, config, plan, unreadable))
        checks += [*_cells(config, unreadable), study]
        if config.records.is_view:
            checks.append(examine("sql", partial(_steady, config)))
    return checks


def site_checks(config_file: Path) -> list[Check]:
    """Everything about a site; writes nothing and sends nothing but a greeting."""
    try:
        config = site_config.load(config_file)
    except EigenveilError as problem:
        return [fail("configuration", str(problem))]
    credentials = config.proxy_rule.proxy_credentials
    beside = [config.state.with_name(name) for name in ("egress.key", "serve.lock")]
    beside += [config.identity / name for name in (keys.NAME, PEERS.file, ANALYSTS.file)]
    secrets = [
        *database_files(config.state),
        *beside,
        *([credentials] if credentials else []),
        *config.notify.secrets,
    ]
    settings = [config_file, config_file.absolute().parent]
    return [
        ok("configuration", f"{config_file} names the site {config.name}"),
        approval(config.policy, _clock(config)),
        analysts(config.policy),
        disk(config.state.parent),
        doctor.files(config.identity, *secrets, folders=[config.state.parent], settings=settings),
        examine("peers", partial(_peers, config)),
        examine("analysts' keys", partial(_analysts, config)),
        examine("confirmed cards", partial(_confirmed, config)),
        examine("ledger", partial(_ledger, config)),
        examine("records", partial(_records, config)),
        examine("engine", partial(_engine, config, None)),
        *_state_time(_clock(config)),
        *check_notify(config.notify),
        *doctor.identity_and_network(
            config.identity, lambda: config.proxy_rule, lambda stored: check_role(stored, config.name)
        ),
    ]


def _clock(config: SiteConfig) -> int:
    """The Unix time that the daemon would go by, as far as its state can be read."""
    with suppress(EigenveilError):  # what is wrong with the state is a check of its own
        if begun(config):
            with opened(config) as store:
                return store.now()
    return int(time.time())


def _state_time(latest: int) -> list[Check]:
    """A line if the `latest` time of the state lies ahead of this machine's clock."""
    ahead = latest - time.time()
    if ahead <= AHEAD_SECONDS:
        return []
    text = (
        f"the state holds a time that lies {ahead / 86_400:.1f} days ahead of this machine's clock: the "
        "approval and the year go by that time, signatures by the clock"
    )
    todo = "set the clock right if it is behind; if it was ahead once, set approval_ends later, or wait"
    return [warn("state's time", text, todo)]


def _identity(config: SiteConfig) -> Check:
    stored = check_role(load_identity(config.identity), config.name)
    return ok("identity", f"{stored.identity.uri}, certificate until {stored.expires:%Y-%m-%d %H:%M} UTC")


def _peers(config: SiteConfig) -> Check:
    return check_peers(config.identity, config.policy.secrecy)


def _analysts(config: SiteConfig) -> Check:
    return check_analysts(config.identity)


def _confirmed(config: SiteConfig) -> Check:
    """Whether the cards are there that people here have ever confirmed."""
    if not begun(config):
        return ok("confirmed cards", "none is remembered: the daemon has not started yet")
    with opened(config) as store:
        store.confirmed.require(config.identity)
        return ok("confirmed cards", "none is gone")


def _ledger(config: SiteConfig) -> Check:
    if not begun(config):
        return warn("ledger", f"{config.state} is not there yet", "it is made when the daemon first starts")
    with opened(config) as store:
        sent = len(store.egress.rows())
        text = f"both chains replay: {store.ledger.ledger.size} entries, {sent} messages that left"
        return ok("ledger", text)


def _cluster(config: SiteConfig) -> Check:
    """Who would hold the records; connecting compares versions."""
    with closing(Cluster(config.engine.cluster)) as cluster:
        there = cluster.workers()
    where = f"the cluster at {config.engine.cluster.scheduler}"
    if not there.workers:
        return fail("engine", f"{where} has no worker", "start some, or no study is answered")
    memory = f", {there.memory / 2**30:.1f} GiB of memory" if there.memory else ""
    return ok(
        "engine", f"{where} runs {versions()}: workers: {there.workers}, threads: {there.threads}{memory}"
    )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _columns(config: SiteConfig) -> tuple[str, ...]:
    """The columns of the records, the person's among them."""
    headers = reader.columns(config.records, config.engine.reading)
    if config.policy.person_column:
        find_column(headers, config.policy.person_column)
    check_rules(headers, config.column)
    return headers


def _file(config: SiteConfig) -> Check:
    headers = _columns(config)
    return ok("records", f"{config.records} has {len(headers)} columns: {_some(headers)}")


def _some(names: Sequence[str]) -> str:
    """The first names of many."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _records(config: SiteConfig) -> Check:
    headers = _columns(config)
    for path in (one for file in config.records.files for one in (file, file.parent)):
        if path.stat().st_mode & 0o022:
            todo = f"run: chmod go-w {shlex.quote(str(path))}"
            return warn("records", f"others can change {path}, and with it what is answered", todo)
    return ok("records", f"{config.records} can be read and has {len(headers)} columns")


def _engine(config: SiteConfig, plan: Plan | None) -> Check:
    """Where the records of running studies are held, and whether there is room: for the most that there may
    be (maximum_records), in this study or in a study of one column."""
    if config.engine.kind is Kind.DASK:
        return _cluster(config)
    if config.engine.kind is Kind.MEMORY:
        return ok("engine", "the records of running studies are held in memory, whatever they take")
    folder = config.scratch.folder or config.state.parent
    free = shutil.disk_usage(config.state.parent).free
    about = "this study" if plan else "each column of a study"
    need = config.policy.maximum_records * (2 if plan is None else record_bytes(plan.study))
    text = (
        f"what is larger than {config.engine.memory_mib} MiB lies {'encrypted ' * config.engine.encrypt}in a "
        f"file without a name in {folder}: up to {_size(need)} for {about}, of "
        f"{_size(free)} that are free"
    )
    if need > free:
        return warn("engine", text, "make room, or a study of that size is declined when it is loaded")
    return ok("engine", text)


def _cells(config: SiteConfig, unreadable: Sequence[Unreadable]) -> list[Check]:
    """What the daemon takes as missing or leaves out, a warning for each column and one for lines."""
    found = sorted(unreadable, key=lambda one: one.column or "")
    if not found:
        return []
    rows = [(one.first, one.column is not None) for one in found]
    where = reader.places(config.records, rows, config.engine.reading)
    return [
        warn(
            "lines" if one.column is None else f"column {one.column!r}",
            f"{LEFT_OUT if one.column is None else MISSING}: {one.cells}, the first in {place}: {one.what}",
            "",
        )
        for one, place in zip(found, where, strict=True)
    ]


def _study(config: SiteConfig, plan: Plan, unreadable: list[Unreadable]) -> Check:
    plausible = ranges(dictionary(config.dictionary))
    usable = Constant(plan.study)
    found = reader.stream(
        config.records, plan.study, usable, rules=config.column, plausible=plausible,
        unreadable=unreadable.append, scratch=config.scratch,
        limits=config.engine.reading,
    )  # fmt: skip
    config.policy.require_enough(found.persons)
    config.policy.quality.require(found.quality)
    note = f"; warning: all records agree in {_some(usable.columns)}" if usable.columns else ""
    return ok("study", f"{usable.records} usable records of {found.persons}{note} (this stays here)")


def _steady(config: SiteConfig) -> Check:
    """Whether the SELECT is a function of the records: a study ends at a site where it is none."""
    first, second = (reader.digest(config.records, config.engine.reading) for _ in range(2))
    if first == second:
        return ok("sql", "the SELECT gave the same rows twice")
    todo = "take out what is random, of this moment, or a sum of floats: add up DECIMALs"
    return fail("sql", "the SELECT gave other rows the second time", todo, code=Code.BAD_DATA)
