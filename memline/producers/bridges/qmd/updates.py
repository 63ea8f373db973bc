"""Keep qmd's index up to date: at the start, every few minutes and after changes, beside the questions."""

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress

from memline.producers.bridges.qmd.home import QmdFailed, QmdHome
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.logs import Log
from memline.shared.sessions.transcripts import transcripts_of
from memline.shared.sources.discover import DiscoveredFile, discover

#: How an export begins, before the name of its session; a file without it is not ours to remove.
_TITLE = "# Session "

_DAY_S = 86_400.0

_log = Log("qmd")


class Updater:
    """Updates the index of qmd for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self, settings: AgentSettings, *, clock: Clock | None = None, long_lived: bool = True
    ) -> None:
        """A process that stays, `long_lived`, updates at once, unless the configuration says no."""
        self._settings, self._qmd = settings, settings.content.memory.qmd
        self.home = QmdHome(settings)
        self._clock = clock or SystemClock()
        self._made_at = self._clock.now()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        if long_lived and self._qmd.update.on_boot:
            self.start()

    def close(self) -> None:
        """End what runs, and wait for it."""
        self.home.stop()
        self.wait()

    def start_when_due(self, *, changed: bool) -> bool:
        """Begin an update that is due by its interval, or after a change by its debounce."""
        update = self._qmd.update
        age_s = self._clock.now() - (self.home.state.tried_at or self._made_at)
        is_due = (changed and age_s >= update.debounce_ms / 1000) or 0 < update.interval * 60 <= age_s
        return is_due and self.start()

    def start(self) -> bool:
        """Begin an update in the background; False while one runs."""

        def update() -> None:
            # What failed is in the state, and in the log.
            with suppress(QmdFailed):
                self.run()
                self.embed()

        with self._lock:
            if self.home.is_stopped or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(target=update, name="qmd-update", daemon=True)
            self._thread.start()
        return True

    def wait(self) -> None:
        """Wait for the update that runs in the background, if one does."""
        if (thread := self._thread) is not None:
            thread.join()

    def run(self) -> None:
        """Update now. Raises QmdFailed."""
        home, now = self.home, self._clock.now()
        home.make()
        home.save(tried_at=now)
        try:
            self._export()
            files = len(self._files())
            self._make_collections()
            home.run("update", timeout_ms=self._qmd.update.update_timeout_ms)
        except (QmdFailed, IndexFault, OSError) as error:
            failed = error if isinstance(error, QmdFailed) else QmdFailed(f"sessions: {error}")
            if not home.is_stopped:
                _log.warning("qmd.update_failed", agent=self._settings.agent, error=failed.message)
            # What it has may be half of it, or nothing.
            home.save(updated_at=0.0, error=failed.message, action=failed.hint, error_at=self._clock.now())
            raise failed from None
        done = {"started_at": now, "updated_at": self._clock.now(), "files": files}
        # It is asked again at once.
        home.save(**done, error="", action="", error_at=0.0)
        _log.info("qmd.updated", agent=self._settings.agent, files=files)

    def embed(self, *, forced: bool = False) -> None:
        """Make the vectors that are missing, if the mode needs them and it is due; a failure is noted."""
        update, now = self._qmd.update, self._clock.now()
        is_due = forced or now - self.home.state.embedded_at >= update.embed_interval * 60
        if self._qmd.search_mode == "search" or not is_due:
            return
        try:
            self.home.run("embed", timeout_ms=update.embed_timeout_ms)
        except QmdFailed as error:
            _log.warning("qmd.embed_failed", agent=self._settings.agent, error=error.message)
            self.home.save(error=error.message, action=error.hint)
        else:
            self.home.save(embedded_at=now)

    def behind(self) -> int:
        """Count the files that changed, came or went since the last update began."""
        state, changed_ns = self.home.state, self._files()
        newer = sum(1 for changed in changed_ns if changed >= state.started_at * 1e9)
        return max(newer, abs(len(changed_ns) - state.files))

    def _files(self) -> list[int]:
        """Return when each file of the memory was changed last, in ns since the epoch."""
        found = list(discover(self.home.paths).files)
        if self._qmd.sessions.enabled and (past := transcripts_of(self._settings)):
            found += past.discover().files
        return [max(file.mtime_ns, file.ctime_ns) for file in found if file.problem is None]

    def _make_collections(self) -> None:
        """Make those that are missing, and remove those that are not wanted or are of another folder."""
        collections = self.home.collections.items()
        wanted = {name: (each.root, each.mask) for name, each in collections if each.is_there}
        known, limit = self.home.state.collections, self._qmd.update.command_timeout_ms
        for name in known.keys() | wanted.keys():
            if known.get(name) == wanted.get(name):
                continue
            # Also one that is not known: the note of it may be lost.
            with suppress(QmdFailed):
                self.home.run("collection", "remove", name, timeout_ms=limit)
            if name in wanted:
                root, mask = wanted[name]
                self.home.run("collection", "add", root, "--name", name, "--mask", mask, timeout_ms=limit)
        self.home.save(collections=wanted)

    def _export(self) -> None:
        """Make the folder of exports agree with the transcripts: written anew, or deleted. Raises OSError.

        An export has the time of its transcript, so one that did not change is not written again.
        """
        sessions, folder = self._qmd.sessions, self.home.exports
        wanted: dict[str, DiscoveredFile] = {}
        source = transcripts_of(self._settings) if sessions.enabled else None
        oldest = self._clock.now() - sessions.retention_days * _DAY_S if sessions.retention_days else 0.0
        for file in source.discover().files if source else ():
            if file.problem is None and file.mtime_ns / 1e9 >= oldest:
                wanted[os.path.basename(file.path).removesuffix(".jsonl") + ".md"] = file
        for path in folder.glob("*.md"):
            if path.name not in wanted and path.read_text("utf-8", "replace").startswith(_TITLE + path.stem):
                path.unlink(missing_ok=True)
        for name, file in wanted.items():
            path = folder / name
            if source is None or (path.exists() and path.stat().st_mtime_ns == file.mtime_ns):
                continue
            read = source.read(file.path, max_tokens=400, overlap_tokens=0, clock=self._clock)
            said = "".join(f"{chunk.text}\n" for chunk in read.chunks) or "(empty)\n"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_name(f".{name}.{os.getpid()}.part")
            part.touch(mode=0o600)
            part.write_text(f"{_TITLE}{path.stem}\n\n{said}", "utf-8")
            os.utime(part, ns=(file.mtime_ns, file.mtime_ns))
            part.replace(path)


class QmdUpdates(ExitStack):
    """Updates qmd for those of some agents that have it, from a loop that stays: `up` and `watch`."""

    def __init__(self, agents: Sequence[AgentSettings]) -> None:
        super().__init__()
        self._changed = set[str]()
        with_qmd = [each for each in agents if each.content.memory.backend == "qmd"]
        self._updaters = {each.agent: self.enter_context(closing(Updater(each))) for each in with_qmd}

    def changed(self, settings: AgentSettings) -> None:
        """Note that files of an agent changed; for any thread."""
        self._changed.add(settings.agent)

    def tick(self) -> None:
        """Begin what is due."""
        for agent, updater in self._updaters.items():
            # One that runs may have read the file before: the note stays until another begins.
            if updater.start_when_due(changed=agent in self._changed):
                self._changed.discard(agent)
