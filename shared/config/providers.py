"""Reading `models.providers`, and the `${NAME}` references in keys, headers and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.config import environment
from shared.config.check import Leaf, Report, check_leaf
from shared.config.environment import Environment
from shared.config.keys import build, members
from shared.config.roster import member
from shared.config.schema import ProviderEntry

#: The ids under which the original keeps the providers that Memline can use.
USED = ("openai", "google", "gemini", "voyage", "mistral", "ollama")

#: The keys of `memorySearch` in which references count.
EXPANDED = ("remote.baseUrl", "remote.apiKey", "remote.headers")


def expand_references(leaves: dict[str, Leaf], env: Environment, report: Report) -> dict[str, Leaf]:
    """The leaves with the references in keys, headers and addresses replaced.

    A reference to a variable that is not set is a problem: with another key than the one meant, a request
    might go to the wrong place.
    """
    replaced = dict(leaves)
    for path in EXPANDED:
        if path in leaves:
            value, origin = leaves[path]
            value, missing = expanded(value, env)
            replaced[path] = (value, origin)
            for name in missing:
                report.problem(f"{origin}: the variable {name} is not set", f"export {name}=…")
    return replaced


def read_providers(
    content: Mapping[str, Any], *, where: str, env: Environment, report: Report
) -> dict[str, dict[str, Leaf]]:
    """Address, key and headers of every provider, by id; other keys are the original's own."""
    models = member(content, "models", where, report)
    found: dict[str, dict[str, Leaf]] = {}
    for name, raw in member(models, "providers", f"{where}: models", report).items():
        if isinstance(raw, dict):
            # A fault in an entry that Memline never uses is no business of Memline.
            heard = report if name in USED else Report()
            found[name] = _entry(raw, f"{where}: models.providers.{name}", env, heard)
    return found


def provider_entries(leaves: Mapping[str, Mapping[str, Leaf]]) -> dict[str, ProviderEntry]:
    """The same as values."""
    return {
        name: build(ProviderEntry, {path: value for path, (value, _origin) in entry.items()})
        for name, entry in leaves.items()
    }


def _entry(raw: Mapping[str, Any], at: str, env: Environment, report: Report) -> dict[str, Leaf]:
    leaves: dict[str, Leaf] = {}
    for name, field in members(ProviderEntry).items():
        if name not in raw:
            continue
        here = f"{at}.{name}"
        if isinstance(raw[name], dict) and name == "apiKey":
            report.warn(f"{here}: a reference to a secret store is not read; the environment's key counts")
            continue
        value = check_leaf(field, raw[name], at=here, report=report)
        if value is None:
            continue
        value, missing = expanded(value, env)
        if missing:
            report.warn(f"{here}: without effect, the variable {', '.join(missing)} is not set")
        else:
            leaves[name] = (value, here)
    return leaves


def expanded(value: Any, env: Environment) -> tuple[Any, list[str]]:
    """A text, or texts by name, with the references replaced, and the variables that are not set."""
    if isinstance(value, Mapping):
        missing: list[str] = []
        headers: dict[str, str] = {}
        for name, text in value.items():
            headers[name], absent = environment.expand(text, env)
            missing += absent
        return headers, missing
    if environment.names_provider_key(value):
        value = f"${{{value}}}"
    return environment.expand(value, env)
