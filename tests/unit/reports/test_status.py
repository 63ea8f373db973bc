import pytest

from memline.producers.memory import digest
from memline.producers.reports.status import left_out_files
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_the_keys_are_the_same_with_and_without_an_index(place):
    without = place.report()
    place.index()
    indexed = place.report()

    assert without["status"].keys() == indexed["status"].keys()
    assert without["status"]["vector"].keys() | {"table"} == indexed["status"]["vector"].keys()
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


def test_deep_says_that_nothing_embeds_and_why(place):
    place.configure(provider="openai")

    probe = place.report(deep=True)["embeddingProbe"]

    assert not probe["ok"]
    assert "No API key" in probe["error"]
    assert "OPENAI_API_KEY" in probe["action"]


def test_files_that_are_left_out_are_named_with_the_reason(place):
    assert left_out_files(place.agent) == []
    place.write("memory/binary.md", b"\0\1\2")
    place.index()

    (file,) = left_out_files(place.agent)

    assert file["path"] == "memory/binary.md"
    assert file["reason"]


def test_the_digest_for_an_agent_says_what_is_behind_and_what_to_do(place):
    before = digest(place.agent, place.report())
    place.index()
    after = digest(place.agent, place.report())

    assert before["warning"] == f"nothing is indexed yet, {place.index_path} is missing"
    assert before["action"].startswith("memline index")
    assert (after["warning"], after["mode"], after["stale"]) == ("", "keyword", False)


def test_the_digest_names_a_provider_that_cannot_be_used(place):
    place.configure(provider="voyage")

    assert "voyage" in digest(place.agent, place.report())["warning"].lower()


def test_the_cache_is_what_no_chunk_needs_any_more(place):
    writer = IndexWriter.of(place.agent)
    writer.retarget(MODEL_A)
    for number, text in enumerate(("apples", "pears")):
        writer.store_file(file_row("a.md", text, at=number + 1))
        answer(writer, lease_all(writer))
    writer.close()

    cache = place.report()["status"]["cache"]

    assert (cache["entries"], cache["cached"]) == (2, 1)
