"""Checks of `eigenveil-site check` and `doctor`: configuration, files, ledgers, records, then the network."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from eigenveil.errors import Code, EigenveilError
from eigenveil.planning.choose import possible_rehearsals
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.presentation import one_line
from eigenveil.study.grid import record_bytes
from eigenveil_client.connection import doctor
from eigenveil_client.connection.cluster import Cluster, versions
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.records.discovery.persons import possible_persons
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.parsing import check_rules
from eigenveil_client.records.summary import ConstantColumns
from eigenveil_client.records.tables.cells import ignore
from eigenveil_client.records.tables.source import Headers
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands.record_checks import engine_verdict
from eigenveil_client.site.config import EngineKind, SiteConfig, plausible_ranges
from eigenveil_client.site.daemon.service import check_allowed_analysts, check_approval, check_role
from eigenveil_client.site.roster import peers
from eigenveil_client.site.roster.analysts import ANALYSTS, check_analyst_keys
from eigenveil_client.site.roster.peers import PEERS
from eigenveil_client.site.state.store_access import (
    OUTDATED,
    RESTART,
    has_state,
    open_site_store,
    runs_outdated,
)
from eigenveil_common.doctor import Check, disk, examine, fail, ok, warn
from eigenveil_common.notify.outbox import check_notify
from eigenveil_common.trusted_files import database_files

MAX_NAMED = 100  # columns named in a message
AHEAD_SECONDS = 3600  # of the state before the clock: more than summer time or a slow clock explains


def offline_checks(config: SiteConfig, plan: Plan | None, counted: Sequence[Check] = ()) -> list[Check]:
    """Return the checks that need no coordinator; with a plan, also if it would be answered. `counted`: those
    of the records' lines."""
    now = _clock(config)
    checks = [
        examine("identity", partial(_identity, config)),
        *_cards_and_ledger(config),
        check_approval(config.policy, now),
        check_allowed_analysts(config.policy),
        *_once(
            examine("records", partial(_file, config)),
            examine("persons", partial(_persons, config)),
            *counted,
        ),
        examine("engine", partial(_engine, config, plan)),
        *_state_time(now),
    ]
    if plan is not None:
        verdicts = [*config.policy.verdicts(plan, now)]
        with suppress(EigenveilError):  # key cards have a check of their own
            verdicts += peers.verdicts(config.identity, config.name, plan, config.policy.secrecy)
        verdicts.append(engine_verdict(config, plan, possible_rehearsals(plan)))
        for one in verdicts:
            passed, about = ok(f"policy {one.rule}", one.text), f"policy {one.rule}"
            checks.append(passed if one.passed else fail(about, one.text, code=Code.POLICY))
        checks.append(examine("study", partial(_study, config, plan)))
        if config.records.is_view:
            checks.append(examine("sql", partial(_check_select_repeats, config)))
    return checks


def _once(*checks: Check) -> list[Check]:
    """Return the checks without those that repeat the text of another."""
    return list({one.text: one for one in checks[::-1]}.values())[::-1]


def site_checks(config_file: Path) -> list[Check]:
    """Return all checks of a site; sends only a greeting and writes nothing."""
    try:
        config = site_config.load(config_file)
    except EigenveilError as problem:
        return [fail("configuration", str(problem))]
    credentials = config.proxy_rule.proxy_credentials
    secrets = [
        *database_files(config.state),
        *(config.state.with_name(name) for name in ("egress.key", "serve.lock")),
        *(config.identity / name for name in (peers.NAME, PEERS.file, ANALYSTS.file)),
        *([credentials] if credentials else []),
        *config.notify.secrets,
    ]
    settings = [config_file, config_file.absolute().parent]
    return [
        ok("configuration", f"{config_file} names the site {config.name}"),
        check_approval(config.policy, _clock(config)),
        check_allowed_analysts(config.policy),
        disk(config.state.parent),
        doctor.check_files(config.identity, *secrets, folders=[config.state.parent], settings=settings),
        *_cards_and_ledger(config),
        examine("records", partial(_records, config)),
        examine("engine", partial(_engine, config, None)),
        *_state_time(_clock(config)),
        *check_notify(config.notify),
        *doctor.identity_and_network(
            config.identity, lambda: config.proxy_rule, lambda stored: check_role(stored, config.name)
        ),
    ]


def _cards_and_ledger(config: SiteConfig) -> list[Check]:
    return [
        examine("peers", lambda: peers.check_peers(config.identity, config.policy.secrecy)),
        examine("analysts' keys", lambda: check_analyst_keys(config.identity)),
        examine("confirmed cards", partial(_confirmed, config)),
        examine("ledger", partial(_ledger, config)),
        *([warn("daemon", OUTDATED, RESTART)] if runs_outdated(config) else []),
    ]


def _clock(config: SiteConfig) -> int:
    """Return the Unix time that the daemon would use, as far as its state can be read."""
    with suppress(EigenveilError):  # the state has a check of its own
        if has_state(config):
            with open_site_store(config) as store:
                return store.now()
    return int(time.time())


def _state_time(latest: int) -> list[Check]:
    """Return a warning if the `latest` time of the state is ahead of this machine's clock."""
    ahead = latest - time.time()
    if ahead <= AHEAD_SECONDS:
        return []
    text = (
        f"the state has a time {ahead / 86_400:.1f} days ahead of this machine's clock: approval_ends and "
        "the yearly limit use that time, signatures use the clock"
    )
    todo = "correct the clock if it is behind; if it was ahead before, set approval_ends later, or wait"
    return [warn("state's time", text, todo)]


