"""Rounds of a study: its session, the open query, the answers, and the step from a release to the next query;
exact and masked rounds. Imports storage; no access to other studies."""
