"""What is wrong in a configuration is named with its place, the reason, and what to write."""

import json

import pytest

from memline.shared.config.load import Options, load
from memline.shared.errors import ConfigError


@pytest.fixture
def at(home, tmp_path):
    """Load a file that has this value at a place, with these variables."""

    def at(place, value, name="c.json5", **env):
        content = {"agents": {"defaults": {"workspace": "/w"}}}
        *above, last = place.split(".")
        node = content
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
        (tmp_path / name).write_text(json.dumps(content))
        return load(Options(config=tmp_path / name), {"HOME": str(home), **env})

    return at


MEMORY = "agents.defaults.memorySearch"
#: Place, value, the place that the message names, and other words of it or of its hint.
WRONG = [
    ("agents", [], "agents", "expected an object"),
    ("agents.list", {}, "agents.list", "expected a list"),
    ("agents.default", {"workspace": "/w"}, "agents.default", "write defaults instead"),
    ("agents.list", [{}], "agents.list[0]", "id is missing"),
    ("agents.list", ["main"], "agents.list[0]", "expected an object"),
    ("agents.defaults.workspace", 1, "agents.defaults.workspace", "expected a text"),
    ("agents.defaults.workspace", "a\ud83d", "agents.defaults.workspace", "without NUL"),
    ("agents.defaults.contextTokens", 0, "agents.defaults.contextTokens", ">= 1"),
    (MEMORY, None, MEMORY, "expected an object"),
    (f"{MEMORY}.query", {"maxResult": 3}, f"{MEMORY}.query.maxResult", "write maxResults instead"),
    (f"{MEMORY}.query", {"max_results": 3}, f"{MEMORY}.query.max_results", "write maxResults instead"),
    (f"{MEMORY}.zzzqqq", 1, f"{MEMORY}.zzzqqq", "remove agents"),
    (f"{MEMORY}.multimodal", {"enabled": True}, f"{MEMORY}.multimodal", "unknown key"),
    (f"{MEMORY}.enabled", 1, f"{MEMORY}.enabled", "expected true or false"),
    (f"{MEMORY}.chunking", {"tokens": True}, f"{MEMORY}.chunking.tokens", "a whole number"),
    (f"{MEMORY}.chunking", {"tokens": 1.5}, f"{MEMORY}.chunking.tokens", "a whole number"),
    (f"{MEMORY}.chunking", {"tokens": 10**30}, f"{MEMORY}.chunking.tokens", "<= 2147483647"),
    (f"{MEMORY}.query", {"minScore": float("nan")}, f"{MEMORY}.query.minScore", ">= 0.0"),
    (f"{MEMORY}.query", {"minScore": 2}, f"{MEMORY}.query.minScore", "<= 1"),
    (f"{MEMORY}.provider", "opnai", f"{MEMORY}.provider", "write openai instead"),
    (f"{MEMORY}.provider", ["openai"], f"{MEMORY}.provider", "expected a text"),
    (f"{MEMORY}.sources", ["session"], f"{MEMORY}.sources[0]", "write sessions instead"),
    (f"{MEMORY}.transcripts", ["claude_code"], f"{MEMORY}.transcripts[0]", "write claude-code instead"),
    (f"{MEMORY}.extraPaths", "x", f"{MEMORY}.extraPaths", "expected a list"),
    (f"{MEMORY}.extraPaths", [{"path": 7}], f"{MEMORY}.extraPaths[0].path", "expected a text"),
    (f"{MEMORY}.remote", {"headers": {"a": "hush\r\nc: d"}}, f"{MEMORY}.remote.headers.a", "one line"),
    (f"{MEMORY}.remote", {"apiKey": "${NOT_THERE}"}, f"{MEMORY}.remote.apiKey", "export NOT_THERE="),
    ("memory.backend", "other", "memory.backend", "expected builtin, qmd"),
    ("memory.scope", {"default": "no"}, "memory.scope.default", "expected allow, deny"),
    ("memory.scope", {"rule": []}, "memory.scope.rule", "write rules instead"),
    ("memory.scope", {"rules": [{"match": {}}]}, "memory.scope.rules[0]", "action is missing"),
    ("memory.qmd", {"update": {"interval": "soon"}}, "memory.qmd.update.interval", "a number"),
    ("models.providers", {"openai": "hush"}, "models.providers.openai", "expected an object"),
    ("models.providers", {"openai": {"apiKey": "hush\0"}}, "models.providers.openai.apiKey", "one line"),
    ("queue.ulr", "", "queue.ulr", "write url instead"),
    ("serve.port", 70_000, "serve.port", "<= 65535"),
    ("serve.token", "short", "serve.token", "at least 8"),
    ("serve.allowedHosts", ["https://a.b"], "serve.allowedHosts[0]", "without scheme and port"),
    ("serve.allowedHosts", ["127.0.0.1:80"], "serve.allowedHosts[0]", "without scheme and port"),
    ("serve.tokens", {"main": "hush-for-both", "work": "hush-for-both"}, "serve", "two tokens are the same"),
    ("serve.tokens", {"main": ["hush"]}, "serve.tokens.main", "expected a text"),
    ("prices.m", {"perMillion": -1}, "prices.m.perMillion", ">= 0"),
    ("prices.m", {}, "prices.m", "perMillion is missing"),
]


