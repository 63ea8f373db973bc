"""Tell the version of this Memline."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Return the version of the installed distribution; `0` when it runs from its sources."""
    try:
        return version("memline")
    except PackageNotFoundError:
        return "0"
