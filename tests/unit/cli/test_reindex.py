from typing import Any

import pytest

from memline.producers.actions import reindex_job as jobs
from memline.producers.cli import run
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})


def state(**changes: Any) -> dict[str, Any]:
    vectors = {"wanted": 0, "leased": 0, "failed": 0, "ready": 10, "backfill": 0, "cancelled": 0, "paused": 0}
    vectors |= changes.pop("vectors", {})
    return {
        "agentId": "main",
        "filesBehind": 0,
        "vectors": vectors,
        "vectorsPerSecond": 4.0,
        "etaSeconds": None,
        "paused": False,
        "jobs": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ({**state(), "vectors": None}, "main: there is no index yet."),
        (state(), "main: 10 of 10 vectors are ready."),
        (state(filesBehind=40), "main: 40 files are still to be read, 10 of 10 vectors are ready."),
        (
            state(vectors={"wanted": 8, "leased": 2, "backfill": 8}, etaSeconds=2.5),
            "main: 10 of 20 vectors are ready, 10 are pending (8 of them wait behind live edits),"
            " rate 4/s, ETA 2 s.",
        ),
        (
            state(vectors={"wanted": 1, "failed": 1, "cancelled": 2}, paused=True),
            "main: 10 of 14 vectors are ready, 1 are pending (0 of them wait behind live edits), paused,"
            " 1 failed, 2 are cancelled (memline reindex resumes them).",
        ),
    ],
)
def test_the_status_is_one_line_an_agent(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    progress: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.setattr(jobs, "progress", lambda *_: progress)

    assert run(place.arguments("reindex", "--status")) == 0

    assert capsys.readouterr().out == f"{words}\n"


def test_a_plan_says_files_texts_and_cost_and_writes_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place.arguments("reindex", "--plan")) == 0

    assert capsys.readouterr().out.startswith("main: 1 file to read, 1 chunk; 0 texts to embed")
    assert not place.index_path.exists()


def test_cancelling_says_what_was_given_up_and_how_to_resume_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = {"agentId": "main", "vectors": 9, "batches": 1, "messages": 2, "files": 40, "ids": ["5f3a"]}
    monkeypatch.setattr(jobs, "cancel_all", lambda *_: done)

    assert run(place.arguments("reindex", "--cancel")) == 0

    assert capsys.readouterr().out == (
        "main: 9 texts will not be embedded, and 40 files will not be read."
        " memline reindex resumes them.\n"
        "  1 batch is being cancelled at the provider (memline batch ls).\n"
    )


def test_without_a_queue_it_names_the_command_that_does_the_work(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place.arguments("reindex", "--force")) == 1

    assert f"Try: {place.typed('index --force')}" in capsys.readouterr().err
