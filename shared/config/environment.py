"""Every environment variable that Memline reads: no other module knows their names.

An empty variable counts as one that is not set. Functions take the environment as an argument, so tests
need no `monkeypatch` and nothing here reads the machine's own by surprise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from shared.errors import ConfigError

Environment = Mapping[str, str]

#: Memline's own, in the order of `docs/config.md`.
CONFIG = "MEMLINE_CONFIG"
HOME = "MEMLINE_HOME"
WORKSPACE = "MEMLINE_WORKSPACE"
QUEUE_URL = "MEMLINE_QUEUE_URL"
LOG_LEVEL = "MEMLINE_LOG_LEVEL"
LOG_FORMAT = "MEMLINE_LOG_FORMAT"
SQLITE = "MEMLINE_SQLITE"
LEASE_SECONDS = "MEMLINE_LEASE_SECONDS"
HF_URL = "MEMLINE_HF_URL"
SERVE_TOKEN = "MEMLINE_SERVE_TOKEN"

#: Where models named `hf:…` come from unless a mirror is named.
HUGGING_FACE = "https://huggingface.co"

#: Where OpenClaw keeps its own files (configuration, transcripts).
STATE_DIR = "OPENCLAW_STATE_DIR"

#: Keys of providers, by provider; of two variables the first that is set counts.
PROVIDER_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "voyage": ("VOYAGE_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
}

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_FORMATS = ("text", "json")

#: `${NAME}` is the variable NAME; `$${NAME}` is those very characters.
_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def value(env: Environment, name: str) -> str:
    """The variable without surrounding blanks; empty when it is not set."""
    return env.get(name, "").strip()


def user_home(env: Environment) -> Path:
    """The user's home directory."""
    # Without HOME (some services) the user database knows it.
    return Path(value(env, "HOME") or os.path.expanduser("~"))


def expand_user(path: str, env: Environment) -> str:
    """The path with a leading `~` replaced by the user's home directory."""
    if path == "~" or path.startswith("~/"):
        return f"{user_home(env)}{path[1:]}"
    return path


def xdg(env: Environment, variable: str, default: str) -> Path:
    """An XDG base directory; relative values are ignored, as its specification demands."""
    named = value(env, variable)
    return Path(named) if named.startswith("/") else user_home(env) / default


def config_dir(env: Environment) -> Path:
    """Where Memline's own configuration file is looked for."""
    return xdg(env, "XDG_CONFIG_HOME", ".config") / "memline"


def data_dir(env: Environment) -> Path:
    """Where indexes and state live unless something else is said."""
    return xdg(env, "XDG_DATA_HOME", ".local/share") / "memline"


def state_dir(env: Environment) -> Path:
    """OpenClaw's state directory."""
    named = value(env, STATE_DIR)
    return Path(expand_user(named, env)).absolute() if named else user_home(env) / ".openclaw"


def provider_keys(env: Environment) -> dict[str, str]:
    """The keys found, by provider."""
    return {
        provider: value(env, name) for provider in PROVIDER_KEYS if (name := provider_key_name(env, provider))
    }


def provider_key_name(env: Environment, provider: str) -> str:
    """The variable that gives the key of this provider; empty when none does."""
    return next((name for name in PROVIDER_KEYS[provider] if value(env, name)), "")


def expand(text: str, env: Environment) -> tuple[str, list[str]]:
    """The text with its `${NAME}` references replaced, and the names that are not set."""
    missing: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        found = value(env, match[2])
        if not found:
            missing.append(match[2])
        return found

    return _REFERENCE.sub(replace, text), missing


def names_provider_key(text: str) -> bool:
    """Whether the text is the name of a key variable, written where the key itself is expected."""
    return any(text in names for names in PROVIDER_KEYS.values())


def lease_s(default: float, env: Environment = os.environ) -> float:
    """Seconds a request may be out, for `shared.index.dispatch`."""
    text = value(env, LEASE_SECONDS)
    if not text:
        return default
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text) or float(text) <= 0:
        raise ConfigError(
            f"{LEASE_SECONDS}: {text!r} is no number of seconds", hint=f"{LEASE_SECONDS}={default:g}"
        )
    return float(text)


def hf_url(env: Environment = os.environ) -> str:
    """The base address of model files, for `shared.embedders.local_files`."""
    return (value(env, HF_URL) or HUGGING_FACE).rstrip("/")


def log_options(env: Environment = os.environ, *, default: str = "WARNING") -> tuple[str, str]:
    """Level and format of the log, for `shared.logs.configure`."""
    level = value(env, LOG_LEVEL).upper() or default
    if level not in LOG_LEVELS:
        raise ConfigError(
            f"{LOG_LEVEL}: {level!r} is no log level", hint=f"{LOG_LEVEL}={'|'.join(LOG_LEVELS)}"
        )
    style = value(env, LOG_FORMAT).lower() or "text"
    if style not in LOG_FORMATS:
        raise ConfigError(
            f"{LOG_FORMAT}: {style!r} is no log format", hint=f"{LOG_FORMAT}={'|'.join(LOG_FORMATS)}"
        )
    return level, style
