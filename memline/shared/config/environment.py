"""Know what a process is started with: the global options, and every environment variable of Memline.

No other module knows the names of variables. An empty one counts as one that is not set. Functions take the
environment as an argument, so tests need no `monkeypatch` and nothing here reads the machine's own by
surprise.
"""

import os
import re
import shlex
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from memline.shared.errors import ConfigError
from memline.shared.providers import PROVIDERS

Environment = Mapping[str, str]

#: Memline's own, in the order of `docs/config.md`.
CONFIG = "MEMLINE_CONFIG"
HOME = "MEMLINE_HOME"
WORKSPACE = "MEMLINE_WORKSPACE"
QUEUE_URL = "MEMLINE_QUEUE_URL"
QUEUE_NAME = "MEMLINE_QUEUE_NAME"
LOG_LEVEL = "MEMLINE_LOG_LEVEL"
HF_URL = "MEMLINE_HF_URL"
SERVE_TOKEN = "MEMLINE_SERVE_TOKEN"
ALIVE_FILE = "MEMLINE_ALIVE_FILE"

#: Bytes of the file of a secret at most; keys have tens of them.
_MAX_SECRET_BYTES = 16_384

#: Keys of providers, by provider; of two variables the first that is set counts.
PROVIDER_KEYS = {row.name: row.key_variables for row in PROVIDERS.values() if row.key_variables}

#: The programs whose past sessions can be read, by their names in ledger paths (`sessions/<name>/…`) and in
#: `memorySearch.transcripts`. A further one is a row here, its place in `place_of`, and a module, see
#: `shared.sessions.programs`.
PROGRAMS = {
    "openclaw": "OpenClaw",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "opencode",
}

#: What a program of others may see: how to find and run programs, language, certificates. Keys of providers,
#: proxies with passwords and everything that is not known here stay out; so do qmd's variables that let a
#: foreign folder run commands.
_FOR_PROGRAMS = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "BUN_INSTALL", "NVM_DIR", "VOLTA_HOME"),
    *("QMD_EMBED_MODEL", "QMD_RERANK_MODEL", "QMD_GENERATE_MODEL", "QMD_FORCE_CPU", "QMD_LLAMA_GPU"),
)


#: A command in a hint, and the global options that it has.
_COMMAND = re.compile(r"\bmemline ((?:--[a-z]+ \S+ )*)(?=[a-z])")


def read(env: Environment, name: str) -> str:
    """Return the variable without surrounding blanks; empty when it is not set."""
    return env.get(name, "").strip()


def secret(env: Environment, name: str) -> str:
    """Return the variable, or the text of the file that `<name>_FILE` names, without surrounding blanks.

    Containers, Kubernetes and systemd hand secrets over as files, which a list of processes does not show.
    Raises ConfigError when the file cannot be read or holds no single line, or both are set.
    """
    text, file = read(env, name), read(env, f"{name}_FILE")
    if not file:
        return text
    if text:
        raise ConfigError(f"{name} and {name}_FILE are both set", hint=f"unset {name}_FILE, or {name}")
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as opened:
            line = opened.read(_MAX_SECRET_BYTES + 1).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a valid name"
        raise ConfigError(f"{name}_FILE: cannot read {file}: {reason}", hint=f"cat {file}") from None
    if not line or len(line) > _MAX_SECRET_BYTES or not line.isprintable() or "\ufffd" in line:
        # Never quoted: it may be the wrong file, with other secrets.
        raise ConfigError(
            f"{name}_FILE: {file} does not hold one line of text", hint=f"write the value of {name} into it"
        )
    return line


def secret_name(env: Environment, name: str) -> str:
    """Return which variable has this secret: itself, or the one that names its file; empty for none."""
    return next((each for each in (name, f"{name}_FILE") if read(env, each)), "")


def user_home(env: Environment) -> Path:
    """Return the user's home directory."""
    # Without HOME (some services) the user database knows it.
    return Path(read(env, "HOME") or os.path.expanduser("~"))


def for_programs(env: Environment) -> dict[str, str]:
    """Return the variables that a program of others gets, and where it finds downloaded models."""
    caches = read(env, "XDG_CACHE_HOME")
    return {name: env[name] for name in _FOR_PROGRAMS if env.get(name)} | {
        "NO_COLOR": "1",
        # Replaced for qmd by its own home; there it says where the user's own cache is.
        "XDG_CACHE_HOME": caches if caches.startswith("/") else str(user_home(env) / ".cache"),
    }


def liveness(env: Environment = os.environ) -> tuple[str, float | None, str]:
    """Return systemd's socket, the seconds between two signs of life, and the file that is touched.

    They are for the process that was started with them alone.
    """
    microseconds, pid = (read(env, name) for name in ("WATCHDOG_USEC", "WATCHDOG_PID"))
    is_ours = not pid or pid == str(os.getpid())
    watchdog_s = int(microseconds) / 1e6 if microseconds.isdecimal() and is_ours else None
    return read(env, "NOTIFY_SOCKET"), watchdog_s, read(env, ALIVE_FILE)


