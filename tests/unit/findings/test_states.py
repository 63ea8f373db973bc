"""A state of rows, disk or Redis for every finding, and what is said of it."""

# A state of the table is a line.
# ruff: noqa: E501

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memline.producers.actions import provider_pauses
from memline.shared.errors import IndexFault, IndexUnwritable, MemlineError, QueueError
from memline.shared.finding import NOTE, PROBLEM, WARNING, Trouble
from memline.shared.findings import disk, facts, of_asking, of_host
from memline.shared.findings.diagnosis import of_common, of_end, of_error, of_troubles
from memline.shared.findings.table import AGENT, COMMON, rows
from memline.shared.index import jobs, meta
from memline.shared.index.accounts import AccountFile
from memline.shared.queue import depth
from memline.shared.scheduling import health, home_processes, leases
from memline.shared.scheduling.breaker import Health
from memline.shared.values import replace
from tests.support.index_rows import MODEL_B, add_batch, answer, fail, file_row, lease_all, make_job
from tests.support.workspace import Place
from tests.unit.findings.conftest import fleet_now, found, one, writing

PACKAGE = Path(__file__).parents[3] / "memline"

State = Callable[[Place, pytest.MonkeyPatch], object]


def want_texts(place: Place, count: int = 3) -> None:
    """Let the index know the place's note, and want so many vectors."""
    place.index_path.parent.mkdir(parents=True, exist_ok=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", *(f"text {number}" for number in range(count))))


def refuse_a_text(place: Place, _: pytest.MonkeyPatch) -> None:
    want_texts(place, 1)
    with writing(place) as writer:
        (request,) = lease_all(writer)
        fail(writer, request, "refused")


def keep_vectors(place: Place, count: int) -> None:
    """Fill a cache that has room for so many vectors."""
    want_texts(place, count)
    place.configure(cache={"maxEntries": count})
    with writing(place) as writer:
        answer(writer, lease_all(writer))
        writer.store_file(file_row("a.md", "another text", at=2))


def open_breaker(place: Place, *modes: str) -> None:
    want_texts(place)
    opened = Health(state="open", reason="bad key", action="check the key", probe_at=time.time() + 60)
    with writing(place) as writer, writer.session() as (_, now):
        for mode in modes:
            health.update(writer.accounts, "openai", mode, now, lambda _: opened)


def hold(place: Place, seconds: float, *, reason: str = "429", failures: int = 0) -> None:
    """The provider answered with a Retry-After."""
    want_texts(place)
    with writing(place) as writer, writer.session() as (_, now):
        asked = Health(reason=reason, failures=failures, retry_at=time.time() + seconds)
        health.update(writer.accounts, "openai", "requests", now, lambda _: asked)


def put(place: Place, key: str, value: Any) -> None:
    want_texts(place)
    with writing(place) as writer, writer.transaction() as (connection, _):
        meta.put(connection, key, value)


def reach_ceiling(place: Place, _: pytest.MonkeyPatch) -> None:
    text = json.loads(place.config.read_text())
    place.config.write_text(json.dumps(text | {"limits": {"maxTokensPerDay": 1}}))
    want_texts(place)


def pause_a_job(place: Place, _: pytest.MonkeyPatch) -> None:
    want_texts(place)
    with writing(place) as writer:
        jobs.pause(writer.connection, make_job(writer, "b.md"), by="me", now=time.time())


def cancel_texts(place: Place, _: pytest.MonkeyPatch) -> None:
    want_texts(place)
    with writing(place) as writer, writer.transaction() as (connection, _now):
        connection.execute("UPDATE vectors SET priority = 2")


def empty_the_root(place: Place, _: pytest.MonkeyPatch) -> None:
    for number in range(5):
        place.write(f"memory/{number}.md", f"Note {number}.")
    (place.workspace / "memory/notes.md").unlink(missing_ok=True)
    place.configure(provider="none")
    place.index()
    for file in (place.workspace / "memory").glob("*.md"):
        file.unlink()
    place.index()


def make_batch(place: Place, **columns: object) -> None:
    want_texts(place)
    fields = {"job_id": "batch_7", "provider_state": "in_progress", "rows": 3, "created_at": 1.0} | columns
    with writing(place) as writer:
        add_batch(writer, "cafe0123cafe", **fields)


def damage(place: Place, _: pytest.MonkeyPatch) -> None:
    place.index_path.parent.mkdir(parents=True)
    place.index_path.write_bytes(b"SQLite format 3\0" + b"garbage" * 200)


def newer_index(place: Place, _: pytest.MonkeyPatch) -> None:
    want_texts(place)
    place.execute("PRAGMA user_version = 9999")


def run_without(what: str = "") -> State:
    def state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        without = {what} if what else {"numpy", "sqlite-vec"}
        for module, name in ((of_asking, "lack"), (of_host, "lack_at_a_glance")):
            monkeypatch.setattr(module, name, lambda asked: "is missing" if asked in without else "")
            if "sqlite-vec" in without:
                monkeypatch.setattr(module.driver, "load_vec", lambda *_: "no such module")

    return state


def fleet_of(*roles: str, **options: Any) -> State:
    def state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
        now = {place.settings.queue.address: fleet_now(*roles, **options)}
        monkeypatch.setattr(facts, "_fleets", now)

    return state


def redis_says(words: str) -> State:
    def state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
        error = QueueError(f"Redis at 127.0.0.1 {words}", hint="do this")
        monkeypatch.setattr(facts, "_fleets", {place.settings.queue.address: (time.monotonic(), error)})

    return state


def enter(
    place: Place, kind: str, *, owner: str = "", boot: str = "", started: float = 1, **state: object
) -> None:
    """List a process of the home."""
    with closing(AccountFile(place.agent.account_path)) as file, file.writing() as connection:
        gone = f"{socket.gethostname()}:999999999:1"
        row = (kind, owner or gone, boot or home_processes._boot(), started, json.dumps(["main"]))
        connection.execute("INSERT INTO processes VALUES (?, ?, ?, ?, ?, ?)", (*row, json.dumps(state)))


def up_was_killed(place: Place, _: pytest.MonkeyPatch) -> None:
    place.home.mkdir(exist_ok=True)
    enter(place, "up")


def host_was_restarted(place: Place, _: pytest.MonkeyPatch) -> None:
    place.home.mkdir(exist_ok=True)
    enter(place, "up", boot="an earlier start")


def change_model(place: Place) -> None:
    """The index begins to be embedded with another model than before."""
    want_texts(place)
    with writing(place) as writer:
        answer(writer, lease_all(writer))
        writer.retarget(MODEL_B)
    place.configure(model="b")


def link(place: Place, name: str) -> None:
    """Let a note be a link to a file outside of the workspace."""
    target = place.workspace.parent / name
    target.write_text("A.")
    (place.workspace / "memory" / name).symlink_to(target)


def unreadable(place: Place, *outcomes: str, path: str = "memory/{}.md") -> None:
    """Let the index know files that could not be read."""
    place.index_path.parent.mkdir(parents=True, exist_ok=True)
    with writing(place) as writer:
        for number, outcome in enumerate(outcomes):
            writer.store_file(replace(file_row(path.format(number)), outcome=outcome, reason="why"))


def row_ids(table: list[tuple[str, str, State, str, str]]) -> list[str]:
    """Name the rows of a table of states by code and level."""
    return [f"{row[0]}-{row[1]}" for row in table]


OF_AGENT: list[tuple[str, str, State, str, str]] = [
    # code, level, state, a part of its words, its action
    ("workspace_missing", PROBLEM, lambda p, _: shutil.rmtree(p.workspace), "there is no folder", "agents.defaults.workspace), or put the folder back"),
    ("root_emptied", WARNING, empty_the_root, "5 files are gone from ", "put them back, or take them out"),
    ("memory_disabled", WARNING, lambda p, _: p.configure(enabled=False), "is disabled for this agent", "set memorySearch.enabled to true"),
    ("index_damaged", PROBLEM, damage, "is damaged", "memline index"),
    ("index_moved_aside", NOTE, lambda p, _: (want_texts(p), p.index_path.with_name("main.sqlite.corrupt-1").touch()), "moved aside, to", "delete it"),
    ("permissions", PROBLEM, lambda p, m: m.setattr(os, "access", lambda *_: False), "is not writable", "chmod u+w"),
    ("permissions", PROBLEM, lambda p, m: [m.setattr(disk, f"{name}_DISK_BYTES", 2**62) for name in ("LOW", "FULL")], "is full", "free space there"),
    ("following_fails", PROBLEM, lambda p, _: put(p, meta.LOOP_ERRORS, {"files": {"error": "no right", "action": "chmod", "since": 1.0}}), "cannot go on with its files: no right", "chmod"),
    ("engine_missing", PROBLEM, lambda p, m: (p.configure(fallback="local", local={"modelPath": "/none.gguf"}), m.setitem(sys.modules, "llama_cpp", None)), "the local model cannot run", "llama-cpp-python"),
    ("index_newer", PROBLEM, newer_index, "has schema 9999", ""),
    ("disk_almost_full", WARNING, lambda p, m: m.setattr(disk, "LOW_DISK_BYTES", 2**62), "MiB are free", "free space there"),
    ("first_index_missing", WARNING, lambda p, _: None, "nothing is indexed yet", "memline index"),
    ("no_note_is_read", PROBLEM, lambda p, _: (shutil.rmtree(p.workspace / "memory"), p.write("MEMORY.md.bak/a.md", "A."), p.write("memory/.keep", "")), "1 Markdown file below", "memorySearch.extraPaths"),
    ("no_notes", WARNING, lambda p, _: shutil.rmtree(p.workspace / "memory"), "there is no Markdown", "write a note"),
    ("source_missing", WARNING, lambda p, _: p.configure(extraPaths=["/none"]), "/none", "put it in its place"),
    ("source_missing", WARNING, lambda p, _: p.configure(experimental={"sessionMemory": True}, sources=["memory", "sessions"], transcripts=["codex"]), "sessions of Codex not readable", "change memorySearch.transcripts"),
    ("notes_beside", NOTE, lambda p, _: (p.write("docs/a.md", "A."), p.write("docs/b.MDX", "B.")), "beside MEMORY.md and memory/ 2 Markdown files are not read: docs/a.md, docs/b.MDX", "/docs"),
    ("long_term_misnamed", NOTE, lambda p, _: p.write("Memory.md", "A."), "Memory.md is not taken for the long-term note, which is called MEMORY.md", "/MEMORY.md"),
    ("links_skipped", NOTE, lambda p, _: link(p, "l.md"), "1 symbolic link is not followed: memory/l.md", "/l.md"),
    ("links_skipped", NOTE, lambda p, _: (link(p, "l.md"), link(p, "m.md")), "2 symbolic links are not followed: memory/l.md, memory/m.md", "put the files"),
    ("provider_without_key", PROBLEM, lambda p, _: p.configure(remote={}), "keyword search only: No API key found", "export OPENAI_API_KEY"),
    ("provider_unusable", PROBLEM, lambda p, _: p.configure(provider="local", local={"modelPath": "/none.gguf"}), "keyword search only: ", ""),
    ("paused", WARNING, lambda p, _: (want_texts(p), provider_pauses.pause(p.agent)), "embedding is paused; 3 vectors wait", "memline queue resume"),
    ("paused", WARNING, lambda p, _: (want_texts(p), provider_pauses.pause(p.agent, provider="openai", mode="requests")), "embedding is paused for requests to openai; 3 vectors wait", "memline queue resume --provider openai --mode requests"),
    ("paused", NOTE, lambda p, _: (want_texts(p, 0), provider_pauses.pause(p.agent)), "embedding is paused", "memline queue resume"),
    ("ceiling_reached", WARNING, reach_ceiling, "limits.maxTokensPerDay is reached", "embedding goes on at"),
    ("rate_limited", NOTE, lambda p, _: hold(p, 45), " s: 429; 3 vectors wait", ""),
    ("rate_limited", WARNING, lambda p, _: hold(p, 9_000), " h: 429; 3 vectors wait", "memline queue resume   (one request tries now"),
    # Failures before it make it no less a time that was named.
    ("rate_limited", WARNING, lambda p, _: hold(p, 9_000, reason="503 overloaded", failures=1), " h: 503 overloaded; 3 vectors wait", "memline queue resume"),
    ("rate_limited", WARNING, lambda p, _: hold(p, 9_000, reason=""), " h; 3 vectors wait", ""),
    ("breaker_open", PROBLEM, lambda p, _: open_breaker(p, "requests"), "requests to openai stopped, asked again in 60 s: bad key; 3 vectors wait", "check the key"),
    ("batches_stopped", NOTE, lambda p, _: open_breaker(p, "batch"), "batches to openai stopped, asked again in 60 s: bad key; requests go on", "check the key"),
    ("fallback_active", WARNING, lambda p, _: put(p, meta.FALLBACK, {"from": "voyage", "reason": "no quota"}), "the fallback openai embeds instead of voyage: no quota", "memline index"),
    ("model_differs", WARNING, lambda p, _: (want_texts(p), p.configure(model="b")), "3 texts to embed with openai b", "memline index"),
    ("model_changing", NOTE, lambda p, _: change_model(p), "the model changes to openai b: 3 texts to embed, 6 tokens", "memline jobs"),
    ("no_provider", NOTE, lambda p, _: p.configure(provider="auto", remote={}), "no embedding provider is configured", "export OPENAI_API_KEY"),
    ("key_unused", NOTE, lambda p, m: (m.setenv("OPENAI_API_KEY", "sk-x"), p.configure(provider="none")), "a key of openai is set and not used", "set memorySearch.provider to auto"),
    ("job_paused", WARNING, pause_a_job, "1 file and 0 vectors wait for the job ", "memline jobs resume "),
    ("text_refused", PROBLEM, refuse_a_text, "1 text got no vector: it was refused (a.md)", "change what the provider refuses in a.md"),
    ("batch_blocked", WARNING, lambda p, _: make_batch(p, error="403", action="make a key"), "batch cafe0123 cannot be collected: 403", "make a key"),
    ("files_behind", WARNING, lambda p, _: want_texts(p), "1 file is not in the index yet, and 1 removed one is still", "memline index"),
    ("files_behind", WARNING, lambda p, _: (want_texts(p), shutil.rmtree(p.workspace / "memory"), p.write("memory/.keep", "")), "1 removed file is still in the index", "memline index"),
    ("vectors_behind", WARNING, lambda p, _: want_texts(p), "3 vectors are not in the index yet", "memline index"),
    ("vectors_cancelled", WARNING, cancel_texts, "3 vectors were cancelled with their job", "memline index"),
    ("file_failed", WARNING, lambda p, _: (p.write("memory/b.md", b"\0\1\2"), p.configure(provider="none"), p.index()), "1 file could not be read: memory/b.md: ", "save memory/b.md as UTF-8, or leave it out by memorySearch.exclude"),
    ("file_failed", WARNING, lambda p, _: unreadable(p, "not_text", "not_text"), "2 files could not be read: memory/0.md: why; memory/1.md: why", "save each as UTF-8, or leave it out"),
    ("file_failed", WARNING, lambda p, _: unreadable(p, "too_large"), "1 file could not be read: memory/0.md: why", "split memory/0.md, or leave"),
    ("file_failed", WARNING, lambda p, _: unreadable(p, *["unreadable"] * 3, "failed"), "4 files could not be read: ", "mend each, or leave it out by memorySearch.exclude   (memline status --verbose lists them)"),
    ("file_failed", WARNING, lambda p, _: unreadable(p, "not_text", path="sessions/{}.jsonl"), "1 file could not be read: ", "mend or remove sessions/0.jsonl"),
    ("waiting_in_batch", NOTE, lambda p, _: make_batch(p, rows_done=2), "3 texts wait in 1 batch at openai (2 done there): batch_7 in_progress", "memline batch ls"),
    ("waiting_in_batch", NOTE, lambda p, _: make_batch(p, state="uploaded", job_id=""), "a batch is being sent, stored or cleaned up", ""),
    ("batch_delayed", NOTE, lambda p, _: make_batch(p, error="502"), "batch cafe0123 is tried again: 502", ""),
    ("cache_full", NOTE, lambda p, _: keep_vectors(p, 2), "the cache of vectors is full: 2 of 2 are kept", "raise memorySearch.cache.maxEntries"),
    ("vectors_unavailable", WARNING, run_without(), "numpy is missing, and sqlite-vec: no such module", "numpy"),
    ("extension_unusable", PROBLEM, lambda p, _: p.configure(store={"vector": {"extensionPath": "/none.so"}}), "store.vector.extensionPath cannot be loaded", "set store.vector.extensionPath"),
]  # fmt: skip


#: Code -> what a page says in place of rate and ETA, and whether that ends by itself.
HALTING = {
    "provider_without_key": ("the provider has no key", False),
    "provider_unusable": ("the provider cannot be used", False),
    "paused": ("paused", False),
    "ceiling_reached": ("the ceiling is reached", False),
    "breaker_open": ("the provider stopped", False),
    "rate_limited": ("the provider asked to wait", True),
    "waiting_in_batch": ("in a batch", True),
}


@pytest.mark.parametrize(("code", "level", "state", "words", "action"), OF_AGENT, ids=row_ids(OF_AGENT))
def test_a_state_of_an_agent_is_found(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    level: str,
    state: State,
    words: str,
    action: str,
) -> None:
    state(place, monkeypatch)

    finding = one(found(place), code)

    assert (finding.level, finding.agent) == (level, "main")
    assert words in finding.what and action in finding.action
    assert (finding.halts, finding.passes) == HALTING.get(code, ("", False))


def test_a_link_that_leads_nowhere_or_to_what_is_read_is_not_found(place: Place, tmp_path: Path) -> None:
    (wiki := tmp_path / "wiki").mkdir()
    (wiki / "w.md").write_text("A.")
    place.configure(extraPaths=[str(wiki)])
    place.write("memory/deep/a.md", "A.")
    targets = {"same.md": "a.md", "none.md": "none", "loop.md": "loop.md", "folder": "../deep"}
    for name, target in (targets | {"wiki": wiki, "w.md": wiki / "w.md"}).items():
        (place.workspace / "memory/deep" / name).symlink_to(target)

    assert "links_skipped" not in [each.code for each in found(place)]


def test_what_is_wrong_with_another_provider_than_that_of_the_texts_halts_none(place: Place) -> None:
    want_texts(place)
    provider_pauses.pause(place.agent, provider="voyage", mode="requests")

    assert one(found(place), "paused").halts == ""


def test_a_pause_of_batches_says_what_it_costs_while_requests_go_on(place: Place) -> None:
    want_texts(place)
    provider_pauses.pause(place.agent, provider="openai", mode="batch")
    of_batches = one(found(place), "paused")
    provider_pauses.pause(place.agent, provider="openai", mode="requests")

    told = [each.what for each in found(place) if each.code == "paused"]
    words = "embedding is paused for batch to openai"
    assert of_batches.what == f"{words}; texts go out in requests, at full price"
    assert (of_batches.level, of_batches.halts) == (NOTE, "")
    assert words in told


def test_texts_in_a_batch_do_not_wait_for_what_holds_requests(place: Place) -> None:
    want_texts(place)
    # Three texts are in a batch, and two come later.
    make_batch(place)
    with writing(place) as writer:
        writer.store_file(file_row("late.md", "late 1", "late 2", at=9))
    provider_pauses.pause(place.agent)

    assert one(found(place), "paused").what == "embedding is paused; 2 vectors wait"


def test_a_fallback_that_stopped_as_well_is_a_problem_for_which_the_texts_wait(place: Place) -> None:
    open_breaker(place, "requests")
    put(place, meta.FALLBACK, {"from": "voyage", "reason": "no quota"})

    finding = one(found(place), "breaker_open")

    assert (finding.level, finding.halts) == (PROBLEM, "the provider stopped")
    assert finding.what.endswith("bad key; 3 vectors wait")


def test_workers_embed_whatever_a_process_without_a_key_could(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(facts._fleets, "redis://h/0", fleet_now("embed", "store"))
    place.configure(remote={})

    assert one(found(place), "provider_without_key").halts
    assert not one(found(place, queue="redis://h/0"), "provider_without_key").halts


MET = [
    "stalled",
    "batch_failed",
    "provider_fails",
    "qmd_failing",
    "question_not_embedded",
    "model_switching",
    "dimensions_differ",
    "index_empty",
    "source_off",
    "chat_refused",
    "vectors_unavailable",
    "index_damaged",
]


@pytest.mark.parametrize("code", MET)
def test_what_reading_met_is_put_into_words(place: Place, code: str) -> None:
    names = (
        "reason",
        "minutes",
        "vectors",
        "batch",
        "sent_in",
        "error",
        "provider",
        "source",
        "chat",
        "keys",
    )
    details = {name: f"<{name}>" for name in names}

    (plain,) = of_troubles(place.agent, Trouble(code=code, details=details))
    (advised,) = of_troubles(place.agent, Trouble(code=code, details=details, action="do this"))

    assert plain.code == code and plain.action
    assert "<" in plain.what or code in ("model_switching", "index_empty")
    assert advised.action == "do this" or code == "vectors_unavailable"


OF_COMMON: list[tuple[str, str, State, str, str]] = [
    ("redis_unreachable", PROBLEM, redis_says("cannot be reached: refused"), "queue: Redis at 127.0.0.1 cannot be reached", "do this"),
    ("redis_evicting", PROBLEM, redis_says("evicts keys when memory is short"), "evicts keys", "do this"),
    ("redis_full", PROBLEM, redis_says("is out of memory"), "is out of memory", "do this"),
    ("role_missing", WARNING, fleet_of(), "queue: no worker is alive", "memline worker chunk embed store"),
    ("role_missing", WARNING, fleet_of("chunk", "embed", "query"), "no worker takes messages from store", "memline worker store"),
    ("role_missing", WARNING, fleet_of("chunk", "embed", "store", asked=1), "no worker takes messages from query", "memline worker query"),
    ("worker_other_version", WARNING, fleet_of("chunk", version="0.1"), "queue: 1 worker is of version 0.1, this is ", "start them again"),
    ("dead_letters", WARNING, fleet_of("chunk", dead=2), "queue: 2 messages failed for good", "memline queue dead"),
    ("worker_ended", WARNING, fleet_of("chunk", failure="killed"), "a worker ended in the last ten minutes: killed", "look into its log"),
    ("old_settings", WARNING, fleet_of("store", newer_file="c.json5"), "memline worker store on h (process 1) runs with the settings of its start: c.json5 was changed since", "start it again"),
    ("no_watcher", WARNING, up_was_killed, "memline up ended without a word", "memline up"),
    ("no_watcher", NOTE, host_was_restarted, "memline up ended without a word", "memline up"),
    ("watches_exhausted", WARNING, lambda p, m: m.setattr(of_host, "MIN_WATCHES", 2**40), "inotify watches, too few", "sudo sysctl"),
    ("numpy_missing", NOTE, run_without("numpy"), "numpy is missing", "numpy"),
    ("sqlite_vec_missing", NOTE, run_without("sqlite-vec"), "no such module; vectors are searched without it", "sqlite-vec"),
    ("sqlite_vec_missing", WARNING, run_without(), "no such module; numpy is missing: no vector is searched", " numpy "),
]  # fmt: skip


@pytest.mark.parametrize(("code", "level", "state", "words", "action"), OF_COMMON, ids=row_ids(OF_COMMON))
def test_a_state_of_a_machine_or_a_fleet_is_found(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    level: str,
    state: State,
    words: str,
    action: str,
) -> None:
    state(place, monkeypatch)

    finding = one(list(of_common(place.settings, [place.agent])), code)

    assert (finding.level, finding.agent) == (level, None)
    assert words in finding.what and action in finding.action


def test_a_value_of_the_configuration_without_effect_is_found(place: Place) -> None:
    found = of_common(place.settings, [place.agent], ["x has no effect"])

    assert one(list(found), "settings_without_effect").what == "x has no effect"


FAULTS = [
    (IndexUnwritable("the disk is full"), "permissions"),
    (IndexFault("it belongs to another program"), "index_unusable"),
]


@pytest.mark.parametrize(("error", "code"), FAULTS)
def test_a_fault_that_ends_a_call_is_a_finding(place: Place, error: IndexFault, code: str) -> None:
    assert of_error(place.agent, error)[0].what == error.message
    assert of_error(place.agent, error)[0].code == code


def test_what_is_at_work_is_a_note_with_its_rate_and_no_advice(place: Place) -> None:
    want_texts(place, 1628)
    with writing(place) as writer, writer.transaction() as (connection, now):
        bucket = int(now) // meta.BUCKET_S
        meta.put(connection, meta.EMBEDDED_RECENTLY, [[bucket - 3, 33 * 30 + 33 * int(now) % meta.BUCKET_S]])
    enter(place, "index", owner=leases.current_owner())

    under_way = one(found(place), "embedding_under_way")

    assert (under_way.level, under_way.action) == (NOTE, "")
    assert re.fullmatch(r"1,628 vectors on the way, \d+ a second, about \d+ s", under_way.what)
    assert "vectors_behind" not in {each.code for each in found(place)}
    assert (one(found(place), "files_behind").level, one(found(place), "files_behind").action) == (NOTE, "")


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        (("Memory.md", "memory/a.md"), True),
        (("MEMORY.markdown", "memory/a.md"), True),
        (("MEMORY.markdown", "page.md"), True),
        (("Memory.md", "MEMORY.md"), False),
        # A page of a wiki.
        (("Memory.md", "page.md"), False),
        (("memories.md", "memory/a.md"), False),
    ],
)
def test_a_long_term_note_in_another_spelling_is_told_until_it_is_moved(
    place: Place, files: tuple[str, str], is_told: bool
) -> None:
    shutil.rmtree(place.workspace / "memory")
    for name in files:
        place.write(name, "A.")

    told = [each for each in found(place) if each.code == "long_term_misnamed"]

    assert bool(told) == is_told
    # One file, one advice.
    assert not (is_told and any(each.code == "notes_beside" for each in found(place)))
    for each in told:
        subprocess.run(shlex.split(each.action), check=True)
        assert "long_term_misnamed" not in {each.code for each in found(place)}


