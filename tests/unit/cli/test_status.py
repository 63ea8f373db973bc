from contextlib import closing

import pytest

from memline.producers.cli import run
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all, retarget

pytestmark = pytest.mark.place(files={"memory/notes.md": "# Notes\n"})


def test_it_says_what_is_behind_and_after_an_index_that_nothing_is(place, capsys):
    run(place.arguments("status"))
    before = capsys.readouterr().out
    run(place.arguments("status", "--index"))
    after = capsys.readouterr().out

    assert before.splitlines()[1:3] == [
        f"  warn nothing is indexed yet, {place.index_path} is missing",
        f"       try: {place.typed('index')}",
    ]
    assert "  Indexed:     1/1 file · 1 chunk\n" in after
    assert "  Stale:       no\n" in after
    assert "  Embeddings:  unavailable: " in after


def test_the_cache_line_counts_what_no_chunk_needs(place, capsys):
    with closing(IndexWriter.of(place.agent)) as writer:
        retarget(writer, MODEL_A)
        for number, text in enumerate(("apples", "pears", "plums")):
            writer.store_file(file_row("memory/notes.md", text, at=number + 1))
            answer(writer, lease_all(writer))

    run(place.arguments("status"))

    # Of three vectors one is active.
    assert "  Cache:       2 of 50,000 vectors\n" in capsys.readouterr().out
