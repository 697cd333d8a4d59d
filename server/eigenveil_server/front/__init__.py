"""The front door: TLS, and who may keep how many connections, before anything reaches gRPC. Imports nothing
else of the coordinator."""
