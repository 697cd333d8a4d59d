"""These tests start processes while gRPC runs in this one."""

from __future__ import annotations

import os

# A fork handler of gRPC can abort the child before it becomes the other program; nothing here uses
# gRPC in a forked child, so the handlers are switched off before gRPC is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
