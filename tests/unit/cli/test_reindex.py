import json
from contextlib import closing

import pytest

from memline.producers.cli import run
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import MODEL_A, file_row, make_job
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})


def test_a_plan_says_files_texts_and_cost_and_writes_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place.arguments("reindex", "--plan")) == 0

    assert capsys.readouterr().out.startswith("main: 1 file to read, 1 chunk; 0 texts to embed")
    assert not place.index_path.exists()


def test_without_a_job_the_open_ones_are_shown_and_cancelled(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--status", "--cancel"):
        assert run(place.arguments("reindex", option)) == 0
        assert capsys.readouterr().out == "No open jobs.\n"
    assert not place.index_path.exists()
    with closing(IndexWriter.of(place.agent)) as writer:
        writer.retarget(MODEL_A)
        ids = {make_job(writer, "a.md", more).token for more in ("b.md", "c.md")}
        writer.store_file(file_row("a.md", "apples"), job=min(ids))

    assert run(place.arguments("reindex", "--status", "--json")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {(each["id"], each["state"]) for each in shown} == {(job, "running") for job in ids}

    assert run(place.arguments("reindex", "--cancel")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition(" is cancelled: ")[0] for line in lines} == {f"main: job {job}" for job in ids}
    assert sum("1 text will not be embedded" in line for line in lines) == 1
    assert run(place.arguments("reindex", "--cancel", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_without_a_queue_it_names_the_command_that_does_the_work(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place.arguments("reindex", "--force")) == 1

    assert f"Try: {place.typed('index --force')}" in capsys.readouterr().err
