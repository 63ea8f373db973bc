"""Answer questions with qmd, and with the builtin index as soon as qmd fails.

The builtin index is kept beside it: it answers within the same second, and a minute later qmd is tried again.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from memline.producers.backends import Asked
from memline.producers.bridges.qmd import answers
from memline.producers.bridges.qmd.collections import PREFIX, Collections
from memline.producers.bridges.qmd.home import QMD, QmdFailed, QmdHome
from memline.producers.bridges.qmd.updates import EMBED, FAILED, UPDATE, Updater
from memline.producers.read_note import cited_part
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice
from memline.shared.errors import AccessDenied
from memline.shared.finding import Finding, Trouble
from memline.shared.findings.diagnosis import merged, of_agent, of_troubles
from memline.shared.logs import Log
from memline.shared.search.request import INDEX_FILTERS, SearchRequest, day_bounds, filters_of
from memline.shared.search.results import Answer, Behind
from memline.shared.sources.excerpt import read_file_excerpt
from memline.shared.sources.paths import is_private
from memline.shared.sync.staleness import DiskState, Staleness
from memline.shared.values import replace

if TYPE_CHECKING:
    from memline.producers.backends import Backend, IndexReport, LinkCheck
    from memline.shared.sources.excerpt import Excerpt

#: Seconds after a failure in which the builtin index answers.
RETRY_S = 60.0

#: Seconds that a question waits for an update that runs.
_WAIT_S = 0.5

#: Results that are asked for when some may be filtered out, for each that is wanted.
_MORE = 4

#: Characters of a question; a longer one does not fit into a command line.
_MAX_QUESTION = 8_000

#: What older versions and other ports say of an option that they do not have.
_UNKNOWN_OPTION = re.compile(
    r"unknown (?:flag|option)|unrecognized option|flag provided but not defined|unexpected argument", re.I
)

#: The mode of an answer by the command that gave it.
_MODES = {"search": "keyword", "vsearch": "vector", "query": "hybrid"}

_log = Log("qmd")


class QmdNotReady(QmdFailed):
    """Nothing is wrong with qmd; its first update is not over yet."""


class QmdBackend:
    """The backend of qmd, with the builtin one behind it."""

    def __init__(self, settings: AgentSettings, builtin: Backend, *, long_lived: bool, clock: Clock) -> None:
        self._settings = settings
        self._builtin = builtin
        self._long_lived = long_lived
        self._clock = clock
        self._lock = threading.Lock()
        self._updater: Updater | None = None
        self._staleness: Staleness | None = None

    def ask(self, request: SearchRequest, *, troubles: tuple[Trouble, ...] = ()) -> Answer:
        bounds = day_bounds(request, self._clock.now())
        if not request.query.strip() or INDEX_FILTERS.intersection(filters_of(request)):
            return self._builtin.ask(request, troubles=troubles)
        reason = self._recent_failure()
        if reason is None:
            try:
                return self._ask_qmd(request, bounds)
            except QmdNotReady as error:
                reason = error.message
            except QmdFailed as error:
                reason = error.message
                _log.warning("qmd.failed", agent=self._settings.agent, error=reason)
                failed = {"at": self._clock.now(), "reason": reason, "action": error.hint}
                self._home.write(FAILED, failed)
        answer = self._builtin.ask(request, troubles=(*troubles, *self._failing(reason)))
        return replace(answer, fallback={"from": QMD, "reason": reason})

    def get(self, asked: Asked, *, private: bool) -> Excerpt:
        path, part = cited_part(asked)
        if not path.startswith(PREFIX):
            return self._builtin.get(asked, private=private)

        root, absolute, ledger = Collections(self._settings, self._home).readable(path)
        # A conversation has no path of the ledger.
        if not private and (is_private(ledger) or ledger == path):
            raise AccessDenied(
                "long-term notes and past conversations are private: not read in a group, nor by a subagent",
                hint="ask in a direct chat; memory.privateInGroups in the configuration opens it to all",
            )
        return read_file_excerpt(absolute, root=root, shown=path, part=part, clock=self._clock)

    def lint(self, *, private: bool) -> LinkCheck:
        return self._builtin.lint(private=private)

    def sync(self, *, force: bool, re_embed: bool, accept_removals: bool, **hooks: Any) -> IndexReport:
        report = self._builtin.sync(force=force, re_embed=re_embed, accept_removals=accept_removals, **hooks)
        updater = self._updating()
        try:
            updater.run(forced=True)
        except QmdFailed as error:
            found = of_troubles(self._settings, *self._failing(error.message, error.hint))
            return replace(report, findings=merged(report.findings, found), failed=True)
        # A user who asked for all of it waits for vectors too; a question never does.
        updater.embed(forced=force or re_embed)
        return report

    def told(self, found: tuple[Finding, ...]) -> dict[str, Any]:
        return self._builtin.told(found)

    def status(self, *, deep: bool, troubles: tuple[Trouble, ...] = ()) -> dict[str, Any]:
        updater, qmd = self._updating(), self._settings.qmd
        state, embedded, failed = updater.state, self._home.read(EMBED), self._home.read(FAILED)
        fallback = {"from": QMD, "reason": failed["reason"]} if failed.get("reason") else None
        troubles += self.troubles()
        report = self._builtin.status(deep=deep, troubles=troubles)
        if not troubles:
            report |= self.told(self._findings())
        status, behind = report["status"], updater.behind()
        # What is said of the index is about the one that is asked; what the builtin one has is beside it.
        own = ("provider", "model", "files", "behind")
        report["status"] |= {
            "backend": QMD,
            "fallback": fallback or status["fallback"],
            "builtin": {name: status[name] for name in own},
            "provider": QMD,
            "model": QMD,
            "requestedProvider": QMD,
            "providerReason": "",
            "files": state.get("files", 0),
            "behind": {"files": behind, "vectors": 0},
            "dirty": behind > 0,
            "qmd": {
                "command": qmd.command,
                "searchMode": qmd.search_mode,
                "mode": _MODES[qmd.search_mode],
                "home": str(self._home.folder),
                "indexPath": str(self._home.index_path),
                "collections": sorted(state.get("collections", {})),
                "updatedAt": state.get("updatedAt"),
                "updateError": state.get("error", ""),
                "embeddedAt": embedded.get("embeddedAt"),
                "embedError": embedded.get("error", ""),
            },
        }
        return report

    def troubles(self) -> tuple[Trouble, ...]:
        found: dict[str, str] = {}
        try:
            self._home.program()
        except QmdFailed as error:
            found[error.message] = error.hint
        for name, key in ((FAILED, "reason"), (UPDATE, "error"), (EMBED, "error")):
            state = self._home.read(name)
            if reason := state.get(key):
                found.setdefault(str(reason), str(state.get("action", "")))
        return tuple(trouble for each in found.items() for trouble in self._failing(*each))

    def look(self) -> None:
        self._builtin.look()
        if self._long_lived:
            self._updating().start(forced=True)

    def close(self) -> None:
        with self._lock:
            updater, self._updater, self._staleness = self._updater, None, None
        if updater is not None:
            updater.close()
        self._builtin.close()

    @property
    def _home(self) -> QmdHome:
        return self._updating().home

    def _findings(self) -> tuple[Finding, ...]:
        """Return what is wrong while qmd answers: nothing of the index and the provider behind it."""
        nothing = Choice(requested=NONE, provider=NONE)
        return of_agent(self._settings, choice=nothing, files_behind=self._behind(), now=self._clock.now())

    def _failing(self, reason: str, action: str = "") -> tuple[Trouble, ...]:
        if not reason:
            return ()
        action = action or str(self._home.read(FAILED).get("action", ""))
        return (Trouble(code="qmd_failing", details={"reason": reason}, action=action),)

    def _recent_failure(self) -> str | None:
        """Return why qmd is not asked now; None when it is."""
        failed = self._home.read(FAILED)
        with suppress(TypeError, ValueError):
            if 0 <= self._clock.now() - float(failed.get("at", 0)) < RETRY_S:
                return str(failed.get("reason", ""))
        return None

    def _ask_qmd(self, request: SearchRequest, bounds: tuple[Any, Any]) -> Answer:
        updater = self._ready()
        qmd, collections = self._settings.qmd, Collections(self._settings, updater.home)
        state = updater.state
        known = state.get("collections", {})
        if error := state.get("error"):
            # What it has may be half of it, or nothing.
            raise QmdFailed(str(error), hint=str(state.get("action") or "memline index"))
        if "updatedAt" not in state:
            raise QmdNotReady("qmd reads the notes for the first time", hint="memline index waits for it")
        names = [
            each.name
            for each in collections.all
            if each.name in known and request.source in ("", each.source)
        ]
        limit = min(qmd.limits.max_results, request.max_results or qmd.limits.max_results)
        disk = self._disk()
        behind = Behind(files=disk.files_behind)
        if not names:
            notice = "qmd has no collection to search: no notes are there yet"
            return Answer(backend=QMD, provider=QMD, model=QMD, behind=behind, notice=notice)
        results, mode = self._results(request.query, limit * (_MORE if filters_of(request) else 1), names)
        reader = answers.Reader(
            collections,
            updater.home.index_path,
            max_chars=qmd.limits.max_snippet_chars,
        )
        hits = tuple(reader.hits(results, request, bounds, mode))[:limit]
        updater.home.remove(FAILED)
        return Answer(
            hits=hits,
            backend=QMD,
            provider=QMD,
            model=QMD,
            mode=_MODES[mode],
            behind=behind,
            findings=self._findings() if behind.files else (),
            notice="" if hits else "qmd found nothing for this question",
        )

    def _results(self, question: str, limit: int, names: list[str]) -> tuple[list[answers.Found], str]:
        """Ask qmd; a version that does not know an option of the mode is asked with `query`."""
        mode = self._settings.qmd.search_mode
        text = " ".join(question.replace("\0", " ").split())[:_MAX_QUESTION]
        # A question is never an option.
        text = f" {text}" if text.startswith("-") else text
        chosen = [word for name in names for word in ("-c", name)]
        timeout_ms = self._settings.qmd.limits.timeout_ms

        def ask(mode: str) -> list[answers.Found]:
            args = (mode, text, "--json", "-n", str(limit), *chosen)
            return answers.read(self._home.run(*args, timeout_ms=timeout_ms), mode)

        try:
            return ask(mode), mode
        except QmdFailed as error:
            if mode == "query" or not _UNKNOWN_OPTION.search(error.message):
                raise
            return ask("query"), "query"

    def _ready(self) -> Updater:
        """Return the updater, with an index of qmd there is something to ask of. Raises QmdFailed."""
        updater, update = self._updating(), self._settings.qmd.update
        has_index = "updatedAt" in updater.state
        if not self._long_lived:
            if not has_index:
                # The first question of all: later ones wait for nothing.
                updater.run()
            return updater
        if not has_index or updater.due(changed=bool(self._behind())):
            updater.start()
        updater.wait(None if update.wait_for_boot_sync and not has_index else _WAIT_S)
        return updater

    def _behind(self) -> int:
        return self._disk().files_behind

    def _disk(self) -> DiskState:
        self._updating()
        return self._staleness.state() if self._staleness else DiskState()

    def _updating(self) -> Updater:
        with self._lock:
            if self._updater is None:
                updater = Updater(self._settings, clock=self._clock)
                self._updater = updater
                self._staleness = Staleness(partial(_look, updater))
                if self._long_lived and self._settings.qmd.update.on_boot:
                    updater.start()
            return self._updater


def _look(updater: Updater) -> DiskState:
    began = time.perf_counter()
    return DiskState(files_behind=updater.behind(), look_s=time.perf_counter() - began)
