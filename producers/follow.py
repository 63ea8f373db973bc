"""Following the files of agents: a full reconcile at the start, then what the watcher sees.

Only paths are sent. What was announced and did not arrive in the ledger is found again by the next full
look, so a lost message costs `LOOK_AGAIN_S`, not a file, and a queue that is away costs nothing but time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType

from producers.announce import announce
from producers.feed import Feed
from producers.sessions import DEBOUNCE_S, Growth
from producers.watch import Watcher
from producers.watched_folders import WatchedNotes, WatchedTranscripts
from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import choose
from shared.errors import QueueError
from shared.index import driver
from shared.index.changes import Changes
from shared.index.plan import Known, ledger_of, look
from shared.logs import Log
from shared.sources.transcript_files import TranscriptScope, transcripts_of
from shared.sources.transcript_names import MEMORY

#: Seconds between two looks at all files by size and time; 5,000 files cost about 0.1 s of CPU.
LOOK_AGAIN_S = 60.0

#: Seconds after a change was announced that a look makes sure of it: its message may have been lost.
MAKE_SURE_S = 5.0

#: Seconds after which all files are looked at again when the queue could not be reached.
QUEUE_RETRY_S = 2.0

#: Seconds between two looks at most, while nothing that is announced ever arrives: the workers refuse it.
MAX_LOOK_AGAIN_S = 3_600.0

#: Seconds between two calls of `tick`.
TICK_S = 0.25


class Follow:
    """Follows the files of some agents; a context manager. The broker of this process is set before."""

    def __init__(self, agents: Sequence[AgentSettings], *, clock: Clock | None = None) -> None:
        self._agents = tuple(agents)
        self._clock = clock or SystemClock()
        self._log = Log("follow")
        self._stack = ExitStack()
        #: By agent: of its notes, and of its transcripts.
        self._watchers: dict[str, list[Watcher]] = {}
        self._growth: dict[str, Growth] = {}
        #: Agents whose transcripts are to be read to their ends by the next look, whatever has grown.
        self._catching_up = {settings.agent for settings in self._agents}
        self._feeds: dict[str, Feed] = {}
        self._next_look_s: dict[str, float] = {}
        #: Looks in a row of which not a single file arrived.
        self._in_vain: dict[str, int] = {}
        self._is_queue_away = False

    def __enter__(self) -> Follow:
        with self._stack:
            for settings in self._agents:
                if (transcripts := transcripts_of(settings)) is not None:
                    self._growth[settings.agent] = Growth(settings, transcripts, clock=self._clock)
                if settings.memory.sync.watch:
                    # Before the first look: a change in between is then seen by both, not by none.
                    watchers = self._watchers[settings.agent] = []
                    if MEMORY in settings.memory.sources:
                        watchers.append(self._stack.enter_context(self._watch(settings)))
                    if transcripts is not None:
                        watched = self._watch_transcripts(settings, transcripts)
                        watchers.append(self._stack.enter_context(watched))
            self.tick()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def describe(self) -> list[str]:
        """A line an agent: what is followed, and how."""
        return [
            f"memline: agent {settings.agent} follows {settings.workspace}"
            f"{' and its sessions' * (settings.agent in self._growth)}: {how}"
            for settings, how in self._modes()
        ]

    def log_modes(self) -> None:
        """The same as lines of the log."""
        for settings, how in self._modes():
            self._log.info("files.followed", agent=settings.agent, workspace=settings.workspace, mode=how)

    def _modes(self) -> Iterator[tuple[AgentSettings, str]]:
        for settings in self._agents:
            watchers = self._watchers.get(settings.agent, [])
            # One that polls tells more than one that watches.
            worst = sorted(watchers, key=lambda watcher: not watcher.reason)[:1]
            how = worst[0].mode if worst else "not watching (sync.watch is off)"
            if worst and worst[0].reason:
                how += f" ({worst[0].reason})"
            yield settings, how

    def tick(self) -> None:
        """Go on with what is to be fed, and look at all files when that is due; for a loop every `TICK_S`."""
        for settings in self._agents:
            try:
                feed = self._feeds.get(settings.agent)
                if feed is not None:
                    self._advance(settings, feed)
                elif self._clock.now() >= self._next_look_s.get(settings.agent, 0.0):
                    self._look(settings)
            except QueueError as error:
                self._wait_for_queue(settings, error)

    def _watch(self, settings: AgentSettings) -> Watcher:
        return Watcher(
            WatchedNotes(settings.workspace, settings.memory.extra_paths),
            debounce_s=settings.memory.sync.watch_debounce_ms / 1000,
            on_paths=lambda paths: self._send(settings, sorted(paths)),
            # Only noted: the look itself belongs to the thread that ticks.
            on_rescan=lambda: self._next_look_s.update({settings.agent: 0.0}),
        )

    def _watch_transcripts(self, settings: AgentSettings, transcripts: TranscriptScope) -> Watcher:
        # Of its own: a transcript is written to all the time, and waits longer.
        return Watcher(
            WatchedTranscripts(transcripts),
            debounce_s=DEBOUNCE_S,
            ceiling=1.0,
            on_paths=lambda paths: self._grown(settings, sorted(paths)),
            on_rescan=lambda: self._next_look_s.update({settings.agent: 0.0}),
        )

    def _grown(self, settings: AgentSettings, paths: Sequence[str]) -> None:
        """Transcripts were written to: announce those that grew enough."""
        grown = self._growth[settings.agent].of(paths)
        if grown.has_begun and settings.memory.sync.on_session_start:
            # Whoever begins a session is going to ask what was said in the last one.
            self._catching_up.add(settings.agent)
            self._next_look_s[settings.agent] = 0.0
        elif grown.due:
            self._send(settings, grown.due)

    def _look(self, settings: AgentSettings) -> None:
        """Compare all files with the ledger and begin to feed what differs."""
        sync = settings.memory.sync
        every_s = [LOOK_AGAIN_S] * sync.watch + [60.0 * sync.interval_minutes] * (sync.interval_minutes > 0)
        looked_ns = self._clock.now_ns()
        # Set before the look: a rescan that is asked for meanwhile is not forgotten.
        self._next_look_s[settings.agent] = self._clock.now() + min(every_s, default=math.inf)
        with driver.reading_if_any(settings.index_path) as reader:
            known = ledger_of(reader) if reader else Known()
        plan = look(settings, choose(settings), known)
        files = plan.sized((*plan.changes.announced(tails=False), *self._tails(settings, plan.changes)))
        if files:
            self._log.info("files.changed", agent=settings.agent, files=len(files))
            feed = Feed(settings.agent, files, looked_ns=looked_ns)
            self._feeds[settings.agent] = feed
            self._advance(settings, feed)
            self._is_queue_away = False

    def _tails(self, settings: AgentSettings, changes: Changes) -> Sequence[str]:
        """Transcripts that grew a little and are to be read on all the same."""
        if settings.agent in self._catching_up or not settings.memory.sync.watch:
            self._catching_up.discard(settings.agent)
            return changes.growing
        growth = self._growth.get(settings.agent)
        return growth.of(changes.growing).due if growth and changes.growing else ()

    def _advance(self, settings: AgentSettings, feed: Feed) -> None:
        with driver.reading_if_any(settings.index_path) as reader:
            feed.advance(reader)
        is_late = self._clock.now() >= self._next_look_s[settings.agent] and not feed.is_within_file
        if feed.done:
            self._in_vain[settings.agent] = 0
        if feed.done == feed.total or is_late:
            # Late: messages were lost on the way. The next look finds what is missing.
            del self._feeds[settings.agent]
            if not feed.done:
                self._put_off(settings)

    def _send(self, settings: AgentSettings, paths: Sequence[str]) -> None:
        self._log.info("files.seen", agent=settings.agent, files=len(paths))
        try:
            announce(settings.agent, paths)
        except QueueError as error:
            self._wait_for_queue(settings, error)
            return
        self._is_queue_away = False
        next_look_s = self._next_look_s.get(settings.agent, 0.0)
        self._next_look_s[settings.agent] = min(next_look_s, self._clock.now() + MAKE_SURE_S)

    def _wait_for_queue(self, settings: AgentSettings, error: QueueError) -> None:
        """Forget what could not be announced; the look when the queue may be back finds all of it."""
        if not self._is_queue_away:
            self._is_queue_away = True
            self._log.warning("queue.unavailable", error=error.message, action=error.hint)
        self._feeds.pop(settings.agent, None)
        self._next_look_s[settings.agent] = self._clock.now() + QUEUE_RETRY_S

    def _put_off(self, settings: AgentSettings) -> None:
        """Look less and less often while nothing arrives: each announcement may be one more dead letter."""
        times = self._in_vain.get(settings.agent, 0)
        self._in_vain[settings.agent] = times + 1
        wait_s = min(LOOK_AGAIN_S * 2.0**times, MAX_LOOK_AGAIN_S)
        self._next_look_s[settings.agent] = self._clock.now() + wait_s
