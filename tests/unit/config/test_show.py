from memline.shared.config.keys import Setting, leaves
from memline.shared.config.schema import ConfigFile, MemorySearch
from memline.shared.config.show import keys_of_file, shown_for_agent, shown_for_all
from tests.unit.config.conftest import Loader, memory


def test_every_key_is_shown_with_its_value_and_origin(read: Loader) -> None:
    loaded = read({**memory(query={"maxResults": 3}), "queue": {"url": "redis://:pw@h/0"}})

    for_all, for_main = shown_for_all(loaded), shown_for_agent(loaded, "main")

    file = loaded.settings.path
    assert {path for path, _ in leaves(ConfigFile)} <= for_all.keys()
    assert {f"memorySearch.{path}" for path, _ in leaves(MemorySearch)} <= for_main.keys()
    assert for_all["queue.url"] == Setting(value="redis://***@h/0", origin=f"{file}: queue.url")
    assert for_all["memory.citations"] == Setting(value="auto", origin="default")
    assert for_main["memorySearch.query.maxResults"] == Setting(
        value=3, origin=f"{file}: agents.defaults.memorySearch.query.maxResults"
    )


def test_a_scope_and_extra_paths_are_shown_in_the_words_of_the_file(read: Loader) -> None:
    scope = {"rules": [{"action": "deny", "match": {"chatType": "dm"}}]}
    loaded = read({**memory(extraPaths=["a"]), "memory": {"scope": scope}})

    assert shown_for_all(loaded)["memory.scope"].value["rules"][0]["match"]["chatType"] == "direct"
    assert shown_for_agent(loaded, "main")["memorySearch.extraPaths"].value == [
        {"path": "a", "pattern": "**/*.{md,markdown,mdown,mkd,mdx,qmd}"}
    ]


def test_a_workspace_that_is_not_configured_is_shown_with_the_reason(read: Loader) -> None:
    assert shown_for_agent(read(), "main")["workspace"] == Setting(
        value="(not set)", origin="no workspace is configured, and no folder here has an index"
    )


def test_the_keys_with_an_effect_are_those_of_the_file_that_are_read(read: Loader) -> None:
    loaded = read({**memory(model="m"), "channels": {}, "memory": {"citations": "on", "other": 1}})

    assert keys_of_file(loaded) == {
        "agents.defaults.memorySearch.model",
        "agents.defaults.workspace",
        "memory.citations",
    }