def test_no_finding_advises_a_command_that_redis_would_refuse(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    want_texts(place)
    assert one(found(place), "vectors_behind").action == "memline index"

    redis_says("refuses the password")(place, monkeypatch)

    told = found(place, queue=place.settings.queue.address)
    assert one(told, "vectors_behind").action == "Redis at 127.0.0.1 refuses the password; do this"
    assert not any(each.action.startswith("memline index") for each in told)


def test_a_fleet_that_embeds_is_at_work(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    want_texts(place)
    fleet_of("chunk", "store", "embed")(place, monkeypatch)

    codes = {each.code for each in found(place, queue=place.settings.queue.address)}

    assert "embedding_under_way" in codes and "vectors_behind" not in codes


def test_a_provider_that_asked_to_wait_is_told_once(place: Place) -> None:
    hold(place, 45)
    enter(place, "index", owner=leases.current_owner())

    codes = {each.code for each in found(place)}

    assert "rate_limited" in codes and not codes & {"embedding_under_way", "vectors_behind"}


def test_a_redis_without_memory_has_no_word_of_who_is_alive(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet_of()(place, monkeypatch)
    at, fleet = facts._fleets[place.settings.queue.address]
    assert isinstance(fleet, depth.Fleet)
    full = replace(fleet, error=QueueError("Redis at 127.0.0.1 is out of memory"))
    monkeypatch.setattr(facts, "_fleets", {place.settings.queue.address: (at, full)})

    codes = [each.code for each in of_common(place.settings, [place.agent])]

    assert "redis_full" in codes and "role_missing" not in codes


@pytest.mark.parametrize("code", ["settings_unusable", "not_examined"])
@pytest.mark.parametrize("hint", ["memline config path", ""])
def test_an_error_that_ends_the_examination_is_a_finding(code: str, hint: str) -> None:
    finding = of_end(code, MemlineError("it broke", hint=hint))

    assert (finding.code, finding.level, finding.what, finding.agent) == (code, PROBLEM, "it broke", None)
    assert finding.action == (hint or {"settings_unusable": "memline config check"}.get(code, ""))


def test_every_finding_is_made_by_the_table() -> None:
    made = {
        path.relative_to(PACKAGE).as_posix(): len(re.findall(r"\bFinding\(", path.read_text("utf-8")))
        for path in PACKAGE.rglob("*.py")
    }

    # The lines of doctor that say what is well have no code.
    doctor = "producers/reports/doctor.py"
    assert {file for file, count in made.items() if count} == {"shared/findings/table.py", doctor}
    assert made[doctor] == 1 and 'Finding(code="", level=OK' in (PACKAGE / doctor).read_text("utf-8")


def test_every_row_of_the_table_has_a_state_here() -> None:
    by_themselves = {"settings_without_effect", "embedding_under_way"}
    by_themselves |= {"settings_unusable", "not_examined"}
    of_lists = {row[0] for row in (*OF_AGENT, *OF_COMMON)} | {code for _, code in FAULTS}

    assert {row.code for kind in (AGENT, COMMON) for row in rows(kind)} == of_lists | {*MET} | by_themselves
