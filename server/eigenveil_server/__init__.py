"""The coordinator: opens rounds, adds up what sites answer, noises, charges, seals and publishes."""

from __future__ import annotations

import os

# gRPC has no switch for the least TLS version, but offering only a cipher suite of TLS 1.2 that
# nobody can negotiate (it needs a shared key, and there is none) leaves TLS 1.3. gRPC reads this
# when it is loaded, hence here; the gate checks the version of every call as well.
os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-CBC-SHA")

# Its own lines, one for every failed handshake of a stranger, would stand between
# ours in the log, in another form, as often as the stranger likes. GRPC_VERBOSITY=debug shows them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
