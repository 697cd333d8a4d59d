"""Web console of the coordinator for operators and analysts, on the daemon's event loop.

Visitors are identified by certificates or by a trusted proxy; access is denied by default.
Pages never delay a round.
"""
