import pytest

from memline.producers.api.calls import digest

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_the_keys_are_the_same_with_and_without_an_index(place):
    without = place.report()
    place.index()
    indexed = place.report()

    assert without["status"].keys() == indexed["status"].keys()
    assert without["status"]["vector"].keys() == indexed["status"]["vector"].keys()
    assert (without["status"]["dirty"], indexed["status"]["dirty"]) == (True, False)
    assert without["scan"]["totalFiles"] == 1
    assert indexed["status"]["sourceCounts"] == [{"source": "memory", "files": 1, "chunks": 1}]


def test_an_index_that_cannot_be_read_is_an_error_with_what_to_do(place):
    place.index()
    place.index_path.write_bytes(b"this is not a database " * 1_000)

    status = place.report()["status"]

    assert "is damaged" in status["error"]
    assert status["action"].startswith("memline index")
    assert status["files"] == 0


def test_the_digest_for_an_agent_says_what_is_behind_and_what_to_do(place):
    before = digest(place.agent, place.report())
    place.index()
    after = digest(place.agent, place.report())

    assert before["warning"] == f"nothing is indexed yet, {place.index_path} is missing"
    assert before["action"].startswith("memline index")
    assert (after["warning"], after["mode"], after["stale"]) == ("", "keyword", False)
