"""A site's engine, as its site.toml says."""

from __future__ import annotations

from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.engine.contract import Engine
from eigenveil_client.site.engine.dask import DaskEngine
from eigenveil_client.site.engine.local import LocalEngine
from eigenveil_client.site.engine_config import Kind
from eigenveil_client.site.plausible import dictionary, ranges, reader


def engine(config: SiteConfig) -> Engine:
    """What holds the records of this site's studies.

    Raises:
        RequestError: its dictionary cannot be read.
    """
    if config.engine.kind is Kind.DASK:
        known = ranges(dictionary(config.dictionary))
        return DaskEngine(config.records, config.column, known, config.engine.cluster)
    return LocalEngine(reader(config), config.engine, config.scratch, config.policy.maximum_records)
