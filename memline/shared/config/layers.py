"""Merge the layers of one agent's `memorySearch`, replace references, and adjust dependent values.

A later layer replaces single settings of an earlier one; `sources` and `headers` are replaced as a whole.
Only `extraPaths` and `exclude` add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memline.shared.config import environment
from memline.shared.config.check import Issues
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Block, Setting, leaves
from memline.shared.config.schema import Chunking, Hybrid


def merge(layers: Iterable[Mapping[str, Setting]]) -> dict[str, Setting]:
    """Merge the layers, the weakest first."""
    merged: dict[str, Setting] = {}
    for layer in layers:
        for path, setting in layer.items():
            if path in ("extraPaths", "exclude") and path in merged:
                weaker = merged[path]
                both = tuple(dict.fromkeys((*weaker.value, *setting.value)))
                setting = Setting(both, f"{weaker.origin}; {setting.origin}")
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
        if path not in settings or not field.metadata.keys() & {"secret", "url"}:
            continue
        value, origin = settings[path]
        missing: list[str] = []
        if isinstance(value, Mapping):
            value = {name: environment.expand(text, env, missing) for name, text in value.items()}
        elif path.endswith("apiKey") and any(value in names for names in environment.PROVIDER_KEYS.values()):
            # The name of a key's variable, written in the place of the key.
            value = environment.expand(f"${{{value}}}", env, missing)
        else:
            value = environment.expand(value, env, missing)
        expanded[path] = Setting(value, origin)
        if missing and drop:
            del expanded[path]
            issues.warn(f"{origin}: without effect, the variable {', '.join(missing)} is not set")
        for name in () if drop else missing:
            issues.problem(f"{origin}: the variable {name} is not set", f"export {name}=…")
    return expanded


def adjust(settings: Mapping[str, Setting], issues: Issues) -> dict[str, Setting]:
    """Correct settings that contradict each other, and warn of each."""
    adjusted = dict(settings)
    if "sources" in settings:
        sources, origin = settings["sources"]
        allowed, _ = settings.get("experimental.sessionMemory", (False, ""))
        if "sessions" in sources and not allowed:
            sources = tuple(source for source in sources if source != "sessions")
            issues.warn(f'{origin}: "sessions" is left out until experimental.sessionMemory is true')
        adjusted["sources"] = Setting(sources or ("memory",), origin)
    tokens, tokens_origin = settings.get("chunking.tokens", (Chunking.tokens, ""))
    overlap, overlap_origin = settings.get("chunking.overlap", (Chunking.overlap, ""))
    if overlap >= tokens:
        origin = overlap_origin or tokens_origin
        adjusted["chunking.overlap"] = Setting(tokens - 1, origin)
        issues.warn(
            f"{origin}: the overlap of {overlap} does not fit into {tokens} tokens, {tokens - 1} is used"
        )
    defaults = {
        "query.hybrid.vectorWeight": Hybrid.vector_weight,
        "query.hybrid.textWeight": Hybrid.text_weight,
    }
    if weights := [settings[path] for path in defaults if path in settings]:
        # One weight alone means that the other is the rest, as with the original's 0.7 and 0.3.
        rest = Setting(1 - weights[0].value, "default")
        total = sum(settings.get(path, rest).value for path in defaults)
        if total == 0:
            issues.warn(f"{weights[0].origin}: both weights are 0, the defaults are used")
        for path, default in defaults.items():
            weight = settings.get(path, rest)
            adjusted[path] = Setting(weight.value / total if total else default, weight.origin)
    return adjusted
