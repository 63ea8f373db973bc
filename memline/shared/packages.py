"""Tell the version of this Memline, which packages it lacks, and which command adds them: pipx, uv or pip."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from importlib import import_module
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


#: Why a package that is installed cannot be imported, by its name: trying again takes as long as an import.
_broken: dict[str, str] = {}


def lack(name: str) -> str:
    """Import a package and say what it lacks, as "is missing"; empty when it works.

    What of another Python or processor was installed is found only so. numpy takes 80 ms of CPU.
    """
    if name not in _broken:
        # OpenBLAS's threads spin while they wait for each other: 15 ms of CPU more for a question at 9,000
        # vectors of 1,536. It is read when numpy is imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            import_module(name)
            return ""
        except Exception as error:
            # A package that does not fit raises what it likes.
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                return "is missing"
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            reason = str(cause).strip().partition("\n")[0] or type(cause).__name__
            # Libraries that use it where it is there expect nothing but that it is missing.
            sys.modules[name] = None  # type: ignore[assignment]
            _broken[name] = f"cannot be imported ({reason})"
    return _broken[name]


def lack_at_a_glance(name: str) -> str:
    """Say the same without an import: what is there is taken to work until `lack` has imported it."""
    return _broken.get(name) or ("" if _is_there(name) else "is missing")


def remedy(name: str) -> str:
    """Return the command line that makes a package work here."""
    return install_command(name, options=("--force-reinstall",) if name in _broken else ())


def missing(modules: tuple[str, ...]) -> list[str]:
    """Return those of `modules` that cannot be imported here, without importing one."""
    return [name for name in modules if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:
        # A module that was imported in an odd way has no spec.
        return sys.modules.get(name) is not None


def own_version() -> str:
    """Return the version of this distribution; `0` when it runs from its sources.

    It is read from the name of the folder where `importlib.metadata`, whose import takes 18 ms, finds it.
    """
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):
                if name.startswith("memline-") and name.endswith(".dist-info"):
                    return name[len("memline-") : -len(".dist-info")]
    return "0"
