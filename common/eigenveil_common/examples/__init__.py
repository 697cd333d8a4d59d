"""Example configuration files of deploy/config, installed with the commands."""

from __future__ import annotations

from importlib.resources import files


def example(name: str) -> str:
    """Return the text of an example: study, site, coordinator, profile or dictionary."""
    return files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
