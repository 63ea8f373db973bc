"""Reading what a flush needs to know of the agent's sessions: windows, time zone, `compaction`.

These blocks are the original's own: keys that Memline does not need are none of its business there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.config.block import Block
from shared.config.check import Leaf, Report, check_leaf, describe, nearest
from shared.config.environment import Environment
from shared.config.keys import block_of, build, members
from shared.config.providers import expanded
from shared.config.roster import member
from shared.config.schema import Compaction, Sessions

#: Where the block is in the file, and the beginning of its keys in `config show`.
COMPACTION = "agents.defaults.compaction"

#: Keys below `compaction` in which references to variables count.
_EXPANDED = ("memoryFlush.baseUrl", "memoryFlush.apiKey", "memoryFlush.headers")


def read_sessions(
    content: Mapping[str, Any], *, where: str, env: Environment, report: Report
) -> dict[str, Leaf]:
    """The leaves found, by dotted path from the root of the file."""
    agents = member(content, "agents", where, report)
    defaults = member(agents, "defaults", f"{where}: agents", report)
    at = f"{where}: agents.defaults"
    found: dict[str, Leaf] = {}
    if (window := defaults.get("contextTokens")) is not None:
        if _is_count(window):
            found["agents.defaults.contextTokens"] = (int(window), f"{at}.contextTokens")
        else:
            report.problem(
                f"{at}.contextTokens: found {describe(window)}, allowed: a whole number from 1",
                "write the size of the model's window in tokens",
            )
    zone = defaults.get("userTimezone")
    if isinstance(zone, str) and zone.strip():
        if _is_zone(zone.strip()):
            found["agents.defaults.userTimezone"] = (zone.strip(), f"{at}.userTimezone")
        else:
            report.warn(f"{at}.userTimezone: {zone!r} is no time zone, the machine's own is used")
    compaction = member(defaults, "compaction", at, report)
    leaves: dict[str, Leaf] = {}
    _walk(Compaction, compaction, f"{where}: {COMPACTION}", "", leaves, report)
    for path, leaf in _with_references(leaves, env, report).items():
        found[f"{COMPACTION}.{path}"] = leaf
    return found


def sessions_of(content: Mapping[str, Any], leaves: Mapping[str, Leaf]) -> Sessions:
    """The same as a value, with the windows of the models that the file knows."""
    prefix = f"{COMPACTION}."
    compaction = {
        path.removeprefix(prefix): value for path, (value, _) in leaves.items() if path.startswith(prefix)
    }
    return Sessions(
        context_tokens=leaves.get("agents.defaults.contextTokens", (Sessions().context_tokens, ""))[0],
        context_windows=_windows(content),
        user_timezone=leaves.get("agents.defaults.userTimezone", ("", ""))[0],
        compaction=build(Compaction, compaction),
    )


def _walk(
    block: type[Block],
    raw: Mapping[str, Any],
    at: str,
    prefix: str,
    found: dict[str, Leaf],
    report: Report,
) -> None:
    known = members(block)
    for name, value in raw.items():
        here = f"{at}.{name}"
        if name not in known:
            # The original has more keys than are of use here; one that looks like ours may be a slip.
            if near := nearest(name, known):
                report.warn(f"{here}: unknown key, without effect (did you mean {near}?)")
        elif (inner := block_of(known[name])) is not None:
            if isinstance(value, dict):
                _walk(inner, value, here, f"{prefix}{name}.", found, report)
            else:
                report.problem(f"{here}: found {describe(value)}, allowed: an object", "write { … } there")
        elif (checked := check_leaf(known[name], value, at=here, report=report)) is not None:
            found[prefix + name] = (checked, here)


def _with_references(leaves: dict[str, Leaf], env: Environment, report: Report) -> dict[str, Leaf]:
    """The leaves with `${NAME}` in address, key and headers replaced."""
    replaced = dict(leaves)
    for path in _EXPANDED:
        if path in leaves:
            value, origin = leaves[path]
            value, missing = expanded(value, env)
            replaced[path] = (value, origin)
            for name in missing:
                report.problem(f"{origin}: the variable {name} is not set", f"export {name}=…")
    return replaced


def _windows(content: Mapping[str, Any]) -> dict[str, int]:
    """`contextWindow` of every model below `models.providers`, by `provider/id` and by id (of several the
    first); what has another shape is left out."""
    windows: dict[str, int] = {}
    models = content.get("models")
    providers = models.get("providers") if isinstance(models, dict) else None
    for name, entry in providers.items() if isinstance(providers, dict) else ():
        listed = entry.get("models") if isinstance(entry, dict) else None
        for model in listed if isinstance(listed, list) else ():
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                window: Any = model.get("contextWindow")
                if _is_count(window):
                    windows[f"{name}/{model['id']}"] = int(window)
                    windows.setdefault(model["id"], int(window))
    return windows


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 1 <= value < 2**31


def _is_zone(name: str) -> bool:
    # Only for those who name one: 3 ms.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
