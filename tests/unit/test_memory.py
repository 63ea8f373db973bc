"""`from memline import Memory`: what a Python program gets."""

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import memline
from memline import Answer, MemlineError, Memory
from memline.shared.errors import BadRequest, ConfigError
from tests.support.process import ROOT

#: As of a text that was cut within an emoji.
HALF = "a\ud83d"


@pytest.fixture
def notes(tmp_path):
    notes = tmp_path / "notes"
    (notes / "memory").mkdir(parents=True)
    (notes / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (notes / "memory" / "2026-02-10.md").write_text("Deploy failed with ERR_CONN_42.\n")
    return notes


@pytest.fixture
def memory(notes, tmp_path):
    return Memory(notes, home=tmp_path / "home")


def test_importing_the_package_loads_nothing_of_it():
    code = "import memline, sys; print([name for name in sys.modules if name.startswith('memline.')])"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ran.stdout.strip() == "[]"


def test_the_public_names_are_listed_and_others_are_an_attribute_error():
    assert {"Memory", "MemlineError", "Answer", "Hit"} <= set(memline.__all__) <= set(dir(memline))
    assert all(hasattr(memline, name) for name in memline.__all__)
    with pytest.raises(AttributeError, match="no attribute 'memory_of'"):
        memline.memory_of  # noqa: B018


@pytest.mark.parametrize(
    ("text", "word", "cited"),
    [
        ("begin " + " ".join(f"word{at}" for at in range(9000)) + " end\nnext\n", "word7500", "#L1C"),
        (f"{'much ' * 7000} zanzibar {'more ' * 50}\nend\n", "zanzibar", "#L1C"),
        ("开始" + "".join(f"第{at}号会议记录" for at in range(5000)), "第4500号", "#L1C"),
        ("---\nowner: Kilroyson\n---\n\nIt was here.\n", "Kilroyson", "#L1-L"),
    ],
)
def test_the_citation_of_a_hit_reads_what_was_asked_for(memory, notes, text, word, cited):
    (notes / "memory/long.md").write_text(text)

    with memory:
        hit = memory.search(word).hits[0]
        read = memory.get(hit.citation)

    assert hit.citation.startswith(f"memory/long.md{cited}")
    assert word in hit.snippet and word in read.text


def test_a_search_returns_frozen_hits_with_citations(memory):
    with memory:
        answer = memory.search("whole cents", max_results=1)

    assert isinstance(answer, Answer)
    assert [hit.citation for hit in answer.hits] == ["MEMORY.md#L1-L3"]
    assert [*answer] == [*answer.hits]
    assert not memory.search("zyxwv").hits
    with pytest.raises(AttributeError):
        answer.mode = "other"  # type: ignore[misc]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_what_is_returned_can_be_copied_and_pickled(memory, copied):
    answer = memory.search("ERR_CONN_42")

    for made in (answer, answer.hits[0], memory.get("MEMORY.md"), memory.index()):
        again = copied(made)
        assert (again, type(again)) == (made, type(made))
    with pytest.raises(AttributeError):
        copied(answer).hits = ()


@pytest.mark.parametrize("name", ["workspace", "config", "home"])
def test_an_empty_text_is_not_the_current_folder(notes, name):
    with pytest.raises(ConfigError, match=f"{name} is an empty text"):
        Memory(**{"workspace": notes, name: ""})


@pytest.mark.parametrize("name", ["search", "get", "lint", "append", "index", "status"])
def test_the_twin_of_a_method_says_of_itself_what_the_method_says(name):
    method, twin = getattr(Memory, name), getattr(Memory, f"a{name}")

    assert (twin.__name__, twin.__doc__) == (f"a{name}", method.__doc__)
    assert inspect.signature(twin).parameters == inspect.signature(method).parameters
    assert inspect.iscoroutinefunction(twin)


def test_a_note_is_read_by_a_path_object_too(memory, notes):
    assert memory.get(Path("MEMORY.md")) == memory.get(notes / "MEMORY.md") == memory.get("MEMORY.md")
    assert memory.get("MEMORY.md", max_chars=-1) == memory.get("MEMORY.md")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_results": -5}, "max_results: Expected `int` >= 1"),
        ({"min_score": 7}, "min_score: Expected `float` <= 1.0"),
        ({"source": "notes"}, "source: Invalid enum value 'notes'"),
        ({"since": date(2026, 1, 1)}, "since: Expected `str`, got `date`"),
        ({"tag": ["a", 3]}, "tag: Expected `str`, got `int`"),
        ({"tag": ["a", ""]}, "'' is not a tag"),
        ({"tag": 5}, "tag: Expected `str | array`, got `int`"),
        ({"tag": " , "}, "' , ' is not a tag"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(memory, options, said):
    with pytest.raises(BadRequest) as error:
        memory.search("invoices", **options)
    assert error.value.message == said


def test_an_entry_for_a_note_that_there_is_not_is_refused(memory):
    with pytest.raises(BadRequest, match="there is no target 'longterm'"):
        memory.append("Invoices are sent on Mondays.", target="longterm")


def test_an_index_run_reports_and_the_status_agrees(memory):
    with memory:
        report = memory.index()
        status = memory.status()

    assert (report.files["added"], report.failed) == (2, False)
    assert (status["agentId"], status["status"]["files"], status["status"]["dirty"]) == ("main", 2, False)


def test_every_call_can_be_awaited(memory):
    async def calls():
        assert (await memory.aindex()).files["added"] == 2
        answer, excerpt = await asyncio.gather(memory.asearch("cents"), memory.aget("MEMORY.md", lines=1))
        assert (answer.hits[0].path, excerpt.text) == ("MEMORY.md", "# Facts")
        entry = await memory.aappend("Ada prefers tea.")
        assert (await memory.asearch("tea")).hits[0].path == entry.path
        assert (await memory.astatus())["status"]["files"] == 3

    with memory:
        asyncio.run(calls())


def test_a_closed_memory_opens_again_for_the_next_call(memory):
    memory.search("cents")
    memory.close()

    assert memory.search("cents").hits
    memory.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.get("/etc/passwd"),
        lambda memory: memory.search("q", since="someday"),
        lambda memory: memory.append("  "),
        lambda memory: Memory("/no/such/folder"),
    ],
)
def test_errors_are_of_the_one_tree_and_say_what_to_do(memory, call):
    with pytest.raises(MemlineError) as caught:
        call(memory)  # type: ignore[operator]

    assert caught.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.get(HALF),
        lambda memory: memory.get(f"sessions/{HALF}.jsonl"),
        lambda memory: memory.search("q", tag=HALF),
        lambda memory: memory.search("q", tag=["a", HALF]),
        lambda memory: memory.search("q", path=HALF),
        lambda memory: memory.search("q", until=HALF),
        lambda _: Memory(HALF),
        lambda _: Memory(home=HALF),
        lambda _: Memory("no\0tes"),
    ],
)
def test_half_of_a_character_in_an_argument_is_an_error_of_the_one_tree(memory, call):
    memory.index()

    with pytest.raises(MemlineError, match=r"not a name in UTF-8|is not a path") as caught:
        call(memory)

    assert caught.value.message.isprintable()
