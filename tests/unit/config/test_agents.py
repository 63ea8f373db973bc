"""Which agents there are, whose a workspace is, and where its index stands."""

from pathlib import Path

import pytest

from memline.shared.errors import ConfigError
from tests.unit.config.conftest import memory

TWO = {
    "agents": {
        "defaults": {"workspace": "/w"},
        "list": [{"id": "main"}, {"id": "work", "default": True}, {"id": "lab", "workspace": "/lab"}],
    }
}


@pytest.mark.parametrize("newest", [False, True])
def test_of_two_agents_marked_as_default_the_first_counts(read, newest):
    marked = {"c": {}, "b": {"default": True}, "a": {"default": True}}
    listed = [{"id": agent, **entry} for agent, entry in marked.items()]

    assert read({"agents": {"entries": marked} if newest else {"list": listed}}).default_agent == "b"
    assert read({"agents": {"list": [{"id": "b"}, {"id": "a"}]}}).default_agent == "b"


def test_other_agents_have_a_workspace_beside_the_default_one_unless_it_is_named(read, tmp_path):
    loaded = read(TWO)
    file, agents = loaded.path, loaded.agents

    assert {name: (str(each.workspace), each.workspace_origin) for name, each in agents.items()} == {
        "main": ("/w-main", f"{file}: agents.defaults.workspace"),
        "work": ("/w", f"{file}: agents.defaults.workspace"),
        "lab": ("/lab", f"{file}: agents, lab"),
    }
    by_hand = read(TWO, workspace=tmp_path).agents
    assert [by_hand[each].workspace for each in ("work", "main")] == [tmp_path, Path("/w-main")]
    chosen = read(TWO, workspace=tmp_path, agent="lab")
    assert [(each.agent, each.workspace) for each in chosen.chosen_agents()] == [("lab", tmp_path)]
    assert chosen.agent("work").workspace == Path("/w")


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones(read):
    with pytest.raises(ConfigError) as caught:
        read(TWO, agent="wrok")

    assert "main, work, lab" in caught.value.hint


def test_without_a_list_the_agent_of_the_option_has_the_defaults(read):
    loaded = read(memory(model="m"), agent="work")

    work = loaded.agent()
    assert (work.memory.model, str(work.workspace), work.index_path.name) == ("m", "/w-work", "work.sqlite")
    assert list(loaded.agents) == [loaded.default_agent] == ["work"]


@pytest.mark.parametrize("agent", ["../x", "a/b", "", " ", "-a", "a.b", "ä", "a" * 65])
def test_an_id_that_could_mean_something_in_a_path_is_refused(read, agent):
    with pytest.raises(ConfigError):
        read({"agents": {"list": [{"id": agent}]}})
    if agent:
        with pytest.raises(ConfigError):
            read(memory(), agent=agent)


@pytest.mark.parametrize(
    ("store", "ids", "words"),
    [
        ({}, ("main", "Main"), "another agent 'Main'"),
        ({}, ("main", "main"), "another agent 'main'"),
        ({"path": "/x.sqlite"}, ("a", "b"), "put {agentId} into store.path"),
    ],
)
def test_two_agents_never_share_an_index(read, store, ids, words):
    content = memory(store=store)
    content["agents"]["list"] = [{"id": each} for each in ids]

    with pytest.raises(ConfigError) as caught:
        read(content)

    assert words in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("path", "index"),
    [
        ("", ".local/share/memline/memory/main.sqlite"),
        ("~/{agentId}/{agentId}.sqlite", "main/main.sqlite"),
        ("~/.openclaw/memory/{agentId}.sqlite", ".local/share/memline/memory/main.sqlite"),
        (
            "~/.openclaw/agents/{agentId}/agent/openclaw-agent.sqlite",
            ".local/share/memline/memory/main.sqlite",
        ),
    ],
)
def test_the_index_is_below_home_or_where_the_file_says_but_never_the_originals_own(read, home, path, index):
    loaded = read(memory(store={"path": path}))

    assert loaded.agent().index_path == home / index
    is_originals = ".openclaw" in path and ".openclaw" not in index
    assert any("OpenClaw's own" in each for each in loaded.warnings) == is_originals


def test_paths_of_models_and_extensions_are_made_absolute(read, home, tmp_path):
    keys = {
        "local": {"modelPath": "m.gguf", "modelCacheDir": "~/models"},
        "store": {"vector": {"extensionPath": "/v.so"}},
    }
    local, vector = (own := read(memory(**keys)).agent().memory).local, own.store.vector

    assert (local.model_path, local.model_cache_dir) == (str(tmp_path / "m.gguf"), str(home / "models"))
    assert vector.extension_path == "/v.so"
    named = read(memory(local={"modelPath": "hf:a/b/c.gguf"})).agent()
    assert named.memory.local.model_path == "hf:a/b/c.gguf"
