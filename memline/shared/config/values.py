"""Bring the values of a configuration file into the form that the schema declares.

Texts lose their surrounding blanks, paths become absolute, `${NAME}` the variable, a text in the place of an
object its `path`, `512kb` and `5m` numbers.
"""

import os
import re
from pathlib import Path
from typing import Any

from memline.shared.config import environment
from memline.shared.config.check import Reading
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError

#: Keys whose texts may hold `${NAME}`; of groups, the texts below them.
_WITH_REFERENCES = ("apiKey", "headers", "baseUrl", "url", "token", "tokens")
_GROUPS = ("headers", "tokens")

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MINUTES = {"": 1.0, "ms": 1 / 60_000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}
#: `${NAME}` is the variable NAME; `$${NAME}` is those very characters.
_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_DIRECT = {"dm": "direct", "private": "direct"}


def prepared(raw: Any, env: Environment, reading: Reading, path: str = "", key: str = "") -> Any:
    """Return a value of the file in the form that the schema declares; one that does not fit stays.

    A variable that is not set is a ConfigError: with another key than the one meant, a request might go to
    the wrong place. Below `models`, which is OpenClaw's, the value is empty instead, with a warning.
    """
    if isinstance(raw, dict) and key in _WITH_REFERENCES and raw.get("source") in ("env", "file", "exec"):
        raw = _reference(raw, reading, path)
    if isinstance(raw, dict):
        return {
            name: prepared(each, env, reading, f"{path}.{name}".lstrip("."), key if key in _GROUPS else name)
            for name, each in raw.items()
        }
    if isinstance(raw, list):
        items = [each for each in raw if not isinstance(each, str) or each.strip()]
        if key in ("extraPaths", "paths"):
            items = [{"path": each} if isinstance(each, str) else each for each in items]
        return [prepared(each, env, reading, f"{path}[{at}]", key) for at, each in enumerate(items)]
    if isinstance(raw, float) and raw.is_integer():
        # JSON5 has one kind of number: 400.0 is a whole one.
        return int(raw)
    if not isinstance(raw, str):
        return raw
    text = raw.strip()
    if key in _WITH_REFERENCES:
        return _with_variables(text, env, reading, path, key)
    match key:
        case "workspace" | "modelPath" | "modelCacheDir" | "extensionPath":
            return _absolute(text, env, reading)
        case "path":
            # That of `extraPaths` begins at the workspace.
            is_index = path.endswith(".store.path")
            return _absolute(text, env, reading) if is_index else environment.expand_user(text, env)
        case "interval" | "embedInterval":
            length = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|)", text)
            return float(length[1]) * _MINUTES[length[2]] if length else text
        case "forceFlushTranscriptBytes":
            size = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kmg]?)b?", text.lower())
            return round(float(size[1]) * _UNITS[size[2]]) if size else text
        case "allowedHosts":
            # People write scheme and port with it.
            host = r"^(?:https?://)?\[?([^\[\]/:]+|[0-9a-f:.]+)\]?(?::\d+)?/*$"
            return re.sub(host, r"\1", text.lower())
        case "channel" | "keyPrefix" | "rawKeyPrefix":
            return text.lower()
        case "chatType":
            return _DIRECT.get(text, text)
    return text


def _reference(raw: dict[str, Any], reading: Reading, path: str) -> str:
    """Return OpenClaw's reference to a secret as `${NAME}`; empty for one to another store."""
    if raw["source"] == "env" and isinstance(name := raw.get("id"), str):
        return f"${{{name}}}"
    reading.warn(path, "a reference to a secret store is not read; the environment's key counts")
    return ""


def _with_variables(text: str, env: Environment, reading: Reading, path: str, key: str) -> str:
    if key == "apiKey" and any(text in names for names in environment.PROVIDER_KEYS.values()):
        # The name of a key's variable, written in the place of the key.
        text = f"${{{text}}}"
    missing = [
        name for mark, name in _REFERENCE.findall(text) if not mark and not environment.secret(env, name)
    ]
    if missing and path.startswith("models."):
        reading.warn(path, f"without effect, the variable {', '.join(missing)} is not set")
        return ""
    if missing:
        words = f"{reading.at(path)}: the variable {missing[0]} is not set"
        raise ConfigError(words, hint=f"export {missing[0]}=…")
    text = _REFERENCE.sub(lambda each: each[0][1:] if each[1] else environment.secret(env, each[2]), text)
    if key == "baseUrl" and text and not re.match(r"(?i)https?://[^\s/?#:]", text):
        # It may hold a password, so it is not repeated.
        reading.warn(path, "not the address of a server, such as http://127.0.0.1:11434/v1")
    return text


def _absolute(text: str, env: Environment, reading: Reading) -> str:
    """Make a path of the file absolute: `~` expanded, relative to the file's folder."""
    if not text or text.startswith(("hf:", "http://", "https://")):
        return text
    return os.path.normpath(Path(reading.name).absolute().parent / environment.expand_user(text, env))
