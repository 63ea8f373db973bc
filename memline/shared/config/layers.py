"""Merge the layers of one agent's `memorySearch`, replace references, and adjust dependent values.

A later layer replaces single settings of an earlier one; `sources` and `headers` are replaced as a whole.
Only `extraPaths` and `exclude` add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memline.shared.config import environment
from memline.shared.config.check import Issues
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Block, Setting, given, leaves
from memline.shared.config.schema import Chunking, Hybrid
from memline.shared.patterns import late
from memline.shared.values import replace
from memline.shared.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: How the address of a provider begins.
_ADDRESS = late(r"(?i)https?://[^\s/?#:]")


def merge(layers: Iterable[Mapping[str, Setting]]) -> dict[str, Setting]:
    """Merge the layers, the weakest first."""
    merged: dict[str, Setting] = {}
    for layer in layers:
        for path, setting in layer.items():
            if path in ("extraPaths", "exclude") and path in merged:
                weaker = merged[path]
                both = tuple(dict.fromkeys((*weaker.value, *setting.value)))
                setting = Setting(value=both, origin=f"{weaker.origin}; {setting.origin}")
            merged[path] = setting
    return merged


def expand_references(
    block: type[Block],
    settings: Mapping[str, Setting],
    env: Environment,
    issues: Issues,
    *,
    drop: bool = False,
) -> dict[str, Setting]:
    """Replace `${NAME}` in keys, headers and addresses.

    A reference to a variable that is not set is a problem: with another key than the one meant, a request
    might go to the wrong place. With `drop` the setting is left out instead, with a warning.
    """
    expanded = dict(settings)
    for path, field in leaves(block):
        if path not in settings or not field.metadata.keys() & {"secret", "url", "of"}:
            continue
        value, origin = given(settings, path)
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
        expanded[path] = Setting(value=value, origin=origin)
        # That of a Redis is checked by `load`.
        is_address = bool(field.metadata.get("url") and value and not missing) and path != "queue.url"
        if is_address and not _ADDRESS.match(value.strip()):
            # It may hold a password, so it is not repeated.
            issues.warn(f"{origin}: not the address of a server, such as http://127.0.0.1:11434/v1")
        if missing and drop:
            del expanded[path]
            issues.warn(f"{origin}: without effect, the variable {', '.join(missing)} is not set")
        for name in () if drop else missing:
            issues.problem(f"{origin}: the variable {name} is not set", f"export {name}=…")
    return expanded


def _expanded(entry: Any, env: Environment, missing: list[str]) -> Any:
    """Replace `${NAME}` in the secrets of an entry of a list."""
    secrets = (each.name for each in type(entry).members.values() if each.metadata.get("secret"))
    return replace(
        entry, **{name: environment.expand(getattr(entry, name), env, missing) for name in secrets}
    )


def adjust(settings: Mapping[str, Setting], issues: Issues) -> dict[str, Setting]:
    """Correct settings that contradict each other, and warn of each."""
    adjusted = dict(settings)
    if "sources" in settings:
        sources, origin = given(settings, "sources")
        allowed, _ = given(settings, "experimental.sessionMemory")
        if "sessions" in sources and not allowed:
            sources = tuple(source for source in sources if source != "sessions")
            issues.warn(f'{origin}: "sessions" is left out until experimental.sessionMemory is true')
        adjusted["sources"] = Setting(value=sources or ("memory",), origin=origin)
    tokens, tokens_origin = given(settings, "chunking.tokens", Chunking().tokens)
    overlap, overlap_origin = given(settings, "chunking.overlap", Chunking().overlap)
    if overlap >= tokens:
        origin = overlap_origin or tokens_origin
        adjusted["chunking.overlap"] = Setting(value=tokens - 1, origin=origin)
        issues.warn(
            f"{origin}: the overlap of {overlap} does not fit into {counted(tokens, 'token')},"
            f" {tokens - 1} is used"
        )
    defaults = {
        "query.hybrid.vectorWeight": Hybrid().vector_weight,
        "query.hybrid.textWeight": Hybrid().text_weight,
    }
    if weights := [settings[path] for path in defaults if path in settings]:
        # One weight alone means that the other is the rest, as with the original's 0.7 and 0.3.
        rest = Setting(value=1 - weights[0].value, origin="default")
        total = sum(settings.get(path, rest).value for path in defaults)
        if total == 0:
            issues.warn(f"{weights[0].origin}: both weights are 0, the defaults are used")
        for path, default in defaults.items():
            weight = settings.get(path, rest)
            adjusted[path] = Setting(value=weight.value / total if total else default, origin=weight.origin)
    return adjusted
