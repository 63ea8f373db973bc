"""What is wrong in a configuration is named with its place, and what is allowed there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.load import Loaded, Options, load
from memline.shared.errors import ConfigError

Examiner = Callable[..., Loaded]


@pytest.fixture
def at(home: Path, tmp_path: Path) -> Examiner:
    """Examine a file that has this value at a place, with these variables."""

    def at(place: str = "", value: Any = None, **env: str) -> Loaded:
        content: dict[str, Any] = {"agents": {"defaults": {"workspace": "/w"}}}
        *above, last = place.split(".")
        node = content
        for name in above:
            node = node.setdefault(name, {})
        node[last] = value
        (tmp_path / "c.json5").write_text(json.dumps(content))
        return load(Options(config=tmp_path / "c.json5"), {"HOME": str(home), **env})

    return at


#: Place, value, and words of the problem and its hint.
WRONG: list[tuple[str, Any, str]] = [
    ("agents", [], "agents: found an array"),
    ("agents.defaults", 1, "agents.defaults: found the number 1"),
    ("agents.list", {}, "allowed: an array"),
    ("agents.list", [{}], "id is missing"),
    ("agents.list", ["main"], "agents.list[0]: found a text"),
    ("agents.defaults.workspace", 1, "allowed: text"),
    ("agents.defaults.workspace", "a\ud83d", "workspace: found"),
    ("agents.defaults.memorySearch.extraPaths", ["a\ud83d"], "extraPaths[0].path: found"),
    ("agents.defaults.memorySearch", [], "allowed: an object"),
    ("memorySearch", None, "found null, allowed: an object"),
    ("memory", 1, "memory: found the number 1"),
    ("memory.citations", "always", "allowed: auto, on, off"),
    ("memory.backend", "other", "allowed: builtin, qmd"),
    ("models.providers", 1, "allowed: an object"),
    ("models.providers.openai", "hush", "models.providers.openai: found a text"),
    ("models.providers.openai", {"apiKey": "hush\0"}, "models.providers.openai.apiKey"),
    ("models.providers.openai", {"headers": "hush"}, "models.providers.openai.headers"),
    ("queue", "redis://h", "allowed: an object"),
    ("queue.url", 1, "allowed: text"),
    ("memory.maxInjectedChars", -1, "a whole number"),
    ("memory.maxInjectedChars", "many", "a whole number"),
    ("memory.maxInjectedChars", True, "a whole number"),
    ("memory.maxInjectedChars", 1.5, "a whole number"),
    ("memory.scope", "deny", "allowed: an object"),
    ("memory.scope", {"default": "no"}, "allowed: allow, deny"),
    ("memory.scope", {"rule": []}, "write rules instead"),
    ("memory.scope", {"rules": {}}, "allowed: an array"),
    ("memory.scope", {"rules": [{"match": {}}]}, "scope.rules[0]: action is missing"),
    ("memory.scope", {"rules": [{"action": "allow", "match": {"chattype": "dm"}}]}, "write chatType instead"),
    ("memory.scope", {"rules": [{"action": "allow", "match": {"chatType": "x"}}]}, "direct, group, channel"),
    ("memory.scope", {"rules": [{"action": "allow", "match": {"channel": 7}}]}, "allowed: text"),
    ("memory.scope", {"rules": ["allow"]}, "scope.rules[0]: found a text, allowed: an object"),
    ("serve", [], "allowed: an object"),
    ("serve", {"prot": 1}, "write port instead"),
    ("serve.port", 70_000, "from 0 to 65535"),
    ("serve.token", "short", "at least 8"),
    ("serve.token", "not for a header\n", "not usable as a token"),
    ("serve.token", "${GONE}", "GONE is not set"),
    ("serve.tokens", {"main": "hush-for-both", "work": "hush-for-both"}, "same token"),
    ("serve.tokens", {"../x": "a-good-token"}, "there is no agent '../x'"),
    ("serve.tokens", {"main": ["hush"]}, "serve.tokens.main: found an array, allowed: text"),
    ("memorySearch.extraPaths", "notes", "allowed: an array of texts or { path, pattern } ("),
    ("agents.list", "main", "allowed: an array of { id, default, workspace } ("),
    ("prices", [], "prices: found an array, allowed: an object"),
    ("prices.m", 3, "prices.m: found the number 3"),
    ("prices.m", {"asOf": "2026-11-01"}, "prices.m: perMillion is missing"),
    ("prices.m", {"perMillion": -1}, "prices.m.perMillion: found the number -1"),
    ("prices.m", {"perMillion": "much"}, "prices.m.perMillion"),
    ("prices.m", {"permillion": 1}, "prices.m.permillion: unknown key"),
    ("prices.m", {"perMillion": 1, "asOf": "lately"}, "prices.m.asOf"),
    ("prices.m", {"perMillion": 1, "asOf": "2026-13-01"}, "prices.m.asOf"),
    ("prices.m", {"perMillion": 1, "asOf": "2026-02-31"}, "allowed: a day such as 2026-02-28"),
    ("prices.m", {"perMillion": 1, "asOf": "2026-W09-6"}, "allowed: a day such as 2026-02-28"),
    ("agents.defaults.contextTokens", "many", "agents.defaults.contextTokens: found"),
    ("agents.defaults.contextTokens", 0, "allowed: a whole number from 1"),
    ("agents.defaults.compaction", 5, "agents.defaults.compaction: found the number 5"),
    ("agents.defaults.compaction.memoryFlush", True, "memoryFlush: found true, allowed: an object"),
    ("agents.defaults.compaction.memoryFlush.softThresholdTokens", -1, "softThresholdTokens: found"),
    ("agents.defaults.compaction.memoryFlush.apiKey", "${NOT_SET}", "the variable NOT_SET is not set"),
]


@pytest.mark.parametrize(("place", "value", "said"), WRONG)
def test_a_problem_has_its_place_and_its_hint_and_no_secret(
    at: Examiner, place: str, value: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        at(place, value)

    words = f"{caught.value.message} ({caught.value.hint})"
    assert said in words and caught.value.hint
    assert "hush" not in words


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("$include", "x.json", "$include"),
        ("queue.ulr", "", "write url instead"),
        ("memory.citation", "on", "memory.citation: unknown key, without effect, write citations instead"),
        ("memory.searhc", {}, "write search instead"),
        ("memorysearch", {}, "write memorySearch instead"),
        ("serv", {}, "write serve instead"),
        ("price", {}, "write prices instead"),
        ("agents.lst", [], "write list instead"),
        ("agents.list", [{"id": "main", "worspace": "/w"}], "agents.list[0].worspace: unknown key"),
        ("agents.defaults.memorySerch", {}, "write memorySearch instead"),
        ("models.providers.openai", {"apikey": "hush"}, "models.providers.openai.apikey: unknown key"),
        ("agents.defaults.userTimezone", "Mars/Base", "'Mars/Base' is not a valid time zone"),
        ("agents.defaults.compaction.memoryFlush.softTresholdTokens", 1, "write softThresholdTokens instead"),
    ],
)
def test_what_looks_as_if_it_were_read_gets_a_warning(
    at: Examiner, place: str, value: Any, said: str
) -> None:
    loaded = at(place, value)

    assert any(said in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("", "meta env auth channels messages session gateway mcp"),
        ("agents.defaults", "model models contextPruning contextLimits timeFormat envelopeTimezone sandbox"),
        ("agents.defaults.compaction", "mode reserveTokens keepRecentTokens timeoutSeconds model"),
        ("memory", "search slots"),
        ("models.providers.openai", "auth api authHeader models contextTokens timeoutSeconds"),
    ],
)
def test_keys_of_openclaw_beside_those_that_are_read_get_no_warning(
    at: Examiner, place: str, names: str
) -> None:
    for name in names.split():
        loaded = at(f"{place}.{name}".lstrip("."), {})

        assert loaded.warnings == ()


@pytest.mark.parametrize(
    "url", ["http://h", "localhost:6379", "redis:h", "redis+sentinel://h:26379", "redis+cluster://h"]
)
def test_an_address_of_another_server_is_a_problem_that_does_not_quote_it(at: Examiner, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        at("queue.name", "", MEMLINE_QUEUE_URL=url)

    problem = caught.value
    assert "MEMLINE_QUEUE_URL: not the address of a Redis" in problem.message
    assert url not in problem.message
    assert "neither Sentinel nor Cluster" in f"{problem.message} {problem.hint}"
