"""Texts for people: a plan explained, a release, its report and its verification. Imports no site."""
