"""Every face says the words of the table, in its order, and nothing beside them."""

import json
import shlex
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.agents.tools import Caller, MemoryTools
from memline.producers.cli import run
from memline.producers.web import file_looks, live
from memline.producers.web.live import LiveFigures
from memline.shared.errors import IndexFault
from memline.shared.finding import COMMAND, NONE, NOTE, OK, PROBLEM, SENTENCE, WARNING, Finding, worst
from memline.shared.findings import table
from memline.shared.findings.answerer import _KEPT, Answerer
from memline.shared.findings.diagnosis import of_error
from memline.shared.findings.table import AGENT, rows
from memline.shared.index import jobs, ledger, meta
from memline.shared.search.request import SearchRequest
from memline.shared.sync.plan import make_plan
from memline.shared.sync.staleness import DiskState
from tests.support.embedding_server import EmbeddingServer
from tests.support.index_rows import answer, fail, file_row, lease_all, make_job
from tests.support.workspace import Place, until
from tests.unit.findings.conftest import found, one, writing
from tests.unit.findings.test_states import (
    OF_AGENT,
    State,
    cancel_texts,
    pause_a_job,
    put,
    row_ids,
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
    with closing(MemoryTools(paused.settings, ("main",))) as tools:
        called = tools.search(Caller(agent="main"), {"query": "redis"})
        summary = tools.status(Caller(agent="main"), {})

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
        ("memline index   (begins a new run; or raise limits.maxCostPerRun)", SENTENCE),
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
        "since": None,
    }


def test_a_quiet_index_loads_no_condition(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", "redis"))
        answer(writer, lease_all(writer))
    monkeypatch.setattr(table, "find", lambda *_: pytest.fail("a condition was asked"))

    with closing(Answerer(place.agent)) as answerer:
        answered = answerer._about(DiskState(), ())

    assert answered.findings == ()


def test_what_an_answer_says_is_at_most_a_second_old(paused: Place) -> None:
    request = SearchRequest(query="redis")
    with closing(Answerer(paused.agent, long_lived=True)) as answerer:
        before = answerer.ask(request)
        provider_pauses.resume(paused.agent)
        after = answerer.ask(request)

    assert before.warning == "embedding is paused; 3 vectors wait"
    assert "paused" not in {each.code for each in after.findings}


def test_a_paused_job_that_wants_only_files_is_told_with_an_answer(place: Place) -> None:
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        jobs.pause(writer.connection, make_job(writer, "b.md"), by="me", now=time.time())

    with closing(Answerer(place.agent)) as answerer:
        answered = answerer._about(DiskState(), ())

    assert [each.code for each in answered.findings] == ["job_paused"]


@pytest.mark.parametrize(
    ("query", "used"), [(ledger.ANY_PROBLEM, "files_with_problems"), (_KEPT, "kept_since")]
)
def test_whether_a_file_failed_or_is_kept_is_asked_of_few_pages(place: Place, query: str, used: str) -> None:
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        plan = writer.connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()

    assert used in plan[0][3]


@pytest.mark.parametrize(("code", "state"), [(row[0], row[2]) for row in OF_AGENT], ids=row_ids(OF_AGENT))
def test_the_dashboard_and_an_answer_overlook_nothing_that_a_status_finds(
    place: Place, monkeypatch: pytest.MonkeyPatch, code: str, state: State
) -> None:
    """One looks at the disk less often than at rows, the other first takes a cheap look at the rows."""
    state(place, monkeypatch)
    expected = {each.code for each in found(place)}
    monkeypatch.setattr(live, "WAIT_S", 120.0)
    shown = LiveFigures(place.settings, [place.agent]).read().findings["main"]
    if not place.index_path.exists():
        want_texts(place, 0)
    from_disk = {row.code for row in rows(AGENT) if row.from_disk}
    told = {each.code for each in found(place) if each.is_trouble} - from_disk
    with closing(Answerer(place.agent)) as answerer:
        try:
            answered = answerer._about(DiskState(), ()).findings
        except IndexFault as error:
            answered = of_error(place.agent, error)

    assert code in expected
    assert {each.code for each in shown if each.level != OK} == expected
    assert told <= {each.code for each in answered}


def test_what_rows_say_is_told_while_a_look_at_the_files_takes_long(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WAIT_S", 120.0)
    want_texts(place)
    looked, go_on = threading.Event(), threading.Event()
    figures = LiveFigures(place.settings, [place.agent])
    first = figures.read()

    def plan_slowly(*args: Any, **options: Any) -> Any:
        looked.set()
        assert go_on.wait(120)
        return make_plan(*args, **options)

    monkeypatch.setattr(file_looks, "make_plan", plan_slowly)
    figures.forget()
    provider_pauses.pause(place.agent)
    during = figures.read(0)
    assert looked.wait(120)
    go_on.set()
    until(lambda: figures.read(0).files_at > first.files_at, "the look at the files")

    assert "paused" not in {each.code for each in first.told("")}
    assert "paused" in {each.code for each in during.told("")}
    assert during.at > during.files_at == first.files_at > 0


def test_a_search_says_under_each_finding_what_to_do(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice stands below the line it is about, also that of a note whose advice is one command."""
    place.configure(provider="none")
    place.write("a.md", "redis\n")
    place.index()
    provider_pauses.pause(place.agent)

    printed, told = shown(capsys, place, "search", "redis", "--source", "sessions")

    said = told.splitlines()
    assert "No matches." in printed
    off = said.index("the source sessions is switched off for this agent")
    assert said[off + 1].startswith("Try: add it to memorySearch.sources")
    paused = said.index("embedding is paused")
    assert said[paused + 1] == f"Try: {place.typed('queue resume')}"


def test_a_search_gives_the_same_advice_once(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that is refused stops both what is indexed and the question."""
    with EmbeddingServer() as server:
        place.configure(remote={"baseUrl": server.url, "apiKey": "sk-test"})
        place.write("memory/a.md", "redis\n")
        place.index()
        server.control({"fault": "401"})
        place.write("memory/b.md", "redis too\n")
        place.index()
        _, told = shown(capsys, place, "search", "redis")

    advice = [line for line in told.splitlines() if line.startswith("Try: ")]
    assert "only keywords were searched" in told
    assert advice
    assert len(set(advice)) == len(advice)


def test_a_question_without_a_hit_loads_the_conditions_only_where_a_note_is_not_read(place: Place) -> None:
    place.write("MEMORY.md", "Apples.\n")
    place.configure(provider="none")
    place.index()
    tells = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"

    well = place.run("search", "pears", before=tells)
    place.write("docs/pears.md", "Pears.\n")
    beside = place.run("search", "pears", before=tells)

    assert "memline.shared.search.service" in well.stderr
    assert "memline.shared.findings.facts" not in well.stderr
    assert "memline.shared.findings.facts" in beside.stderr
