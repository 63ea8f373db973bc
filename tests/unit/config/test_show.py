from memline.shared.config.show import lines, shown
from tests.unit.config.conftest import Loader, memory


def test_the_merged_configuration_is_shown_in_the_words_of_the_file(read: Loader) -> None:
    scope = {"rules": [{"action": "deny", "match": {"chatType": "dm"}}]}
    content = {**memory(query={"maxResults": 3}, extraPaths=["a"]), "memory": {"scope": scope}}

    answer = shown(read({**content, "queue": {"url": "redis://:pw@h/0"}}))
    (main,) = answer["agents"]

    assert (answer["queue"]["url"], answer["memory"]["citations"]) == ("redis://***@h/0", "auto")
    assert answer["memory"]["scope"]["rules"][0]["match"]["chatType"] == "direct"
    assert (main["memorySearch"]["query"]["maxResults"], main["workspace"]) == (3, "/w")
    assert [each["path"] for each in main["memorySearch"]["extraPaths"]] == ["a"]
    assert any(line.split() == ["agents[0].memorySearch.query.maxResults", "3"] for line in lines(answer))


def test_a_workspace_that_is_not_configured_is_shown_with_the_reason(read: Loader) -> None:
    (main,) = shown(read())["agents"]

    assert main["workspace"] == "(not set)"
    assert main["workspaceOrigin"] == "no workspace is configured, and no folder here has an index"
