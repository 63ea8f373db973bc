"""Answer questions of one agent's memory: a search, and what is wrong when it was made."""

from __future__ import annotations

import threading
import time

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice, choose
from memline.shared.finding import GOOD_FOR_S, Trouble
from memline.shared.findings.table import AGENT, find
from memline.shared.index import identities, ledger, meta
from memline.shared.index.driver import scalar
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer, Behind
from memline.shared.search.service import MemorySearch, QuestionEmbedder
from memline.shared.sources.discover import markdown_beside
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sync.staleness import DiskState
from memline.shared.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.scheduling.limits import Limits

_KEYS = (meta.PAUSED, meta.PAUSED_MODES, meta.FALLBACK, meta.LOOP_ERRORS)

#: Asks for the notes that are not read.
BESIDE = Trouble(code="notes_beside")

_PAUSED_JOB = "SELECT 1 FROM jobs WHERE state = 'paused' LIMIT 1"


def is_quiet(index: Connection, settings: AgentSettings, choice: Choice) -> bool:
    """Tell by a few cheap rows that nothing is wrong with an index: no condition need be loaded."""
    if (choice.identity is None and choice.requested not in ("auto", NONE)) or choice.fallback_from:
        return False
    if not settings.memory.enabled or not settings.workspace.is_dir():
        return False
    # A pause that was ended left an empty list.
    marks = f"SELECT 1 FROM meta WHERE key IN ({', '.join('?' * len(_KEYS))}) AND value <> '[]' LIMIT 1"
    if scalar(index, marks, *_KEYS) or scalar(index, _PAUSED_JOB) or scalar(index, ledger.ANY_PROBLEM):
        return False
    target = identities.target(index)
    if target is None:
        return choice.identity is None or index.execute("SELECT 1 FROM chunks LIMIT 1").fetchone() is None
    if choice.identity is None or choice.identity.key != target.identity.key:
        return False
    unfinished = "SELECT 1 FROM vectors WHERE identity_id = ? AND active = 1 AND state = ? LIMIT 1"
    return all(
        scalar(index, unfinished, target.id, state) is None for state in ("wanted", "leased", "failed")
    )


class Answerer:
    """Answers questions for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        choice: Choice | None = None,
        long_lived: bool = False,
        limits: Limits | None = None,
        queue: str = "",
        clock: Clock | None = None,
    ) -> None:
        """`long_lived`: see `MemorySearch`.

        `limits`: those of a fleet, None for those of the home; `queue`: the address of its Redis.
        """
        self._settings = settings
        self._choice = choice or choose(settings)
        self._limits = limits
        self._queue = queue
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: State of the index and of the disk -> when it was read (monotonic seconds), and what was found.
        self._known: tuple[object, float, Answer] = (None, 0.0, Answer())
        #: State of the index in which nothing was wrong with it.
        self._quiet: object = None
        self._search = MemorySearch(
            settings,
            questions=None if self._choice.requested == NONE else self._questions,
            long_lived=long_lived,
            clock=self._clock,
        )

    def close(self) -> None:
        self._search.close()

    def ask(
        self, request: SearchRequest, disk: DiskState | None = None, *, troubles: tuple[Trouble, ...] = ()
    ) -> Answer:
        """Answer a question; `disk` is how the index compares to the files.

        `troubles`: what the caller met before. Raises IndexFaults (IndexMissing: there is nothing to search
        yet) and ConfigError for a bad date.
        """
        answer = self._search.ask(request)
        disk = disk or DiskState()
        # What was not found may stand in a note that is not read.
        beside = not answer.hits and request.private and not MemoryPaths.of(self._settings).is_whole
        about = self._about(disk, (*troubles, *answer.troubles), asks_beside=beside)
        if answer.provider == NONE:
            answer = replace(answer, provider=self._choice.provider, model=self._choice.model)
        return replace(
            answer,
            fallback=about.fallback,
            behind=about.behind,
            findings=about.findings,
            troubles=(),
        )

    def _about(self, disk: DiskState, troubles: tuple[Trouble, ...], *, asks_beside: bool = False) -> Answer:
        """Return an answer without hits that has the findings, and how far the index is behind.

        `asks_beside`: also which notes are not read.
        """
        index = self._search.index
        codes: tuple[str, ...] = ()
        # Before the snapshot: asking for it opens a file that was replaced, and closes the old connection.
        version = index.version()
        is_behind = disk.files_behind or disk.emptied or troubles
        if version == self._quiet and not (is_behind or asks_beside) and self._settings.workspace.is_dir():
            return Answer()
        with index.snapshot() as connection:
            if not is_behind and is_quiet(connection, self._settings, self._choice):
                self._quiet = version
                # The walk is 0.1 ms, and the modules of findings are 19, where there is nothing to say.
                if not asks_beside or not markdown_beside(MemoryPaths.of(self._settings)).paths:
                    return Answer()
                codes = (BESIDE.code,)
            troubles += (BESIDE,) * asks_beside
            state = (version, disk.files_behind, disk.removed, disk.emptied, troubles, codes)
            with self._lock:
                known, read_at, about = self._known
            if known == state and time.monotonic() - read_at < GOOD_FOR_S:
                return about
            # 8 ms, which only those pay who have a trouble.
            from memline.shared.findings.facts import Facts

            facts = Facts(
                self._settings,
                self._choice,
                connection,
                now=self._clock.now(),
                files_behind=disk.files_behind,
                removed=disk.removed,
                troubles=troubles,
                queue=self._queue,
                emptied=disk.emptied,
            )
            try:
                found = find(AGENT, facts, self._settings.agent, codes)
                behind = Behind(files=disk.files_behind, vectors=facts.model.missing)
                about = Answer(findings=found, behind=behind, fallback=facts.fallback)
            finally:
                facts.close()
        with self._lock:
            self._known = (state, time.monotonic(), about)
        return about

    def _questions(self) -> QuestionEmbedder:
        # 7 ms, which only those pay whose index has vectors.
        from memline.shared.scheduling.questions import QueryEmbedder

        return QueryEmbedder(
            self._settings,
            self._choice,
            limits=self._limits,
            clock=self._clock,
        )