@pytest.mark.parametrize(("place", "value", "named", "words"), WRONG)
def test_a_mistake_has_its_place_and_its_hint_and_no_secret(at, place, value, named, words):
    with pytest.raises(ConfigError) as caught:
        at(place, value)

    text = f"{caught.value.message} ({caught.value.hint})"
    assert f"c.json5: {named}: " in text and words in text and caught.value.hint
    assert "hush" not in text


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("$include", "x.json", "$include: not followed"),
        ("memory.citation", "on", "memory.citation: unknown key, without effect, write citations instead"),
        ("serv", {}, "write serve instead"),
        ("agents.list", [{"id": "main", "worspace": "/w"}], "agents.list[0].worspace: unknown key"),
        ("agents.defaults.memorySerch", {}, "write memorySearch instead"),
        ("agents.defaults.userTimezone", "Mars/Base", "'Mars/Base' is not a valid time zone"),
    ],
)
def test_what_looks_as_if_it_were_read_is_a_warning(at, place, value, words):
    assert any(words in warning for warning in at(place, value).warnings)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("", "meta env auth channels messages session gateway mcp"),
        ("agents.defaults", "model models contextPruning contextLimits timeFormat envelopeTimezone sandbox"),
        ("agents.defaults.compaction", "mode reserveTokens keepRecentTokens timeoutSeconds model"),
        ("memory", "slots"),
        ("models.providers.openai", "auth api authHeader models contextTokens timeoutSeconds"),
    ],
)
def test_keys_of_openclaw_beside_those_that_are_read_are_ignored(at, place, names):
    for name in names.split():
        # Its own secrets are not looked for, either.
        assert at(f"{place}.{name}".lstrip("."), {"token": "${NOT_THERE}"}).warnings == ()


def test_in_openclaws_own_file_unknown_keys_are_ignored_and_numbers_brought_into_range(at):
    search = {"chunking": {"tokens": 0}, "query": {"minScore": 7, "tomorrow": 1}, "multimodal": {}}

    loaded = at(MEMORY, search, name="openclaw.json")

    memory = loaded.agent().memory
    assert (memory.chunking.tokens, memory.query.min_score) == (1, 1.0)
    assert {warning.partition("memorySearch.")[2].partition(":")[0] for warning in loaded.warnings} == {
        "chunking.tokens",
        "query.minScore",
        "query.tomorrow",
        "multimodal",
    }
    with pytest.raises(ConfigError, match="chattype: unknown key"):
        rule = {"action": "allow", "match": {"chattype": "dm"}}
        at("memory.scope", {"default": "deny", "rules": [rule]}, name="openclaw.json")


@pytest.mark.parametrize("url", ["http://h", "localhost:6379", "redis:h", "redis+sentinel://h:26379"])
def test_an_address_of_another_server_is_not_quoted(at, url):
    with pytest.raises(ConfigError) as caught:
        at("queue.name", "", MEMLINE_QUEUE_URL=url)

    assert "MEMLINE_QUEUE_URL: expected redis://HOST:6379/0" in caught.value.message
    assert url not in caught.value.message and "neither Sentinel nor Cluster" in caught.value.message
    with pytest.raises(ConfigError, match="MEMLINE_QUEUE_NAME: expected up to 64 letters"):
        at("queue.url", "redis://h", MEMLINE_QUEUE_NAME="a:b")
