"""Who is who: the federation's authorities, the coordinator's keys and certificate, the registry of callers.
Imports storage; knows of no study."""
