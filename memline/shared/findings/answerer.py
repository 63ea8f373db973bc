"""Answer questions of one agent's memory: a search, and what is wrong when it was made."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from sqlite3 import Connection
from typing import Any

from msgspec.structs import replace

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice, choose
from memline.shared.errors import MemlineError
from memline.shared.finding import GOOD_FOR_S, Finding
from memline.shared.findings.check import check, of_agent
from memline.shared.findings.conditions import notes_beside
from memline.shared.findings.facts import Facts
from memline.shared.index.identities import IdentityRow
from memline.shared.scheduling.limits import Limits
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer, Behind, Hit
from memline.shared.search.search_index import SearchIndex
from memline.shared.search.service import retrieve
from memline.shared.sources.paths import MEMORY, MemoryPaths
from memline.shared.sources.reading import MAX_CHARS, MAX_FILE_BYTES, Part, read_excerpt
from memline.shared.sync.staleness import DiskState, Staleness


class Answerer:
    """Answers questions for one agent. Safe to use from several threads; close it when done."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        choice: Choice | None = None,
        long_lived: bool = False,
        look: Callable[[], DiskState] = DiskState,
        limits: Limits | None = None,
        queue: QueueAddress = NO_QUEUE,
        clock: Clock | None = None,
    ) -> None:
        """`long_lived`: see `SearchIndex`. `look`: how the index compares to the files.

        `limits`: those of a fleet, None for those of the home; `queue`: the address of its Redis.
        """
        #: How the index compares to the files, as it was looked last.
        self.staleness = Staleness(look)
        self._settings = settings
        self._choice = choice or choose(settings)
        self._limits = limits
        self._queue = queue
        self._clock = clock or SystemClock()
        #: State of the index and of the disk, when it was examined (monotonic seconds), and what was seen.
        self._known: tuple[object, float, Answer] = (None, 0.0, Answer())
        #: A `QueryEmbedder`, made for the first question that needs a vector; what it gave for which index.
        self._embedder: Any = None
        self._embed: tuple[object, Any] = (None, None)
        vec = settings.memory.store.vector
        self._index = SearchIndex(
            settings.index_path,
            long_lived=long_lived,
            vec_enabled=vec.enabled,
            extension_path=vec.extension_path,
        )

    def close(self) -> None:
        self._index.close()
        if self._embedder is not None:
            self._embedder.close()

    def ask(self, request: SearchRequest, *, met: tuple[Finding, ...] = ()) -> Answer:
        """Answer a question; `met` is what the caller met before.

        Notes of `status` are no part of an answer. Raises IndexFaults (IndexMissing: there is nothing to
        search yet) and ConfigError for a bad date.
        """
        memory, choice, disk = self._settings.memory, self._choice, self.staleness.state()
        # Whose key was removed wants no vectors: nothing is to be said of it at each question.
        has_questions = choice.identity is not None or choice.requested not in (NONE, "auto")
        answer = retrieve(
            self._index,
            request,
            memory.query,
            embedder=self._embedder_of if has_questions else None,
            sources=memory.sources,
            chunk_tokens=memory.chunking.tokens,
            clock=self._clock,
        )
        about = self._about(disk, (*met, *answer.findings))
        findings = about.findings
        if not answer.hits and request.private and not MemoryPaths.of(self._settings).is_whole:
            # What was not found may stand in a note that is not read.
            findings += of_agent(self._settings.agent, tuple(notes_beside(self._settings)))
        if answer.provider == NONE:
            answer = replace(answer, provider=choice.provider, model=choice.model)
        hits = tuple(map(self._placed, answer.hits))
        return replace(answer, hits=hits, fallback=about.fallback, behind=about.behind, findings=findings)

    def _placed(self, hit: Hit) -> Hit:
        """Give a hit within a line that is longer than an excerpt its place in it."""
        piece, first = hit.snippet.partition("\n")[0].strip("…"), hit.shown[0] or hit.start_line
        # A piece of such a line has more characters, but for the last.
        if len(piece) < 200 or hit.source != MEMORY:
            return hit
        part = Part(first=first, lines=1, max_chars=MAX_FILE_BYTES)
        with suppress(MemlineError):
            paths = MemoryPaths.of(self._settings)
            line = read_excerpt(paths, hit.path, part=part, private=True, clock=self._clock).text
            if (at := line.find(piece)) + len(hit.snippet) > MAX_CHARS:
                return replace(hit, column=at + 1)
        return hit

    def _about(self, disk: DiskState, met: tuple[Finding, ...]) -> Answer:
        """Return an answer without hits that has the findings, and how far the index is behind."""
        state = (self._index.version, disk.files_behind, disk.removed, disk.emptied, met)
        known, read_at, about = self._known
        if known == state and time.monotonic() - read_at < GOOD_FOR_S:
            return about
        with self._index.snapshot() as connection:
            now, queue = self._clock.now(), self._queue
            facts = Facts(self._settings, self._choice, connection, now=now, on_disk=disk, queue=queue)
            findings = tuple(each for each in check(facts, *met) if each.is_trouble)
            behind = Behind(files=disk.files_behind, vectors=facts.model.missing)
            about = Answer(findings=findings, behind=behind, fallback=facts.fallback)
        self._known = (state, time.monotonic(), about)
        return about

    def _embedder_of(self, connection: Connection, active: IdentityRow) -> Callable[[str], bytes]:
        if self._embedder is None:
            # 7 ms, which only those pay whose index has vectors.
            from memline.shared.scheduling.questions import QueryEmbedder

            self._embedder = QueryEmbedder(
                self._settings, self._choice, limits=self._limits, clock=self._clock
            )
        embed: Callable[[str], bytes]
        version, embed = self._embed
        if version != self._index.version:
            embed = self._embedder.of(connection, active)
            self._embed = self._index.version, embed
        return embed