def _identity(config: SiteConfig) -> Check:
    stored = check_role(load_identity(config.identity), config.name)
    return ok("identity", f"{stored.identity.uri}, certificate until {stored.expires:%Y-%m-%d %H:%M} UTC")


def _confirmed(config: SiteConfig) -> Check:
    """Check that the key cards ever confirmed here are present."""
    if not has_state(config):
        return ok("confirmed cards", "none is recorded: the daemon has not started yet")
    with open_site_store(config) as store:
        store.confirmed.require(config.identity)
        return ok("confirmed cards", "none is missing")


def _ledger(config: SiteConfig) -> Check:
    if not has_state(config):
        return warn("ledger", f"{config.state} does not exist yet", "the daemon creates it at first start")
    with open_site_store(config) as store:
        entries, messages = store.ledger.ledger.size, len(store.egress.rows())
    return ok("ledger", f"both chains are complete: {entries} entries, {messages} messages that left")


def _cluster(config: SiteConfig) -> Check:
    """Check the cluster that would store the records; connecting compares versions."""
    with closing(Cluster(config.engine.cluster)) as cluster:
        there = cluster.workers()
    where = f"the cluster at {config.engine.cluster.scheduler}"
    if not there.workers:
        return fail("engine", f"{where} has no worker", "start workers; without them no study is answered")
    memory = f", {there.memory / 2**30:.1f} GiB of memory" if there.memory else ""
    power = f"workers: {there.workers}, threads: {there.threads}{memory}"
    return ok("engine", f"{where} runs {versions()}: {power}")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _columns(config: SiteConfig) -> tuple[str, ...]:
    """Return the columns of the records, with the person's column."""
    headers = reader.columns(config.records, config.engine.reading)
    if config.person_header:
        Headers(headers).find_person(config.person_header)
    check_rules(headers, config.column)
    return headers


def _file(config: SiteConfig) -> Check:
    headers = _columns(config)
    return ok("records", f"{config.records} has {len(headers)} columns: {_some(headers)}")


def _persons(config: SiteConfig) -> Check:
    """Check what a row is: a warning if no column names persons, and one looks as if it could."""
    headers = _columns(config)
    if config.person_header:
        return ok("persons", f"{one_line(config.person_header)} names the person of a row")
    likely = possible_persons(headers)
    if not likely:
        return ok("persons", "every row counts as one person")
    text = f"every row counts as one person, although {one_line(_some(likely))} may name persons"
    todo = "if persons have several rows, state person_column and [records] person: privacy protects a person"
    return warn("persons", text, todo)


def _some(names: Sequence[str]) -> str:
    """Return the first `MAX_NAMED` names as text."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _records(config: SiteConfig) -> Check:
    headers = _columns(config)
    for path in (one for file in config.records.files for one in (file, file.parent)):
        if path.stat().st_mode & 0o022:
            todo = f"run: chmod go-w {shlex.quote(str(path))}"
            return warn("records", f"other users can change {path}, and with it the answers", todo)
    return ok("records", f"{config.records} can be read and has {len(headers)} columns")


def _engine(config: SiteConfig, plan: Plan | None) -> Check:
    """Check where the records of running studies are stored, and the free space for maximum_records of this
    study, or of one column."""
    if config.engine.kind is EngineKind.DASK:
        return _cluster(config)
    if config.engine.kind is EngineKind.MEMORY:
        return ok("engine", "the records of running studies are stored in memory, without a limit")
    folder = config.scratch.folder or config.state.parent
    free = shutil.disk_usage(config.state.parent).free
    about = "this study" if plan else "each column of a study"
    need = config.policy.maximum_records * (2 if plan is None else record_bytes(plan.study))
    text = (
        f"data over {config.engine.memory_mib} MiB is stored {'encrypted ' * config.engine.encrypt}in an "
        f"unnamed file in {folder}: up to {_size(need)} for {about}, of {_size(free)} free"
    )
    if need > free:
        return warn("engine", text, "free some space, or a study of that size is declined when it is loaded")
    return ok("engine", text)


def _study(config: SiteConfig, plan: Plan) -> Check:
    plausible = plausible_ranges(config)
    usable = ConstantColumns(plan.study)
    records = reader.Reader(config.records, config.column, plausible, config.scratch, config.engine.reading)
    found = records.stream(plan.study, usable, ignore)  # they are counted by themselves
    config.policy.require_record_count(found.persons)
    config.policy.quality.require(found.quality)
    note = f"; warning: all records agree in {_some(usable.columns)}" if usable.columns else ""
    return ok("study", f"{usable.records} usable records of {found.persons}{note} (this stays here)")


def _check_select_repeats(config: SiteConfig) -> Check:
    """Check that the SELECT returns the same rows twice; otherwise a study ends at this site."""
    first, second = (reader.digest(config.records, config.engine.reading) for _ in range(2))
    if first == second:
        return ok("sql", "the SELECT returned the same rows twice")
    todo = "remove random values, the present time and sums of floats from it; add DECIMALs instead"
    return fail("sql", "the SELECT returned other rows the second time", todo, code=Code.BAD_DATA)