def fleet_name(home: Path) -> str:
    """Derive the name of a fleet from its host and home, so that no two fleets mix on one Redis."""
    return sha256(f"{os.uname().nodename}:{home.resolve()}".encode()).hexdigest()[:12]


def expand_user(path: str, env: Environment) -> str:
    """Replace a leading `~` by the user's home directory."""
    if path == "~" or path.startswith("~/"):
        return f"{user_home(env)}{path[1:]}"
    return path


def xdg(env: Environment, variable: str, default: str) -> Path:
    """Return Memline's folder below an XDG base directory; its specification ignores relative values."""
    # Not platformdirs: 4.6 ms of import, and it reads the machine's own environment only.
    text = read(env, variable)
    return (Path(text) if text.startswith("/") else user_home(env) / default) / "memline"


def state_dir(env: Environment) -> Path:
    """Return OpenClaw's state directory."""
    return folder(env, "OPENCLAW_STATE_DIR", ".openclaw")


def folder(env: Environment, variable: str, usual: str) -> Path:
    """Return the folder that a variable of another program names, else the usual one in the user's home."""
    text = read(env, variable)
    return Path(expand_user(text, env)).absolute() if text else user_home(env) / usual


def place_of(program: str, env: Environment) -> Path:
    """Return where a program of `PROGRAMS` keeps its sessions: a folder or a database."""
    match program:
        case "claude-code":
            return folder(env, "CLAUDE_CONFIG_DIR", ".claude") / "projects"
        case "codex":
            return folder(env, "CODEX_HOME", ".codex")
        case "gemini":
            return folder(env, "GEMINI_CLI_HOME", "") / ".gemini"
        case "opencode":
            data = folder(env, "XDG_DATA_HOME", ".local/share") / "opencode"
            return data / (read(env, "OPENCODE_DB") or "opencode.db")
    return state_dir(env)


def provider_keys(env: Environment) -> dict[str, str]:
    """Return the keys that are set, by provider. Raises ConfigError as `secret` does."""
    keys = {
        name: next(filter(None, (secret(env, each) for each in of)), "") for name, of in PROVIDER_KEYS.items()
    }
    return {name: key for name, key in keys.items() if key}


def provider_key_name(env: Environment, provider: str) -> str:
    """Return the variable that has the key of this provider, or its file; empty when none is set."""
    return next(filter(None, (secret_name(env, name) for name in PROVIDER_KEYS[provider])), "")


def hf_url(env: Environment = os.environ) -> str:
    """Return the base address of model files, for `shared.embedders.local.downloads`."""
    # The second is Hugging Face's own variable for a mirror.
    return (read(env, HF_URL) or read(env, "HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def log_level(env: Environment = os.environ, *, default: str = "WARNING") -> str:
    """Return the level of the log, for `shared.logs.configure`."""
    level, known = read(env, LOG_LEVEL).upper() or default, "DEBUG, INFO, WARNING, ERROR"
    if level not in known.split(", "):
        raise ConfigError(f"{LOG_LEVEL}: {level!r} is not a valid value", hint=f"set it to one of: {known}")
    return level


def colour(env: Environment = os.environ) -> bool | None:
    """Tell whether the user wants colours (https://no-color.org, `FORCE_COLOR`); None: on terminals."""
    if env.get("NO_COLOR") or read(env, "TERM") == "dumb":
        return False
    return env["FORCE_COLOR"] != "0" if env.get("FORCE_COLOR") else None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The global options of the command line; None: not given."""

    config: Path | None = None
    home: Path | None = None
    workspace: Path | None = None
    agent: str | None = None
    #: Whether the process serves the configuration: with several agents, or a queue, the current folder is
    #: not asked which notes are meant.
    is_service: bool = False

    def words(self) -> list[str]:
        """Return the options as words of a command line."""
        values = ((name, getattr(self, name)) for name in ("config", "home", "workspace", "agent"))
        return [word for name, value in values if value is not None for word in (f"--{name}", str(value))]

    def as_typed(self, text: str) -> str:
        """Put these options into the commands of a hint, so that they work as typed.

        What a command names already stays.
        """
        words = self.words()

        def fill(match: re.Match[str]) -> str:
            typed = match[1].split()
            pairs = zip(words[::2], words[1::2], strict=True)
            more = [f"{name} {shlex.quote(value)} " for name, value in pairs if name not in typed]
            return f"memline {''.join(more)}{match[1]}"

        return _COMMAND.sub(fill, text)


class Place(NamedTuple):
    """A folder, and what says so: `<file>: <key>`, a variable, an option, or `default`."""

    path: Path
    origin: str


def folder_of(option: Path | None, name: str, variable: str, env: Environment) -> Place | None:
    """Return the folder of an option, else of a variable."""
    text, origin = (str(option), name) if option else (read(env, variable), variable)
    return Place(Path(expand_user(text, env)).absolute(), origin) if text else None


def home_of(options: Options, env: Environment) -> Path:
    """Return the folder of indexes and accounts."""
    place = folder_of(options.home, "--home", HOME, env)
    return place.path if place else xdg(env, "XDG_DATA_HOME", ".local/share")
