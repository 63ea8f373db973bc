"""Every face says the words of the table, in its order, and nothing beside them."""

import json
import shlex
from collections.abc import Callable
from contextlib import closing

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.api.calls import Caller, Calls
from memline.producers.cli import run
from memline.shared.finding import COMMAND, NONE, NOTE, PROBLEM, SENTENCE, WARNING, Finding, worst
from memline.shared.index import meta
from tests.support.embedding_server import EmbeddingServer
from tests.support.index_rows import fail, file_row, lease_all
from tests.support.workspace import Place
from tests.unit.findings.conftest import found, one, writing
from tests.unit.findings.test_states import (
    State,
    cancel_texts,
    pause_a_job,
    put,
    want_texts,
)


@pytest.fixture
def paused(place: Place) -> Place:
    """A place whose three vectors wait for a person."""
    place.configure(sync={"onSearch": False})
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", "redis", "apples", "pears"))
    provider_pauses.pause(place.agent)
    return place


def shown(capsys: pytest.CaptureFixture[str], place: Place, *words: str) -> tuple[str, str]:
    run(place.arguments(*words))
    output = capsys.readouterr()
    return output.out, output.err


def test_every_face_says_the_words_of_the_table(paused: Place, capsys: pytest.CaptureFixture[str]) -> None:
    words = [each.what for each in found(paused) if each.agent]
    what, action = worst(found(paused))

    answered = json.loads(shown(capsys, paused, "search", "redis", "--json")[0])
    _, told = shown(capsys, paused, "search", "redis")
    status = json.loads(shown(capsys, paused, "status", "--json")[0])[0]
    lines = shown(capsys, paused, "status")[0].splitlines()
    doctor = json.loads(shown(capsys, paused, "doctor", "--json")[0])
    with closing(Calls(paused.settings, ("main",))) as tools:
        called = tools.search(Caller(agent="main"), query="redis")
        summary = tools.status(Caller(agent="main"))

    assert (what, action) == ("embedding is paused; 3 vectors wait", "memline queue resume")
    for face in (answered, called, summary):
        assert face["warning"] == what
        assert face["action"].endswith("queue resume")
    for findings in (status["findings"], doctor, summary["findings"]):
        assert [each["what"] for each in findings if each["agent"] and each["level"] != "ok"] == words
    for findings in (answered["findings"], called["findings"]):
        assert [each["what"] for each in findings] == words
    assert [line for line in told.splitlines() if not line.startswith("Try: ")] == words
    assert lines[1:3] == [f"  warn {what}", f"       try: {paused.typed('queue resume')}"]
    assert all(each["fix"] == each["action"] for each in doctor)


def test_the_report_of_a_run_says_the_same(paused: Place, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = shown(capsys, paused, "index")
    body = json.loads(shown(capsys, paused, "index", "--json")[0])[0]

    words = [each.what for each in found(paused)]
    assert body["warning"] == words[0] == "embedding is paused; 1 vector waits"
    assert [each["what"] for each in body["findings"]] == words
    assert f"  {words[0]}\nTry: {paused.typed('queue resume')}\n" in told


def told_to_stop(place: Place, _: pytest.MonkeyPatch) -> None:
    want_texts(place)
    provider_pauses.pause(place.agent)


def damaged_with_rows(place: Place, _: pytest.MonkeyPatch) -> None:
    want_texts(place)
    with place.index_path.open("r+b") as file:
        file.write(b"garbage" * 200)


ENDED_BY_ITS_ACTION: list[tuple[str, State]] = [
    ("paused", told_to_stop),
    ("job_paused", pause_a_job),
    ("first_index_missing", lambda *_: None),
    ("files_behind", lambda place, _: want_texts(place)),
    ("vectors_cancelled", cancel_texts),
    ("model_differs", lambda place, _: (want_texts(place), place.configure(model="b"))),
    ("index_damaged", damaged_with_rows),
    ("fallback_active", lambda place, _: put(place, meta.FALLBACK, {"from": "voyage", "reason": "no quota"})),
]


@pytest.mark.parametrize(("code", "state"), ENDED_BY_ITS_ACTION, ids=[row[0] for row in ENDED_BY_ITS_ACTION])
def test_following_the_action_ends_the_finding(
    place: Place, monkeypatch: pytest.MonkeyPatch, code: str, state: State
) -> None:
    with EmbeddingServer() as server:
        place.configure(remote={"baseUrl": server.url, "apiKey": "sk-test"})
        state(place, monkeypatch)
        # What it does stands behind some commands, in parentheses.
        action = one(found(place), code).action.partition("   (")[0]

        run(place.arguments(*shlex.split(action)[1:]))

        assert action.startswith("memline ")
        assert code not in {each.code for each in found(place)}


#: What comes before what: (state that makes both, the more urgent code, the other one).
PAIRS: list[tuple[Callable[[Place], object], str, str]] = [
    (lambda place: provider_pauses.pause(place.agent), "paused", "files_behind"),
    (lambda place: place.configure(remote={}), "provider_without_key", "files_behind"),
    (lambda place: place.configure(model="b"), "model_differs", "files_behind"),
    (lambda place: place.configure(enabled=False, remote={}), "provider_without_key", "memory_disabled"),
    (lambda place: place.configure(enabled=False), "memory_disabled", "files_behind"),
    (lambda place: _refuse(place), "text_refused", "files_behind"),
]


def _refuse(place: Place) -> None:
    with writing(place) as writer:
        for request in lease_all(writer):
            fail(writer, request, "refused")


@pytest.mark.parametrize(("state", "first", "second"), PAIRS, ids=[f"{a}-{b}" for _, a, b in PAIRS])
def test_the_more_urgent_finding_comes_first(
    place: Place, state: Callable[[Place], object], first: str, second: str
) -> None:
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", "redis"))
    state(place)

    codes = [each.code for each in found(place)]

    assert codes.index(first) < codes.index(second)


def test_what_is_stopped_is_not_said_to_be_behind_or_under_way(paused: Place) -> None:
    codes = {each.code for each in found(paused)}

    assert not codes & {"vectors_behind", "embedding_under_way", "model_differs"}


def test_problems_come_before_warnings_and_these_before_notes() -> None:
    levels = (NOTE, WARNING, PROBLEM)
    made = [Finding(code=level, level=level, what=level) for level in levels]

    assert worst(made) == (WARNING, "")
    assert worst(made[:1]) == ("", "")


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("", NONE),
        ("memline queue resume", COMMAND),
        ("chmod u+w /x", COMMAND),
        ("mv '/my notes/Memory.md' '/my notes/MEMORY.md'", COMMAND),
        ("memline index   (moves the damaged file aside and builds the index again)", SENTENCE),
        ("export OPENAI_API_KEY=…", SENTENCE),
    ],
)
def test_an_action_is_a_command_a_sentence_or_nothing(action: str, kind: str) -> None:
    finding = Finding(code="c", level=NOTE, what="w", action=action)

    assert finding.to_json() == {
        "code": "c",
        "level": "note",
        "agent": None,
        "subject": "",
        "what": "w",
        "action": action,
        "actionKind": kind,
    }
