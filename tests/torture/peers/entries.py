"""How often each handler of the coordinator is entered: what the gate refuses never gets there."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc.listeners import Enrolment
from eigenveil_server.rpc.service import Service

SERVICES = {"Coordinator": Service, "Enrolment": Enrolment}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count in every coordinator that begins to serve within."""
    entries: Counter[str] = Counter()
    with muted(), ExitStack() as patches:
        for service, servicer in SERVICES.items():
            for method in pb.DESCRIPTOR.services_by_name[service].methods:
                handler = _counting(entries, method.name, getattr(servicer, method.name))
                patches.enter_context(mock.patch.object(servicer, method.name, handler))
        yield entries


@contextmanager
def muted() -> Iterator[None]:
    """The log says nothing on standard error for a while; handlers that somebody added still hear it."""
    handler, logger = logging.NullHandler(), logging.getLogger("eigenveil")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _counting(entries: Counter[str], name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    def entered(servicer: object, request: object, context: object) -> Any:
        entries[name] += 1
        return handler(servicer, request, context)

    return entered
