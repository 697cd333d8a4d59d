"""Identities: the federation's authorities, the coordinator's keys and certificate, the registry of callers.
Imports storage; no access to studies."""
