"""The files of deploy/config, which are installed with the commands: every key, with its meaning."""

from __future__ import annotations

from importlib.resources import files


def example(name: str) -> str:
    """The text of study.toml, site.toml, coordinator.toml or profile.toml as an example."""
    return files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
