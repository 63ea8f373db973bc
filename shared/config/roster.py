"""Which agents there are: `agents.defaults` and `agents.list` of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.config.check import Leaf, Report, check_block, describe
from shared.config.schema import MemorySearch
from shared.errors import ConfigError

MAIN = "main"

#: An id becomes part of file names, so it holds nothing that means something in a path.
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Roster:
    """The agents of one configuration, with what each says of itself."""

    #: Ids in the order of the file; `main` alone when the file lists none.
    ids: tuple[str, ...] = (MAIN,)
    default: str = MAIN
    #: False: the file has no `agents.list`, and any valid id has the defaults.
    listed: bool = False
    default_workspace: Leaf | None = None
    workspaces: Mapping[str, Leaf] = field(default_factory=dict)
    #: `memorySearch` of the defaults and of each agent, by dotted path.
    defaults: Mapping[str, Leaf] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Leaf]] = field(default_factory=dict)

    def demand(self, agent: str) -> str:
        """The id itself when there is such an agent; else an error that lists those there are."""
        if not is_agent_id(agent):
            raise ConfigError(
                f"{agent!r} is no agent id",
                hint="an id has up to 64 letters, digits, - and _, and begins with a letter or digit",
            )
        if not self.has(agent):
            raise ConfigError(
                f"there is no agent {agent!r} in agents.list", hint=f"one of: --agent {', '.join(self.ids)}"
            )
        return agent

    def has(self, agent: str) -> bool:
        """Whether there is such an agent."""
        return agent in self.ids if self.listed else is_agent_id(agent)


def is_agent_id(text: str) -> bool:
    """Whether the text may name an agent."""
    return _AGENT_ID.fullmatch(text) is not None


def read_roster(content: Mapping[str, Any], *, where: str, report: Report) -> Roster:
    """The roster of a file's content; `where` names the file."""
    agents = member(content, "agents", where, report)
    defaults = member(agents, "defaults", f"{where}: agents", report)
    entries = agents.get("list")
    here = f"{where}: agents"
    leaves = (
        check_block(MemorySearch, defaults["memorySearch"], at=f"{here}.defaults.memorySearch", report=report)
        if "memorySearch" in defaults
        else {}
    )
    workspace = _workspace(defaults, f"{here}.defaults", report)
    if entries is not None and not isinstance(entries, list):
        report.problem(f"{here}.list: found {describe(entries)}, allowed: an array", "write [ … ] there")
    if not isinstance(entries, list) or not entries:
        return Roster(default_workspace=workspace, defaults=leaves)
    return _listed(entries, workspace, leaves, f"{here}.list", report)


def _listed(
    entries: list[Any], workspace: Leaf | None, defaults: Mapping[str, Leaf], here: str, report: Report
) -> Roster:
    ids: list[str] = []
    default = ""
    workspaces: dict[str, Leaf] = {}
    overrides: dict[str, Mapping[str, Leaf]] = {}
    for number, entry in enumerate(entries):
        at = f"{here}[{number}]"
        agent = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(agent, str) or not is_agent_id(agent):
            report.problem(
                f"{at}: an entry needs an id of letters, digits, - and _",
                'write {id: "main", …}',
            )
            continue
        # Ids become file names, and some file systems take upper and lower case for the same.
        if agent.casefold() in (known.casefold() for known in ids):
            report.problem(f"{at}.id: there is another agent {agent!r}", "give each agent its own id")
            continue
        ids.append(agent)
        if entry.get("default") is True and not default:
            default = agent
        if own := _workspace(entry, at, report):
            workspaces[agent] = own
        if "memorySearch" in entry:
            overrides[agent] = check_block(
                MemorySearch, entry["memorySearch"], at=f"{at}.memorySearch", report=report
            )
    return Roster(
        ids=tuple(ids) or (MAIN,),
        default=default or (ids[0] if ids else MAIN),
        listed=True,
        default_workspace=workspace,
        workspaces=workspaces,
        defaults=defaults,
        overrides=overrides,
    )


def member(content: Mapping[str, Any], name: str, where: str, report: Report) -> Mapping[str, Any]:
    """An object of the file; an empty one when it is absent or, with a problem reported, something else."""
    found = content.get(name, {})
    if isinstance(found, dict):
        return found
    at = f"{where}.{name}" if ": " in where else f"{where}: {name}"
    report.problem(f"{at}: found {describe(found)}, allowed: an object", "write { … } there")
    return {}


def _workspace(entry: Mapping[str, Any], at: str, report: Report) -> Leaf | None:
    named = entry.get("workspace")
    if named is None:
        return None
    if not isinstance(named, str) or "\0" in named:
        report.problem(f"{at}.workspace: found {describe(named)}, allowed: a path", "write a path as text")
        return None
    return (named.strip(), f"{at}.workspace") if named.strip() else None
