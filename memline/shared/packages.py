"""Say which command adds packages to this very installation, by how it was made: pipx, uv or pip."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path


def install_command(*requirements: str, options: tuple[str, ...] = ()) -> str:
    """Return the command line that installs packages for this process; `options` are pip's.

    It names the packages and not an extra of ours: that would look for Memline itself in a registry.
    """
    prefix = Path(sys.prefix)
    arguments = [*options, *requirements]
    if (prefix / "pipx_metadata.json").is_file():
        # pipx keeps an environment for each program, and takes options of pip's as one argument.
        passed = [f"--pip-args={shlex.join(options)}"] if options else []
        return shlex.join(["pipx", "inject", prefix.name, *passed, *requirements])
    if (prefix / "uv-receipt.toml").is_file() or find_spec("pip") is None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *arguments])
    if sys.prefix == sys.base_prefix and Path(os.__file__).with_name("EXTERNALLY-MANAGED").is_file():
        # Without it pip refuses to touch this Python, in which Memline itself was put the same way.
        arguments.insert(0, "--break-system-packages")
    return shlex.join([sys.executable, "-m", "pip", "install", *arguments])


def missing(modules: tuple[str, ...]) -> list[str]:
    """Return those of `modules` that cannot be imported here, without importing one."""
    return [name for name in modules if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:
        # A module that was imported in an odd way, or that a test took away, has no spec.
        return sys.modules.get(name) is not None
