"""A state of rows, disk or Redis for every finding, and what is said of it."""

# A state of the table is a line.
# ruff: noqa: E501

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from msgspec.structs import replace

from memline.producers import cli
from memline.producers.actions import verbs
from memline.producers.reports.state import agent_state
from memline.shared.errors import IndexFault, IndexUnwritable, QueueError
from memline.shared.finding import NOTE, PROBLEM, WARNING
from memline.shared.findings import check, conditions
from memline.shared.findings.check import check_common, of_fault
from memline.shared.findings.facts import Stop
from memline.shared.index import meta
from memline.shared.index.hold import hold
from memline.shared.queue import fleet
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.health import Health
from tests.support.embedding_server import EmbeddingServer
from tests.support.index_rows import (
    add_batch,
    cancel_backfill,
    fail,
    file_row,
    lease_all,
    make_job,
)
from tests.support.workspace import Place
from tests.unit.findings.conftest import fleet_now, found, one, writing

State = Callable[[Place, pytest.MonkeyPatch], object]


def want_texts(place, count=3):
    """Let the index know the place's note, and want so many vectors."""
    place.index_path.parent.mkdir(parents=True, exist_ok=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", *(f"text {number}" for number in range(count))))


def refuse_a_text(place, _):
    want_texts(place, 1)
    with writing(place) as writer:
        (request,) = lease_all(writer)
        fail(writer, request, "refused")


def open_breaker(place, *modes, action="check the key"):
    want_texts(place)
    opened = Health(opens=2, reason="bad key", action=action, retry_at=time.time() + 60)
    with writing(place) as writer:
        for mode in modes:
            health.update(writer.accounts, "openai", mode, lambda _: opened)


def ask_to_wait(place, seconds, *, reason="429", failures=0):
    """The provider answered with a Retry-After."""
    want_texts(place)
    with writing(place) as writer:
        asked = Health(reason=reason, failures=failures, retry_at=time.time() + seconds)
        health.update(writer.accounts, "openai", "requests", lambda _: asked)


def put(place, key, value):
    want_texts(place)
    with writing(place) as writer, writer.transaction() as (connection, _):
        meta.put(connection, key, value)


def reach_ceiling(place, _):
    text = json.loads(place.config.read_text())
    place.config.write_text(json.dumps(text | {"limits": {"maxTokensPerDay": 1}}))
    want_texts(place)


def pause_a_job(place, _):
    want_texts(place)
    with writing(place) as writer:
        jobs.change(writer.connection, make_job(writer, "b.md"), jobs.PAUSED)


def cancel_texts(place, _):
    want_texts(place, 0)
    with writing(place) as writer:
        job = make_job(writer, "b.md")
        writer.store_file(file_row("b.md", *"xyz"), job=job.token)
        cancel_backfill(writer)


def empty_the_root(place, _):
    for number in range(5):
        place.write(f"memory/{number}.md", f"Note {number}.")
    (place.workspace / "memory/notes.md").unlink(missing_ok=True)
    place.configure(provider="none")
    place.index()
    for file in (place.workspace / "memory").glob("*.md"):
        file.unlink()
    place.index()


def make_batch(place, **columns):
    want_texts(place)
    fields = {"job_id": "batch_7", "provider_state": "in_progress", "rows": 3, "created_at": 1.0} | columns
    with writing(place) as writer:
        add_batch(writer, "cafe0123cafe", **fields)


def damage(place, _):
    place.index_path.parent.mkdir(parents=True)
    place.index_path.write_bytes(b"SQLite format 3\0" + b"garbage" * 200)


def newer_index(place, _):
    want_texts(place)
    place.execute("PRAGMA user_version = 9999")


def run_without(what=""):
    def state(place, monkeypatch):
        without = {what} if what else {"numpy", "sqlite-vec"}
        lack = dict.fromkeys(without, "is missing")
        monkeypatch.setattr(check, "lack_at_a_glance", lambda name: lack.get(name, ""))
        if "sqlite-vec" in without:
            monkeypatch.setattr(check.driver, "load_vec", lambda *_: "no such module")

    return state


def fleet_of(*roles, **options):
    def state(place, monkeypatch):
        monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
        now = {place.settings.queue: fleet_now(*roles, **options)}
        monkeypatch.setattr(fleet, "_fleets", now)

    return state


def redis_says(words):
    def state(place, monkeypatch):
        monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
        error = QueueError(f"Redis at 127.0.0.1 {words}", hint="do this")
        monkeypatch.setattr(
            fleet, "_fleets", {place.settings.queue: (time.monotonic(), fleet.Fleet(error=error))}
        )

    return state


def unreadable(place, *outcomes, path="memory/{}.md"):
    """Let the index know files that could not be read."""
    place.index_path.parent.mkdir(parents=True, exist_ok=True)
    with writing(place) as writer:
        for number, outcome in enumerate(outcomes):
            writer.store_file(replace(file_row(path.format(number)), outcome=outcome, reason="why"))


def row_ids(table):
    """Name the rows of a table of states by code and level."""
    return [f"{row[0]}-{row[1]}" for row in table]


OF_AGENT: list[tuple[str, str, State, str, str]] = [
    # code, level, state, a part of its words, its action
    ("workspace_missing", PROBLEM, lambda p, _: shutil.rmtree(p.workspace), "there is no folder", "put it back, or correct "),
    ("root_emptied", WARNING, empty_the_root, "5 files are gone from ", "put them back, or take them out"),
    ("memory_disabled", WARNING, lambda p, _: p.configure(enabled=False), "is disabled for this agent", "set memorySearch.enabled to true"),
    ("index_unusable", PROBLEM, damage, "is damaged", "memline index"),
    ("not_writable", PROBLEM, lambda p, m: m.setattr(os, "access", lambda *_: False), "is not writable", "let this user write to "),
    ("not_writable", PROBLEM, lambda p, m: m.setattr(conditions, "FULL_DISK_BYTES", 2**62), "is full", "free space there"),
    ("port_taken", PROBLEM, lambda p, _: put(p, meta.SERVER_FAULT, {"error": "it is taken", "action": "memline up --serve --port 7844"}), "serves no HTTP: it is taken", "--port 7844"),
    ("index_unusable", PROBLEM, newer_index, "has schema 9999", ""),
    ("first_index_missing", WARNING, lambda p, _: None, "nothing is indexed yet", "memline index"),
    ("no_notes", PROBLEM, lambda p, _: (shutil.rmtree(p.workspace / "memory"), p.write("MEMORY.md.bak/a.md", "A."), p.write("memory/.keep", "")), "1 Markdown file is not read: MEMORY.md.bak/a.md", "memorySearch.extraPaths"),
    ("no_notes", WARNING, lambda p, _: shutil.rmtree(p.workspace / "memory"), "there is no Markdown", "write a note"),
    ("source_missing", WARNING, lambda p, _: p.configure(extraPaths=["/none"]), "/none", "put it in its place"),
    ("source_missing", WARNING, lambda p, _: p.configure(experimental={"sessionMemory": True}, sources=["memory", "sessions"], transcripts=["codex"]), "sessions of Codex not readable", "take it out of the configuration"),
    ("source_missing", WARNING, lambda p, _: p.write(os.fsdecode(b"memory/\xff.md"), "A."), "memory/\\xff.md is not valid UTF-8", "rename it"),
    ("no_notes", NOTE, lambda p, _: (p.write("docs/a.md", "A."), p.write("docs/b.MDX", "B.")), "beside MEMORY.md and memory/ 2 Markdown files are not read: docs/a.md, docs/b.MDX", "/docs"),
    ("provider_unusable", PROBLEM, lambda p, _: p.configure(remote={}), "keyword search only: No API key found", "export OPENAI_API_KEY"),
    ("provider_unusable", PROBLEM, lambda p, _: p.configure(provider="local", local={"modelPath": "/none.gguf"}), "keyword search only: ", ""),
    ("paused", WARNING, lambda p, _: (want_texts(p), verbs.pause(p.agent)), "embedding is paused; 3 vectors are pending", "memline queue resume"),
    ("paused", WARNING, lambda p, _: (want_texts(p), verbs.pause(p.agent, provider="openai")), "embedding is paused for openai; 3 vectors are pending", "memline queue resume --provider openai"),
    ("paused", NOTE, lambda p, _: (want_texts(p, 0), verbs.pause(p.agent)), "embedding is paused", "memline queue resume"),
    ("ceiling_reached", WARNING, reach_ceiling, "limits.maxTokensPerDay is reached", "embedding goes on at"),
    ("rate_limited", NOTE, lambda p, _: ask_to_wait(p, 45), " s: 429; 3 vectors are pending", ""),
    ("rate_limited", WARNING, lambda p, _: ask_to_wait(p, 9_000), " h: 429; 3 vectors are pending", "memline queue resume   (one request tries now"),
    # Failures before it make it no less a time that was named.
    ("rate_limited", WARNING, lambda p, _: ask_to_wait(p, 9_000, reason="503 overloaded", failures=1), " h: 503 overloaded; 3 vectors are pending", "memline queue resume"),
    ("rate_limited", WARNING, lambda p, _: ask_to_wait(p, 9_000, reason=""), " h; 3 vectors are pending", ""),
    ("breaker_open", PROBLEM, lambda p, _: open_breaker(p, "requests"), "the circuit breaker of openai is open, tried again in 60 s: bad key; 3 vectors are pending", "check the key"),
    ("breaker_open", NOTE, lambda p, _: open_breaker(p, "batch"), "the circuit breaker of openai for batches is open, tried again in 60 s: bad key; requests go on", "check the key"),
    ("fallback_active", WARNING, lambda p, _: put(p, meta.FALLBACK, {"from": "voyage", "reason": "no quota"}), "the fallback openai embeds instead of voyage: no quota", "memline queue resume"),
    ("model_differs", WARNING, lambda p, _: (want_texts(p), p.configure(model="b")), "3 texts to embed with openai b", "memline index"),
    ("no_provider", NOTE, lambda p, _: p.configure(provider="auto", remote={}), "no embedding provider is configured", "export OPENAI_API_KEY"),
    ("job_paused", WARNING, pause_a_job, " is paused", "memline jobs resume "),
    ("text_refused", PROBLEM, refuse_a_text, "1 text got no vector: it was refused (a.md)", "change a.md, or leave it"),
    ("batch_blocked", WARNING, lambda p, _: make_batch(p, error="403", action="make a key"), "batch cafe0123 cannot be collected: 403", "make a key"),
    ("files_behind", WARNING, lambda p, _: want_texts(p), "1 file is not in the index yet, and 1 removed file is still in it", "memline index"),
    ("files_behind", WARNING, lambda p, _: (want_texts(p), shutil.rmtree(p.workspace / "memory"), p.write("memory/.keep", "")), "1 removed file is still in it", "memline index"),
    ("vectors_behind", WARNING, lambda p, _: want_texts(p), "3 vectors are pending", "memline index"),
    ("vectors_behind", WARNING, cancel_texts, "3 vectors were cancelled with their job", "memline index"),
    ("files_failed", WARNING, lambda p, _: (p.write("memory/b.md", b"\0\1\2"), p.configure(provider="none"), p.index()), "1 file could not be read: memory/b.md: ", "make memory/b.md UTF-8 of at most 16 MB, or leave it out by memorySearch.exclude"),
    ("files_failed", WARNING, lambda p, _: unreadable(p, *["unreadable"] * 3, "failed"), " … (memline status --verbose lists all)", "let Memline read memory/0.md, or leave it out by memorySearch.exclude"),
    ("files_failed", WARNING, lambda p, _: unreadable(p, "not_text", path="sessions/{}.jsonl"), "1 file could not be read: ", "mend or remove sessions/0.jsonl"),
    ("in_batch", NOTE, lambda p, _: make_batch(p), "3 texts are in 1 batch at openai: batch_7 in_progress", "memline jobs"),
    ("batch_blocked", NOTE, lambda p, _: make_batch(p, error="502"), "batch cafe0123 is tried again: 502", ""),
]  # fmt: skip


def seen(findings, code, level, words):
    """The one finding with this code and level that says this."""
    (finding,) = (
        each for each in findings if (each.code, each.level) == (code, level) and words in each.what
    )
    return finding


@pytest.mark.parametrize(("code", "level", "state", "words", "action"), OF_AGENT, ids=row_ids(OF_AGENT))
def test_a_state_of_an_agent_is_found(place, monkeypatch, code, level, state, words, action):
    state(place, monkeypatch)

    finding = seen(found(place), code, level, words)

    assert finding.agent == "main" and finding.subject and action in finding.action


OF_COMMON: list[tuple[str, str, State, str, str]] = [
    ("redis_unusable", PROBLEM, redis_says("cannot be reached: refused"), "queue: Redis at 127.0.0.1 cannot be reached", "do this"),
    ("role_missing", WARNING, fleet_of(), "no worker takes messages from chunk, embed, store", "memline worker chunk embed store"),
    ("role_missing", WARNING, fleet_of("chunk", "embed", "query"), "no worker takes messages from store", "memline worker store"),
    ("role_missing", WARNING, fleet_of("chunk", "embed", "store", asked=1), "no worker takes messages from query", "memline worker query"),
    ("dead_letters", WARNING, fleet_of("chunk", dead=2), "queue: 2 messages failed for good", "memline queue dead"),
    ("old_settings", WARNING, fleet_of("store", newer_file="c.json5"), "memline worker store on h (process 1) runs with the settings of its start: c.json5 was changed since", "start it again: memline worker store"),
    ("no_watcher", NOTE, fleet_of("chunk"), "no memline watch runs in this fleet", "memline watch"),
    ("vectors_unavailable", NOTE, run_without("numpy"), "numpy is missing", "numpy"),
    ("vectors_unavailable", NOTE, run_without("sqlite-vec"), "sqlite-vec cannot be used (no such module); numpy stands in", "sqlite-vec"),
    ("vectors_unavailable", WARNING, run_without(), "numpy is missing, and sqlite-vec: no such module", "numpy"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "level", "state", "words", "action"), OF_COMMON, ids=row_ids(OF_COMMON))
def test_a_state_of_a_machine_or_a_fleet_is_found(place, monkeypatch, code, level, state, words, action):
    state(place, monkeypatch)

    finding = seen(list(check_common(place.settings, [place.agent])), code, level, words)

    assert finding.agent is None and action in finding.action


def test_a_value_of_the_configuration_without_effect_is_found(place):
    findings = check_common(replace(place.settings, warnings=("x has no effect",)), [place.agent])

    assert one(list(findings), "settings_without_effect").what == "x has no effect"


@pytest.mark.parametrize(
    ("error", "code"), [(IndexUnwritable("it is full"), "not_writable"), (IndexFault("x"), "index_unusable")]
)
def test_a_fault_that_ends_a_call_is_a_finding(place, error, code):
    first = of_fault(place.agent, error)[0]

    assert (first.code, first.what, first.agent) == (code, error.message, "main")


#: Pauses and stops -> whether texts are sent, and why not.
SENDING: list[tuple[str, State, Stop | None]] = [
    ("all", lambda p, _: verbs.pause(p.agent), Stop(code="paused")),
    ("one", lambda p, _: verbs.pause(p.agent, provider="openai"), Stop(code="paused")),
    ("another", lambda p, _: verbs.pause(p.agent, provider="voyage"), None),
    ("limit", reach_ceiling, Stop(code="ceiling_reached")),
    ("key", lambda p, _: p.configure(remote={}), Stop(code="provider_unusable")),
    ("outage", lambda p, _: open_breaker(p, "requests"), Stop(code="breaker_open")),
    ("batch outage", lambda p, _: open_breaker(p, "batch"), None),
    ("wait", lambda p, _: ask_to_wait(p, 45), Stop(code="rate_limited", passes=True)),
    ("workers", fleet_of("chunk", "embed"), Stop(code="role_missing", passes=True)),
    # The workers of a fleet embed, whatever this process could.
    ("no key here", lambda p, m: (p.configure(remote={}), fleet_of("chunk", "embed", "store")(p, m)), None),
    ("redis", redis_says("is away"), Stop(code="redis_unusable", passes=True)),
]  # fmt: skip


@pytest.mark.parametrize(("state", "stop"), [row[1:] for row in SENDING], ids=[row[0] for row in SENDING])
def test_texts_are_sent_unless_something_stops_them(place, monkeypatch, state, stop):
    want_texts(place)
    state(place, monkeypatch)

    assert agent_state(place.settings, place.agent).stop == stop


def test_what_is_at_work_is_a_note_without_advice(place):
    want_texts(place, 1628)

    # The process that sends them holds the lock of the index.
    with closing(hold(place.index_path, "index", time.time())):
        under_way, behind = (one(found(place), code) for code in ("vectors_behind", "files_behind"))
        ask_to_wait(place, 2, reason="503 overloaded", failures=1)
        retrying = one(found(place), "vectors_behind")
        ask_to_wait(place, 0, reason="503 overloaded", failures=1)
        in_flight = one(found(place), "vectors_behind")

    assert re.fullmatch(r"1,628 vectors are pending; 503 overloaded; goes on in \d s", retrying.what)
    assert in_flight.what == "1,628 vectors are pending; 503 overloaded"
    assert under_way.what == "1,628 vectors are pending"
    assert (under_way.level, under_way.action) == (behind.level, behind.action) == (NOTE, "")


@pytest.mark.parametrize(
    ("state", "level", "action"),
    [
        (fleet_of("chunk", "store", "embed"), NOTE, ""),
        (fleet_of("chunk", "store"), WARNING, "memline worker embed"),
        (redis_says("refuses the password"), WARNING, "do this"),
    ],
)
def test_what_a_fleet_lacks_is_started_and_not_done_by_hand(place, monkeypatch, state, level, action):
    want_texts(place)
    state(place, monkeypatch)

    finding = one(found(place), "vectors_behind")

    assert (finding.level, finding.action) == (level, action)


def test_a_key_that_was_tried_once_and_removed_leaves_one_note_and_nothing_pending(place):
    want_texts(place)
    place.configure(provider="auto", remote={}, sync={"onSearch": False})
    (place.workspace / "memory/notes.md").unlink()

    about_vectors = [each for each in found(place) if "vector" in each.what or "keyword" in each.what]
    answer = place.search("text")

    assert [(each.code, each.level) for each in about_vectors] == [("no_provider", NOTE)]
    assert answer.behind.vectors == 0
    assert not [each for each in answer.findings if each.code in ("question_not_embedded", "no_provider")]


def test_texts_in_a_batch_do_not_wait_for_what_holds_requests(place):
    # Three texts are in a batch, and two come later.
    make_batch(place)
    with writing(place) as writer:
        writer.store_file(file_row("late.md", "late 1", "late 2", at=9))
    verbs.pause(place.agent)

    assert one(found(place), "paused").what == "embedding is paused; 2 vectors are pending"


def damaged_with_rows(place, _):
    want_texts(place)
    with place.index_path.open("r+b") as file:
        file.write(b"garbage" * 200)


#: Findings whose command ends them when it is run in their state.
ENDED: list[tuple[str, State]] = [
    ("paused", lambda place, _: (want_texts(place), verbs.pause(place.agent))),
    ("breaker_open", lambda place, _: open_breaker(place, "requests", action="")),
    ("rate_limited", lambda place, _: ask_to_wait(place, 9_000)),
    ("job_paused", pause_a_job),
    ("model_differs", lambda place, _: (want_texts(place), place.configure(model="b"))),
    ("first_index_missing", lambda *_: None),
    ("files_behind", lambda place, _: want_texts(place)),
    ("vectors_behind", cancel_texts),
    ("index_unusable", damaged_with_rows),
    ("fallback_active", lambda place, _: put(place, meta.FALLBACK, {"from": "voyage", "reason": "no quota"})),
]

#: The others, and why no command ends them.
NOT_ENDED = {
    **dict.fromkeys(("workspace_missing", "root_emptied", "source_missing", "no_notes"), "the files are elsewhere"),
    **dict.fromkeys(("not_writable", "files_failed", "text_refused", "port_taken"), "a person mends a file"),
    **dict.fromkeys(("memory_disabled", "provider_unusable", "no_provider"), "a person edits the settings"),
    **dict.fromkeys(("ceiling_reached", "in_batch", "batch_blocked"), "the provider's time has to come"),
    **dict.fromkeys(("redis_unusable", "role_missing", "no_watcher", "old_settings"), "its process goes on"),
    **dict.fromkeys(("dead_letters", "settings_without_effect"), "the command shows what a person decides on"),
    **dict.fromkeys(("vectors_unavailable",), "it changes the installation"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "state"), ENDED, ids=[row[0] for row in ENDED])
def test_following_the_action_ends_the_finding(place, monkeypatch, code, state):
    with EmbeddingServer() as server:
        place.configure(remote={"baseUrl": server.url, "apiKey": "sk-test"})
        state(place, monkeypatch)
        # What it does stands behind some commands, in parentheses.
        action = next(each for each in found(place) if each.code == code).action.partition("   (")[0]

        cli.run(place.arguments(*shlex.split(action)[1:]))

        assert action.startswith("memline ")
        assert code not in {each.code for each in found(place)}


def leave_a_file_to_a_paused_job(place, _):
    want_texts(place, 0)
    with writing(place) as writer:
        job = make_job(writer, "memory/notes.md", now_ns=time.time_ns())
        jobs.change(writer.connection, job, jobs.PAUSED)


#: States of more than one thing, in which a command that helps elsewhere would not.
MIXED: list[tuple[str, State]] = [
    ("disabled", lambda place, _: place.configure(enabled=False)),
    ("a file of a paused job", leave_a_file_to_a_paused_job),
    ("paused, and another model", lambda p, _: (want_texts(p), verbs.pause(p.agent), p.configure(model="b"))),
    ("batches rest", lambda place, _: open_breaker(place, "batch", action="")),
    ("no model any more", lambda place, _: (want_texts(place), place.configure(provider="none"))),
]


@pytest.mark.parametrize("state", [row[1] for row in MIXED], ids=[row[0] for row in MIXED])
def test_each_command_that_is_named_helps(place, monkeypatch, state):
    with EmbeddingServer() as server:
        place.configure(remote={"baseUrl": server.url, "apiKey": "sk-test"})
        state(place, monkeypatch)
        named = [each for each in found(place) if each.action.startswith("memline ")]

        # The least urgent first: the others may have helped it.
        for each in reversed(named):
            cli.run(place.arguments(*shlex.split(each.action)[1:]))
            assert each.code not in {one.code for one in found(place)}


def test_every_condition_is_in_the_tables():
    codes = {test.__name__ for test in (*check.CHECKS, *check.COMMON_CHECKS)} | {"memory_disabled"}

    assert codes == {row[0] for row in (*OF_AGENT, *OF_COMMON)} | {"settings_without_effect"}
    assert codes == {row[0] for row in ENDED} | NOT_ENDED.keys()
