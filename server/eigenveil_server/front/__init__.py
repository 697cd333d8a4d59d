"""The gateway in front of gRPC: TLS, connection quotas and handshake limits. Imports no other package of the
coordinator."""
