"""Merge the layers of one agent's `memorySearch`, replace references, and adjust dependent values.

A later layer replaces single settings of an earlier one; `sources` and `headers` are replaced as a whole.
Only `extraPaths` and `exclude` add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memline.shared.config import environment
from memline.shared.config.check import Warnings
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Block, leaves
from memline.shared.config.schema import Chunking, Hybrid
from memline.shared.errors import ConfigError
from memline.shared.patterns import late
from memline.shared.values import replace
from memline.shared.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: How the address of a provider begins.
_ADDRESS = late(r"(?i)https?://[^\s/?#:]")


def merge(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the layers, the weakest first."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for path, setting in layer.items():
            if path in ("extraPaths", "exclude") and path in merged:
                setting = tuple(dict.fromkeys((*merged[path], *setting)))
            merged[path] = setting
    return merged


def expand_references(
    block: type[Block],
    settings: Mapping[str, Any],
    env: Environment,
    warnings: Warnings,
    *,
    at: str,
    drop: bool = False,
) -> dict[str, Any]:
    """Replace `${NAME}` in keys, headers and addresses of the block at this place.

    A reference to a variable that is not set is a ConfigError: with another key than the one meant, a request
    might go to the wrong place. With `drop` the setting is left out instead, with a warning.
    """
    expanded = dict(settings)
    for path, field in leaves(block):
        if path not in settings or not field.metadata.keys() & {"secret", "url", "of"}:
            continue
        value, place = settings[path], f"{at}{path}"
        if isinstance(value, Block):
            continue
        missing: list[str] = []
        if isinstance(value, tuple):
            value = tuple(_expanded(each, env, missing) for each in value)
        elif isinstance(value, Mapping):
            value = {name: environment.expand(text, env, missing) for name, text in value.items()}
        elif path.endswith("apiKey") and any(value in names for names in environment.PROVIDER_KEYS.values()):
            # The name of a key's variable, written in the place of the key.
            value = environment.expand(f"${{{value}}}", env, missing)
        else:
            value = environment.expand(value, env, missing)
        expanded[path] = value
        # That of a Redis is checked by `load`.
        is_address = bool(field.metadata.get("url") and value and not missing) and path != "queue.url"
        if is_address and not _ADDRESS.match(value.strip()):
            # It may hold a password, so it is not repeated.
            warnings.warn(f"{place}: not the address of a server, such as http://127.0.0.1:11434/v1")
        if missing and drop:
            del expanded[path]
            warnings.warn(f"{place}: without effect, the variable {', '.join(missing)} is not set")
        elif missing:
            raise ConfigError(f"{place}: the variable {missing[0]} is not set", hint=f"export {missing[0]}=…")
    return expanded


def _expanded(entry: Any, env: Environment, missing: list[str]) -> Any:
    """Replace `${NAME}` in the secrets of an entry of a list."""
    secrets = (each.name for each in type(entry).members.values() if each.metadata.get("secret"))
    return replace(
        entry, **{name: environment.expand(getattr(entry, name), env, missing) for name in secrets}
    )


def adjust(settings: Mapping[str, Any], warnings: Warnings, *, at: str) -> dict[str, Any]:
    """Correct settings that contradict each other, and warn of each."""
    adjusted = dict(settings)
    if "sources" in settings:
        sources = settings["sources"]
        if "sessions" in sources and not settings.get("experimental.sessionMemory"):
            sources = tuple(source for source in sources if source != "sessions")
            warnings.warn(f'{at}sources: "sessions" is left out until experimental.sessionMemory is true')
        adjusted["sources"] = sources or ("memory",)
    tokens = settings.get("chunking.tokens", Chunking().tokens)
    overlap = settings.get("chunking.overlap", Chunking().overlap)
    if overlap >= tokens:
        adjusted["chunking.overlap"] = tokens - 1
        warnings.warn(
            f"{at}chunking.overlap: the overlap of {overlap} does not fit into {counted(tokens, 'token')},"
            f" {tokens - 1} is used"
        )
    defaults = {
        "query.hybrid.vectorWeight": Hybrid().vector_weight,
        "query.hybrid.textWeight": Hybrid().text_weight,
    }
    if weights := [settings[path] for path in defaults if path in settings]:
        # One weight alone means that the other is the rest, as with the original's 0.7 and 0.3.
        rest = 1 - weights[0]
        total = sum(settings.get(path, rest) for path in defaults)
        if total == 0:
            warnings.warn(f"{at}query.hybrid: both weights are 0, the defaults are used")
        for path, default in defaults.items():
            adjusted[path] = settings.get(path, rest) / total if total else default
    return adjusted
