"""Figures of a release, drawn on matplotlib axes for pages, notebooks and papers."""

from eigenveil.errors import install_command

try:
    import matplotlib  # noqa: F401 - checked first, for a clear message
except ModuleNotFoundError as lack:
    raise ModuleNotFoundError(
        f"figures need matplotlib: {install_command('eigenveil[analyst]')}", name=lack.name
    ) from lack
