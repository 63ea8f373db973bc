"""Look at the files of all agents for the pages, in a thread, as often as what a look costs allows.

What rows and Redis say is no older than two seconds on a page; how the index compares to the files may be,
and says its age. A look at all files takes 7 ms for 300 notes, and 0.1 s for 5,000.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from memline.producers.builtin import troubles_of
from memline.producers.reports.doctor import examine_agent, examine_common
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault, MemlineError
from memline.shared.finding import OK, Finding
from memline.shared.findings.diagnosis import codes_from, of_agent, of_end, queue_of
from memline.shared.index import driver
from memline.shared.sync.plan import FILES_EVERY_S, FILES_SHARE, IndexState, Plan, make_plan, read_index_state
from memline.shared.values import replace, value

#: Seconds between two looks at what `memline doctor` examines beside, at least, and the part of the time that
#: they may take: whether SQLite finds the file whole, what is well.
EXAMINED_EVERY_S, EXAMINED_SHARE = 60.0, 1 / 1_000

#: Seconds that the first reader waits for the first look.
WAIT_S = 1.5

#: What takes a look at the disk and costs next to nothing: asked for with the rows.
CHEAP = frozenset(("index_damaged", "permissions", "disk_almost_full"))


@value
class Look:
    """What the last looks at the files of one agent found."""

    #: When they were compared with the index, seconds since the epoch; 0: not yet.
    at: float = 0.0
    files_behind: int = 0
    plan: Plan | None = None
    findings: tuple[Finding, ...] = ()
    #: What is well, and an index file that is damaged.
    examined: tuple[Finding, ...] = ()
    #: Which file was examined.
    file: object = None
    #: What was there of the folders, by `_roots`.
    roots: tuple[bool, ...] = ()


class FileLooks:
    """Keeps what the last looks found; each begins when it is asked for and due."""

    def __init__(self, settings: Settings, agents: Sequence[AgentSettings]) -> None:
        self._settings = settings
        self._agents = tuple(agents)
        self._queue = queue_of(settings)
        self._lock = threading.Lock()
        self._known: dict[str, Look] = {}
        #: Monotonic seconds.
        self._files_due = self._examined_due = 0.0
        self._looking: threading.Event | None = None
        #: What is well with the machine and with Redis, and what it lacks.
        self.common: tuple[Finding, ...] = ()

    def of(self, settings: AgentSettings) -> Look:
        """Return the last look at an agent; not what was said of a file that is gone."""
        look = self._known.get(settings.agent, Look())
        if look.at and look.roots != _roots(settings):
            self.forget()
        if look.examined and look.file != driver.file_id(settings.index_path):
            return replace(look, examined=tuple(each for each in look.examined if each.level == OK))
        return look

    @property
    def is_first(self) -> bool:
        """Whether no look has ended yet."""
        return len(self._known) < len(self._agents)

    def begin(self, wait_s: float = 0.0) -> None:
        """Begin a look if one is due, and wait so many seconds for its end."""
        with self._lock:
            if self._looking is None and time.monotonic() >= min(self._files_due, self._examined_due):
                self._looking = threading.Event()
                threading.Thread(
                    target=self._look, args=(self._looking,), name="file looks", daemon=True
                ).start()
            looking = self._looking
        if looking is not None and wait_s:
            looking.wait(wait_s)

    def forget(self) -> None:
        """Make the next look due: something was changed."""
        with self._lock:
            self._files_due = 0.0

    def _look(self, done: threading.Event) -> None:
        try:
            if time.monotonic() >= self._files_due:
                began_s = time.thread_time()
                for settings in self._agents:
                    self._compare(settings)
                pause_s = max(FILES_EVERY_S, (time.thread_time() - began_s) / FILES_SHARE)
                self._files_due = time.monotonic() + pause_s
            if time.monotonic() >= self._examined_due:
                began_s = time.thread_time()
                self._examine()
                pause_s = max(EXAMINED_EVERY_S, (time.thread_time() - began_s) / EXAMINED_SHARE)
                self._examined_due = time.monotonic() + pause_s
        finally:
            with self._lock:
                self._looking = None
            done.set()

    def _compare(self, settings: AgentSettings) -> None:
        """Compare the files of an agent with its index, and find what takes a look at the disk."""
        roots, codes = _roots(settings), codes_from(disk=True) - CHEAP
        plan: Plan | None = None
        files_behind = 0

        def find() -> Iterable[Finding]:
            nonlocal plan, files_behind
            choice, met = choose(settings), troubles_of(self._settings, settings)
            look = partial(of_agent, settings, choice=choice, troubles=met, queue=self._queue, codes=codes)
            try:
                with driver.reading_if_any(settings.index_path) as reader:
                    plan = make_plan(settings, choice, read_index_state(reader) if reader else IndexState())
                    files_behind = plan.changes.count
                    return look(index=reader, plan=plan)
            except IndexFault as error:
                # Its rows say so; what is on the disk is compared with nothing.
                plan = make_plan(settings, choice, IndexState())
                return look(fault=error, plan=plan)

        found = tuple(guarded(find))
        self._known[settings.agent] = replace(
            self._known.get(settings.agent, Look()),
            at=time.time(),
            files_behind=files_behind,
            plan=plan,
            findings=found,
            roots=roots,
        )

    def _examine(self) -> None:
        """Find what costs more: what is well, and whether SQLite finds each index file whole."""
        for settings in self._agents:
            file = driver.file_id(settings.index_path)
            found = guarded(partial(examine_agent, settings, queue=self._queue))
            kept = tuple(each for each in found if each.level == OK or each.code == "index_damaged")
            self._known[settings.agent] = replace(self._known[settings.agent], examined=kept, file=file)
        codes = codes_from(disk=True)
        found = guarded(partial(examine_common, self._settings, self._agents))
        self.common = tuple(each for each in found if each.code in codes or each.level == OK)


def guarded(find: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what is found; what cannot be examined is a finding."""
    try:
        return list(find())
    except MemlineError as error:
        return [not_examined(error)]


def not_examined(error: MemlineError) -> Finding:
    """Say why something cannot be examined."""
    return of_end("not_examined", error)


def _roots(settings: AgentSettings) -> tuple[bool, ...]:
    """Say which of the folders of an agent are there: one that comes or goes is seen at once."""
    folder = str(settings.workspace)
    extra = (os.path.join(folder, os.path.expanduser(each.path)) for each in settings.memory.extra_paths)
    return tuple(os.path.exists(path) for path in (folder, os.path.join(folder, "memory"), *extra))
