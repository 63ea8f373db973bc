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


def test_the_default_agent_is_the_marked_one_else_the_first(read):
    assert read(TWO).settings.default_agent == "work"
    assert read({"agents": {"list": [{"id": "b"}, {"id": "a"}]}}).settings.default_agent == "b"


@pytest.mark.parametrize("newest", [False, True])
def test_of_two_agents_marked_as_default_the_first_counts_and_the_other_is_told(read, newest):
    marked = {"b": {"default": True}, "a": {"default": True}, "c": {"default": False}}
    listed = [{"id": agent, **entry} for agent, entry in marked.items()]

    loaded = read({"agents": {"entries": marked} if newest else {"list": listed}})

    assert loaded.settings.default_agent == "b"
    assert loaded.warnings == (
        f"{loaded.settings.path}: agents: a is marked as the default agent, and b is it",
    )


def test_other_agents_get_a_workspace_beside_the_default_one(read):
    loaded = read(TWO)

    assert {name: agent.workspace for name, agent in loaded.settings.agents.items()} == {
        "main": Path("/w-main"),
        "work": Path("/w"),
        "lab": Path("/lab"),
    }


def test_a_workspace_says_where_it_comes_from(read):
    loaded = read(TWO)
    origins = {name: agent.workspace_origin for name, agent in loaded.settings.agents.items()}

    file = loaded.settings.path
    assert origins == {
        "main": f"{file}: agents.defaults.workspace",
        "work": f"{file}: agents.defaults.workspace",
        "lab": f"{file}: agents, lab",
    }


def test_a_workspace_named_by_hand_is_the_default_agents(read, tmp_path):
    loaded = read(TWO, workspace=tmp_path)

    assert loaded.agent("work").workspace == tmp_path
    assert loaded.agent("main").workspace == Path("/w-main")
    assert loaded.agent("lab").workspace == Path("/lab")


def test_a_workspace_named_by_hand_is_the_chosen_agents(read, tmp_path):
    loaded = read(TWO, workspace=tmp_path, agent="lab")

    assert loaded.agent().workspace == tmp_path
    assert [agent.agent for agent in loaded.agents()] == ["lab"]
    assert loaded.agent("work").workspace == Path("/w")


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones(read):
    with pytest.raises(ConfigError) as caught:
        read(TWO, agent="wrok")

    assert "main, work, lab" in caught.value.hint
    with pytest.raises(KeyError):
        read(TWO).settings.agents["wrok"]


def test_without_a_list_any_valid_id_has_the_defaults(read):
    loaded = read(memory(model="m"), agent="work")

    assert loaded.agent().memory.model == "m"
    assert loaded.agent().workspace == Path("/w-work")
    assert loaded.agent().index_path.name == "work.sqlite"
    assert list(loaded.settings.agents) == [loaded.settings.default_agent] == ["work"]


def test_without_a_list_a_worker_is_given_any_agent_it_is_sent(read):
    agents = read(memory()).settings.agents

    assert agents["work"].workspace == Path("/w-work")
    assert "work" in agents
    assert "../work" not in agents
    with pytest.raises(KeyError):
        agents["../work"]


@pytest.mark.parametrize("agent", ["../x", "a/b", "", " ", "-a", "a.b", "ä", "a" * 65])
def test_an_id_that_could_mean_something_in_a_path_is_refused(read, agent):
    with pytest.raises(ConfigError):
        read({"agents": {"list": [{"id": agent}]}})
    if agent:
        with pytest.raises(ConfigError):
            read(memory(), agent=agent)


def test_ids_that_differ_in_case_alone_are_refused(read):
    with pytest.raises(ConfigError, match="another agent 'Main'"):
        read({"agents": {"list": [{"id": "main"}, {"id": "Main"}]}})


def test_the_index_is_below_home(read):
    assert read(memory(), home=Path("/h")).agent().index_path == Path("/h/memory/main.sqlite")


def test_store_path_expands_home_and_agent_id(read, home):
    loaded = read(memory(store={"path": "~/{agentId}/{agentId}.sqlite"}))

    assert loaded.agent().index_path == home / "main" / "main.sqlite"


def test_two_agents_never_share_an_index(read):
    content = memory(store={"path": "/x.sqlite"})
    content["agents"]["list"] = [{"id": "a"}, {"id": "b"}]

    with pytest.raises(ConfigError) as caught:
        read(content)

    assert "{agentId}" in caught.value.hint


@pytest.mark.parametrize(
    "path",
    ["~/.openclaw/memory/{agentId}.sqlite", "~/.openclaw/agents/{agentId}/agent/openclaw-agent.sqlite"],
)
def test_the_originals_own_index_is_left_to_it(read, home, path):
    loaded = read(memory(store={"path": path}))

    assert loaded.agent().index_path == home / ".local/share/memline/memory/main.sqlite"
    assert "OpenClaw's own index" in loaded.warnings[0]


def test_paths_of_models_and_extensions_are_made_absolute(read, home, tmp_path):
    agent = read(
        memory(
            local={"modelPath": "m.gguf", "modelCacheDir": "~/models"},
            store={"vector": {"extensionPath": "/v.so"}},
        )
    ).agent()

    assert agent.memory.local.model_path == str(tmp_path / "m.gguf")
    assert agent.memory.local.model_cache_dir == str(home / "models")
    assert agent.memory.store.vector.extension_path == "/v.so"
    named = read(memory(local={"modelPath": "hf:a/b/c.gguf"})).agent()
    assert named.memory.local.model_path == "hf:a/b/c.gguf"
