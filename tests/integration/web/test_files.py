"""The pages of agents, files and chunks, and the runs that are started from them."""

import pytest

from memline.producers.web.files_page import PAGE
from memline.producers.web.page import Runs
from memline.shared.errors import BadRequest
from tests.integration.web.conftest import Opener
from tests.support.browser import Browser, text_of
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, remote, until


def test_an_agent_shows_where_its_things_are_and_how_far_it_is(browser: Browser, notes: Place) -> None:
    page = browser.shows("/agents")

    assert str(notes.folder / "main") in page and str(notes.index_path) in page
    assert "Files of main : 1 indexed" in page and "Files of work : 1 indexed" in page


def test_files_are_listed_by_page_outcome_and_part_of_the_path(browser: Browser, notes: Place) -> None:
    for number in range(PAGE + 1):
        notes.write(f"../main/memory/note-{number:03}.md", f"Note {number}.\n")
    (notes.folder / "main" / "memory" / "picture.md").write_bytes(b"\x00\x01\xff" * 50)
    assert browser.post("/index", agent="main").status_code == 200
    until(lambda: "Indexed in" in browser.shows("/agents"), "the run")

    first, last = browser.get("/files", agent="main"), browser.get("/files", agent="main", first=PAGE)
    picture = browser.shows("/files", agent="main", outcome="not_text")
    some = browser.shows("/files", agent="main", path="NOTE-05")

    assert "1 to 100" in text_of(first) and 'rel="next"' in first.text
    assert "101 to 103" in text_of(last) and 'rel="prev"' in last.text and 'rel="next"' not in last.text
    assert "memory/picture.md not_text" in picture and "memory/note-000.md" not in picture
    assert "memory/note-059.md" in some and "memory/note-060.md" not in some
    assert "No file of the index" in browser.shows("/files", agent="main", path="%_")


def test_a_file_shows_its_chunks_and_a_note_draws_them_beside_its_lines(
    browser: Browser, notes: Place
) -> None:
    lines = "\n".join(
        f"Sentence number {number} of a long note, with some words in it." for number in range(80)
    )
    notes.write("../main/memory/long.md", lines)
    browser.post("/index", agent="main")
    until(lambda: "Indexed in" in browser.shows("/agents"), "the run")

    page = browser.get("/file", agent="main", path="memory/long.md")
    note = browser.get("/note", agent="main", path="memory/long.md").text

    count = page.text.count('<article class="card">')
    assert "<h1>File memory/long.md</h1>" in page.text
    assert "File memory/long.md · Memline</title>" in page.text
    assert count > 1 and f"{count} chunks" in text_of(page)
    assert "Sentence number 79" in text_of(page)
    assert note.count("lane in begin") == count
    assert browser.get("/file", agent="main", path="no.md").status_code == 404


def test_all_texts_are_embedded_again_after_their_price_was_shown(
    opened: Opener, notes: Place, server: EmbeddingServer
) -> None:
    prices = {"stub": {"perMillion": 1000.0, "asOf": "2026-01-31"}}
    browser = opened(blocks={"prices": prices, "memorySearch": remote(server.url)})
    browser.post("/index", agent="main")
    until(lambda: "Indexed in" in browser.shows("/agents"), "the run")
    until(lambda: "1 ready" in browser.shows("/agents"), "the vector")
    before = sum(request.rows for request in server.requests)

    plan = browser.shows("/re-embed", agent="main")
    done = browser.post("/index", agent="main", reEmbed="1")
    until(lambda: "Indexed in" in browser.shows("/agents"), "the second run")
    again = sum(request.rows for request in server.requests) - before
    until(lambda: "Indexed in" in browser.shows("/agents"), "the end of the run")

    assert again == 1
    assert "1 text, about" in plan and "$0.0" in plan and "memline --agent main index --re-embed" in plan
    assert "is being indexed" in text_of(done)


@pytest.mark.parametrize("form", [{}, {"agent": "main", "what": "rm"}, {"agent": "nobody"}])
def test_a_wrong_run_is_refused(browser: Browser, form: dict[str, str]) -> None:
    assert browser.post("/index", **form).status_code in (400, 404)


def test_an_agent_runs_once_at_a_time_and_a_failure_is_said() -> None:
    import threading
    from types import SimpleNamespace

    from memline.shared.errors import IndexFault

    go_on = threading.Event()

    def index(**_: bool) -> None:
        go_on.wait(120)
        raise IndexFault("the disk is full")

    runs = Runs()
    memory = SimpleNamespace(settings=SimpleNamespace(agent="main"), index=index)
    runs.start(memory)  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        runs.start(memory)  # type: ignore[arg-type]
    go_on.set()

    until(lambda: runs.said("main") == "Failed: the disk is full", "the end")
