"""Reading the settings of `faces.py`: `serve`, `memory.scope` and `memory.maxInjectedChars`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.config import environment
from shared.config.check import Leaf, Report, check_block, check_leaf, describe, nearest
from shared.config.environment import Environment
from shared.config.faces import ChatLimits, ChatRule, ChatScope, Serve
from shared.config.keys import build, members
from shared.config.roster import Roster

#: What a rule may name; `channel` and the rest stand below `match`.
_MATCH = ("channel", "chatType", "keyPrefix", "rawKeyPrefix")

#: What else a chat between two is called.
_DIRECT = ("dm", "private")

#: Characters of a token at least.
_SHORTEST_TOKEN = 8


def read_scope(memory: Mapping[str, Any], *, where: str, report: Report) -> Leaf:
    """`memory.scope`, else that of `memory.qmd` when it counts; (None, "default") when there is none."""
    if "scope" in memory:
        at = f"{where}: memory.scope"
        return _scope(memory["scope"], at, report), at
    qmd = _qmd(memory)
    if "scope" in qmd:
        at = f"{where}: memory.qmd.scope"
        return _scope(qmd["scope"], at, report), at
    return None, "default"


def read_max_injected_chars(memory: Mapping[str, Any], *, where: str, report: Report) -> Leaf:
    """`memory.maxInjectedChars`, else that of `memory.qmd.limits`; 0 for no limit."""
    limits = _qmd(memory).get("limits", {})
    for holder, at in ((memory, "memory"), (limits, "memory.qmd.limits")):
        if isinstance(holder, dict) and "maxInjectedChars" in holder:
            here = f"{where}: {at}.maxInjectedChars"
            field = members(ChatLimits)["maxInjectedChars"]
            found = check_leaf(field, holder["maxInjectedChars"], at=here, report=report)
            return found or 0, here
    return 0, "default"


def read_serve(
    content: Mapping[str, Any], *, where: str, env: Environment, roster: Roster, report: Report
) -> dict[str, Leaf]:
    """The leaves of `serve` that are set, the token of the environment among them."""
    leaves: dict[str, Leaf] = {}
    if "serve" in content:
        leaves = check_block(Serve, content["serve"], at=f"{where}: serve", report=report)
    for name in ("token", "tokens"):
        if name in leaves:
            leaves[name] = _expanded(leaves[name], env, report)
    if variable := environment.value(env, environment.SERVE_TOKEN):
        leaves["token"] = variable, environment.SERVE_TOKEN
    _check_tokens(leaves, roster, report)
    return leaves


def serve_of(leaves: Mapping[str, Leaf]) -> Serve:
    """The same as a value."""
    return build(Serve, {path: found for path, (found, _origin) in leaves.items()})


def _qmd(memory: Mapping[str, Any]) -> Mapping[str, Any]:
    qmd = memory.get("qmd", {})
    return qmd if memory.get("backend") == "qmd" and isinstance(qmd, dict) else {}


def _scope(raw: object, at: str, report: Report) -> ChatScope | None:
    if not isinstance(raw, dict):
        report.problem(f"{at}: found {describe(raw)}, allowed: an object", "write { default, rules } there")
        return None
    for name in raw.keys() - {"default", "rules"}:
        _unknown(name, ("default", "rules"), f"{at}.{name}", report)
    default = "allow"
    if "default" in raw:
        checked = check_leaf(members(ChatScope)["default"], raw["default"], at=f"{at}.default", report=report)
        # What was meant to keep somebody out must not let him in because of a slip of the pen.
        default = checked or "deny"
    rules = raw.get("rules", [])
    if not isinstance(rules, list):
        report.problem(f"{at}.rules: found {describe(rules)}, allowed: an array", "write [ … ] there")
        rules = []
    read = (_rule(rule, f"{at}.rules[{number}]", report) for number, rule in enumerate(rules))
    return ChatScope(default=default, rules=tuple(rule for rule in read if rule is not None))


def _rule(raw: object, at: str, report: Report) -> ChatRule | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("match", {}), dict):
        report.problem(f"{at}: found {describe(raw)}, allowed: {{ action, match }}", "correct the rule")
        return None
    match = raw.get("match", {})
    for name in raw.keys() - {"action", "match"}:
        _unknown(name, ("action", "match"), f"{at}.{name}", report)
    for name in match.keys() - set(_MATCH):
        _unknown(name, _MATCH, f"{at}.match.{name}", report)
    if "action" not in raw:
        report.problem(f"{at}: a rule needs an action", 'write action: "allow" or "deny"')
        return None
    given: dict[str, Any] = {"action": raw["action"]}
    for name in _MATCH:
        if match.get(name) is not None:
            text = match[name]
            given[name] = "direct" if name == "chatType" and text in _DIRECT else text
    values: dict[str, Any] = {}
    for name, found in given.items():
        here = f"{at}.action" if name == "action" else f"{at}.match.{name}"
        checked = check_leaf(members(ChatRule)[name], found, at=here, report=report)
        if checked is None:
            return None
        values[name] = checked if name == "action" else checked.lower()
    return build(ChatRule, values)


def _unknown(name: str, known: tuple[str, ...], at: str, report: Report) -> None:
    near = nearest(name, dict.fromkeys(known))
    report.problem(f"{at}: unknown key", f"did you mean {near}?" if near else f"one of {', '.join(known)}")


def _expanded(leaf: Leaf, env: Environment, report: Report) -> Leaf:
    found, origin = leaf
    missing: list[str] = []
    if isinstance(found, Mapping):
        texts = {name: environment.expand(text, env) for name, text in found.items()}
        found = {name: text for name, (text, _absent) in texts.items()}
        missing += [absent for _text, gone in texts.values() for absent in gone]
    else:
        found, missing = environment.expand(found, env)
    for name in missing:
        report.problem(f"{origin}: the variable {name} is not set", f"export {name}=…")
    return found, origin


def _check_tokens(leaves: Mapping[str, Leaf], roster: Roster, report: Report) -> None:
    token, token_origin = leaves.get("token", ("", ""))
    tokens, origin = leaves.get("tokens", ({}, ""))
    named = [(token_origin, token)] if token else []
    for agent, text in tokens.items():
        if not roster.has(agent):
            known = ", ".join(roster.ids)
            report.problem(f"{origin}: there is no agent {agent!r}", f"one of: {known}")
        named.append((f"{origin}.{agent}", text))
    seen: set[str] = set()
    for here, text in named:
        if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
            report.problem(
                f"{here}: not usable as a token",
                f"at least {_SHORTEST_TOKEN} visible ASCII characters: openssl rand -hex 24",
            )
        if text in seen:
            report.problem(f"{here}: another entry has the same token", "give each its own")
        seen.add(text)
