"""Keep qmd's index up to date: at the start, every few minutes and after changes, beside the questions.

One process at a time updates: a lock on a file, which `qmd update` inherits, so that it is held for as long
as that runs even when this process is killed. `qmd embed` has a lock of its own and runs beside it.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from memline.producers.bridges.qmd.collections import Collection, Collections, export
from memline.producers.bridges.qmd.home import QmdFailed, QmdHome
from memline.shared import programs
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.logs import Log
from memline.shared.sources.discover import discover
from memline.shared.sources.transcripts.formats import transcripts_of

#: Seconds between two attempts of a forced update to get the lock.
_LOCK_POLL_S = 0.1

#: Seconds after which `qmd embed` is tried again when it failed: doubled each time, at most the last.
_EMBED_BACKOFF_S = (60.0, 3_600.0)

#: The modes that need vectors.
_WITH_VECTORS = ("query", "vsearch")

#: The files of the home that say what was done, and why the builtin index answers.
UPDATE, EMBED, FAILED = "update.json", "embed.json", "failed.json"

_log = Log("qmd")


class Updater:
    """Updates the index of qmd for one agent. Safe to use from several threads; close it when done."""

    def __init__(self, settings: AgentSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self.home = QmdHome(settings)
        self._clock = clock or SystemClock()
        self._made_at = self._clock.now()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._embedding: threading.Thread | None = None
        #: Whether a forced update is to follow the one that runs.
        self._is_queued = False

    def close(self) -> None:
        """End what runs, and wait for it."""
        atexit.unregister(self.close)
        self._stopped.set()
        with self._lock:
            threads = (self._running, self._embedding)
        for thread in threads:
            if thread is not None:
                thread.join()

    @property
    def state(self) -> dict[str, Any]:
        """Return what the last update did: `startedAt`, `updatedAt`, `files`, `collections`, `error`."""
        return self.home.read(UPDATE)

    def due(self, *, changed: bool = False) -> bool:
        """Say whether an update is due by its interval, or after a change by its debounce."""
        update, state, now = self._settings.qmd.update, self.state, self._clock.now()
        age_s = now - float(state.get("triedAt", self._made_at))
        every_s = update.interval * 60
        return (changed and age_s >= update.debounce_ms / 1000) or 0 < every_s <= age_s

    def start(self, *, forced: bool = False) -> bool:
        """Begin an update in the background; while one runs a forced one is queued, another one refused."""
        with self._lock:
            if self._stopped.is_set():
                return False
            if self._running is not None:
                self._is_queued |= forced
                return forced
            self._running = threading.Thread(target=self._in_background, args=(forced,), name="qmd-update")
            self._running.daemon = True
            self._running.start()
        # What it runs ends with this process, also when that closes nothing.
        atexit.register(self.close)
        return True

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the update that runs in the background, if one does."""
        with self._lock:
            thread = self._running
        if thread is not None:
            thread.join(timeout_s)

    def run(self, *, forced: bool = False) -> bool:
        """Update now; False when another process does, or has just done. Raises QmdFailed.

        `forced` waits for the other one and updates again.
        """
        home = self.home
        home.make()
        with self._locked("update", waits=forced) as lock:
            update, state, now = self._settings.qmd.update, self.state, self._clock.now()
            just_done = now - float(state.get("updatedAt", 0)) < update.debounce_ms / 1000
            if lock is None or (just_done and not forced and not state.get("error")):
                return False
            home.write(UPDATE, {**state, "triedAt": now})
            state |= {"triedAt": now, "startedAt": now, "error": "", "action": ""}
            try:
                with self._failing_on_disk():
                    export(self._settings, home.exports, clock=self._clock)
                    state["files"] = len(self._files())
                    state["collections"] = self._make_collections(state.get("collections", {}), lock)
                self._command("update", timeout_ms=update.update_timeout_ms, lock=lock)
            except QmdFailed as error:
                failed = {"error": error.message, "action": error.hint}
                home.write(UPDATE, {**self.state, "triedAt": now, **failed})
                raise
            home.write(UPDATE, {**state, "updatedAt": self._clock.now()})
            # It is asked again at once.
            home.remove(FAILED)
        _log.info("qmd.updated", agent=self._settings.agent, files=state["files"])
        return True

    def embed(self, *, forced: bool = False) -> None:
        """Make the vectors that are missing, if the mode needs them and it is due; a failure is noted."""
        if self._settings.qmd.search_mode not in _WITH_VECTORS:
            return
        with self._locked("embed", waits=False) as lock:
            state, now = self.home.read(EMBED), self._clock.now()
            if lock is None or not (forced or now >= self._embed_due(state)):
                return
            try:
                self._command("embed", timeout_ms=self._settings.qmd.update.embed_timeout_ms, lock=lock)
            except QmdFailed as error:
                failures = int(state.get("failures", 0)) + 1
                self.home.write(
                    EMBED, {**state, "triedAt": now, "failures": failures, "error": error.message}
                )
                _log.warning("qmd.embed_failed", agent=self._settings.agent, error=error.message)
            else:
                self.home.write(EMBED, {"triedAt": now, "embeddedAt": self._clock.now()})

    def behind(self) -> int:
        """Count the files that changed, came or went since the last update began."""
        state = self.state
        since_ns = float(state.get("startedAt", 0)) * 1e9
        changed_ns = self._files()
        newer = sum(1 for changed in changed_ns if changed >= since_ns)
        return max(newer, abs(len(changed_ns) - int(state.get("files", 0))))

    def _files(self) -> list[int]:
        """Return when each file of the memory was changed last, in ns since the epoch."""
        found = list(discover(Collections(self._settings, self.home).paths).files)
        if self._settings.qmd.sessions.enabled and (past := transcripts_of(self._settings)):
            found += past.discover().files
        return [max(file.mtime_ns, file.ctime_ns) for file in found if file.problem is None]

    def _in_background(self, forced: bool) -> None:
        while True:
            try:
                if self.run(forced=forced):
                    self._start_embedding(forced)
            except QmdFailed as error:
                if not self._stopped.is_set():
                    _log.warning("qmd.update_failed", agent=self._settings.agent, error=error.message)
            except Exception as error:
                # The thread's boundary: a fault here must not end what answers questions.
                _log.error("qmd.update_failed", agent=self._settings.agent, error=repr(error))
            with self._lock:
                if not self._is_queued or self._stopped.is_set():
                    self._running = None
                    return
                forced, self._is_queued = True, False

    def _start_embedding(self, forced: bool) -> None:
        with self._lock:
            if self._stopped.is_set() or (self._embedding is not None and self._embedding.is_alive()):
                return
            self._embedding = threading.Thread(target=self.embed, kwargs={"forced": forced}, name="qmd-embed")
            self._embedding.daemon = True
            self._embedding.start()

    def _embed_due(self, state: dict[str, Any]) -> float:
        tried = float(state.get("triedAt", 0))
        if failures := int(state.get("failures", 0)):
            first, longest = _EMBED_BACKOFF_S
            return tried + min(longest, first * 2.0 ** (failures - 1))
        return tried + self._settings.qmd.update.embed_interval * 60 if tried else 0.0

    def _make_collections(self, known: object, lock: int) -> dict[str, list[str]]:
        """Make those that are missing, and remove those that are not wanted or are of another folder."""
        wanted = {each.name: each for each in Collections(self._settings, self.home).present()}
        before = known if isinstance(known, dict) else {}
        limit = self._settings.qmd.update.command_timeout_ms
        listed = listed_names(
            self._command("collection", "list", "--json", timeout_ms=limit, lock=lock).stdout
        )
        for name in listed:
            if name not in wanted or before.get(name) != _place(wanted[name]):
                self._command("collection", "remove", name, timeout_ms=limit, lock=lock)
        for name, each in wanted.items():
            if name in listed and before.get(name) == _place(each):
                continue
            add = ("collection", "add", each.root, "--name", name, "--mask", each.mask)
            try:
                self._command(*add, timeout_ms=limit, lock=lock)
            except QmdFailed as error:
                if "exists" not in error.message:
                    raise
        return {name: _place(each) for name, each in wanted.items()}

    def _command(self, *args: str, timeout_ms: int, lock: int) -> programs.Ran:
        is_stopped = self._stopped.is_set
        return self.home.run(*args, timeout_ms=timeout_ms, keep_open=(lock,), is_stopped=is_stopped)

    @contextmanager
    def _locked(self, name: str, *, waits: bool) -> Iterator[int | None]:
        """Hold a lock among all processes; None when another has it and `waits` is False."""
        with self._failing_on_disk():
            opened = os.open(self.home.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not (is_ours := _try_lock(opened)) and waits and not self._stopped.wait(_LOCK_POLL_S):
                pass
            try:
                yield opened if is_ours else None
            finally:
                if is_ours:
                    # By name, not by closing: what the program left behind may have it open.
                    fcntl.flock(opened, fcntl.LOCK_UN)
        finally:
            os.close(opened)

    @contextmanager
    def _failing_on_disk(self) -> Iterator[None]:
        try:
            yield
        except IndexFault as error:
            raise QmdFailed(f"sessions are not exported: {error.message}", hint=error.hint) from None
        except OSError as error:
            raise QmdFailed(f"qmd's files cannot be written: {error.strerror} ({error.filename})") from None


def listed_names(stdout: str) -> set[str]:
    """Read the names out of `qmd collection list --json`: an array of texts or objects, or (2.x) prose."""
    with suppress(ValueError, RecursionError):
        listed = json.loads(stdout)
        names = [each.get("name") if isinstance(each, dict) else each for each in listed]
        return {name for name in names if isinstance(name, str)}
    lines = (line.partition(" (qmd://") for line in stdout.splitlines())
    return {name.strip() for name, mark, _ in lines if mark and name.strip()}


def _place(collection: Collection) -> list[str]:
    return [collection.root, collection.mask]


def _try_lock(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class QmdUpdates:
    """Updates qmd for those of some agents that have it, from a loop that stays: `up` and `watch`."""

    def __init__(
        self,
        agents: Sequence[AgentSettings],
        *,
        make: Callable[[AgentSettings], Updater] = Updater,
    ) -> None:
        mine = [each for each in agents if each.backend == "qmd"]
        self._updaters = {each.agent: make(each) for each in mine}
        self._changed = set[str]()
        self._lock = threading.Lock()
        for each in mine:
            if each.qmd.update.on_boot:
                self._updaters[each.agent].start(forced=True)

    def __enter__(self) -> QmdUpdates:
        return self

    def __exit__(self, *_: object) -> None:
        for updater in self._updaters.values():
            updater.close()

    def changed(self, settings: AgentSettings) -> None:
        """Note that files of an agent changed; for any thread."""
        with self._lock:
            self._changed.add(settings.agent)

    def tick(self) -> None:
        """Begin what is due."""
        for agent, updater in self._updaters.items():
            with self._lock:
                is_changed = agent in self._changed
            if updater.due(changed=is_changed):
                with self._lock:
                    self._changed.discard(agent)
                if not updater.start() and is_changed:
                    # The one that runs may have read the file before.
                    self._changed.add(agent)
