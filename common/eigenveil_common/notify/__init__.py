"""Telling people by mail or webhook that a study waits or has ended; never what is in it."""
