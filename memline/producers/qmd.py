"""Answer questions with qmd, and with the builtin index as soon as qmd fails.

The builtin index is kept beside it: it answers within the same second, and a minute later qmd is tried again.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from memline.producers.backends import IndexReport
from memline.producers.bridges.qmd.home import PREFIX, QmdFailed
from memline.producers.bridges.qmd.updates import Updater
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice
from memline.shared.errors import AccessDenied
from memline.shared.finding import Finding, by_urgency, warning
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts
from memline.shared.logs import Log
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer, Behind, Hit
from memline.shared.sources.paths import FileLocation
from memline.shared.sources.reading import Excerpt, Part, read_file_excerpt
from memline.shared.sync.staleness import DiskState, Staleness

#: Seconds after a failure in which the builtin index answers.
RETRY_S = 60.0

#: Characters of a question; a longer one does not fit into a command line.
_MAX_QUESTION = 8_000

#: The mode of an answer by the command that gave it.
_MODES = {"search": "keyword", "vsearch": "vector", "query": "hybrid"}

#: The first line of a snippet: where in the file it begins, and how many lines it has.
_HEADER = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*(?:\n|$)")

_log = Log("qmd")


class Result(msgspec.Struct, frozen=True):
    """One result as qmd prints it; `file` is `qmd://<collection>/<path>`."""

    score: float
    file: str
    snippet: str = ""


class Qmd:
    """Answers before the index of an agent does. Safe to use from several threads; close it when done."""

    def __init__(self, agent: AgentSettings, *, long_lived: bool, clock: Clock) -> None:
        self._agent, self._long_lived, self._clock = agent, long_lived, clock
        self._qmd = agent.content.memory.qmd
        self._updater = Updater(agent, clock=clock, long_lived=long_lived)
        self._home = self._updater.home
        self._qmd_staleness = Staleness(lambda: DiskState(files_behind=self._updater.behind()))

    def ask(
        self, request: SearchRequest, ask_index: Callable[[SearchRequest, tuple[Finding, ...]], Answer]
    ) -> Answer:
        """Answer a request; where qmd cannot, or fails, the index does."""
        # qmd does not know the filters of a question, nor what may be shown in a group.
        if not request.query.strip() or request.is_limited:
            return ask_index(request, ())
        state = self._home.state
        reason, action = state.error, state.action
        if not 0 <= self._clock.now() - state.error_at < RETRY_S:
            try:
                return self._ask_qmd(request)
            except QmdFailed as error:
                reason, action, state = error.message, error.hint, self._home.state
                _log.warning("qmd.failed", agent=self._agent.agent, error=reason)
                # One that reads the notes for the first time has not failed.
                if state.updated_at or state.error:
                    self._home.save(error=reason, action=action, error_at=self._clock.now())
        answer = ask_index(request, (_failing(reason, action),))
        return replace(answer, fallback={"from": "qmd", "reason": reason})

    def get(self, path: str, part: Part, *, private: bool) -> Excerpt | None:
        """Read an exported session; None for every other path."""
        if not path.startswith(PREFIX):
            return None
        if not private:
            raise AccessDenied(
                "past conversations are private: not read in a group, nor by a subagent",
                hint="ask in a direct chat; memory.privateInGroups in the configuration opens it to all",
            )
        exports = self._home.exports
        located = FileLocation(path=path, absolute=str(exports / Path(path).name), anchor=str(exports))
        return read_file_excerpt(located, part, clock=self._clock)

    def sync(self, report: IndexReport, *, forced: bool) -> IndexReport:
        """Update qmd too, after the index; return the report of both."""
        try:
            self._updater.run()
        except QmdFailed as error:
            failing = _failing(error.message, error.hint)
            return replace(report, findings=by_urgency(report.findings, [failing]), failed=True)
        # A user who asked for all of it waits for vectors too; a question never does.
        self._updater.embed(forced=forced)
        return report

    def describe(self, report: dict[str, Any]) -> None:
        """Make the status of the index one of qmd, which is asked."""
        state, qmd, behind = self._home.state, self._qmd, self._updater.behind()
        if not self.met():
            common = [each for each in report["findings"] if each["agent"] is None]
            report["findings"] = [each.to_json() for each in self._findings()] + common
        status = report["status"]
        status |= {
            "backend": "qmd",
            "fallback": {"from": "qmd", "reason": state.error} if state.error_at else status["fallback"],
            **dict.fromkeys(("provider", "model", "requestedProvider"), "qmd"),
            "files": state.files,
            "behind": {"files": behind, "vectors": 0},
            "dirty": behind > 0,
            "qmd": {
                "mode": _MODES[qmd.search_mode],
                "home": str(self._home.folder),
                "collections": sorted(state.collections),
                "updatedAt": state.updated_at or None,
                "embeddedAt": state.embedded_at or None,
            },
        }

    def met(self) -> tuple[Finding, ...]:
        """Return what keeps qmd from answering."""
        state = self._home.state
        failures = {state.error: state.action} if state.error else {}
        try:
            self._home.program()
        except QmdFailed as error:
            failures[error.message] = error.hint
        return tuple(_failing(*each) for each in failures.items())

    def look(self) -> None:
        """Begin to take in a note that this process has just changed."""
        if self._long_lived:
            self._updater.start()

    def close(self) -> None:
        self._updater.close()

    def _findings(self) -> tuple[Finding, ...]:
        """Return what is wrong while qmd answers: nothing of the index and the provider behind it."""
        nothing, on_disk = Choice(requested=NONE, provider=NONE), self._qmd_staleness.state()
        return check(Facts(self._agent, nothing, None, now=self._clock.now(), on_disk=on_disk))

    def _ask_qmd(self, request: SearchRequest) -> Answer:
        qmd, behind = self._qmd, Behind(files=self._qmd_staleness.state().files_behind)
        self._bring_up_to_date(bool(behind.files))
        state = self._home.state
        if not state.updated_at:
            reason = state.error or "qmd reads the notes for the first time"
            raise QmdFailed(reason, hint=state.action or "memline index waits for it")
        answer = Answer(backend="qmd", provider="qmd", model="qmd", behind=behind)
        names = [each for each in state.collections if each in self._home.collections]
        if not names:
            return replace(answer, notice="qmd has no collection to search: no notes are there yet")
        limit = min(qmd.limits.max_results, request.max_results or qmd.limits.max_results)
        chosen = [word for name in names for word in ("-c", name)]
        question = " ".join(request.query.replace("\0", " ").split())[:_MAX_QUESTION]
        # Behind `--` a question is no option, whatever it begins with.
        args = (qmd.search_mode, "--json", "-n", str(limit), *chosen, "--", question)
        printed = self._home.run(*args, timeout_ms=qmd.limits.timeout_ms)
        try:
            results = msgspec.json.decode(printed, type=list[Result])
        except msgspec.MsgspecError as error:
            raise QmdFailed(f"qmd {qmd.search_mode} returned invalid JSON: {error}") from None
        hits = tuple(self._hits(results, request))[:limit]
        if state.error_at:
            self._home.save(error="", action="", error_at=0.0)
        return replace(
            answer,
            hits=hits,
            mode=_MODES[qmd.search_mode],
            findings=self._findings() if behind.files else (),
            notice="" if hits else "qmd found nothing for this question",
        )

    def _bring_up_to_date(self, is_changed: bool) -> None:
        """Begin an update that is due; a first one is waited for by a command. Raises QmdFailed."""
        state, update = self._home.state, self._qmd.update
        is_first = not state.updated_at and not state.error
        if not self._long_lived:
            if is_first:
                self._updater.run()
            return
        if is_first:
            self._updater.start()
        else:
            self._updater.start_when_due(changed=is_changed)
        if is_first and update.wait_for_boot_sync:
            self._updater.wait()

    def _hits(self, results: list[Result], request: SearchRequest) -> Iterator[Hit]:
        """Yield the results that are of the memory, each place once."""
        seen, qmd = set[tuple[str, int]](), self._qmd
        for result in results:
            located = self._home.located(result.file)
            if located is None or result.score < (request.min_score or 0.0):
                continue
            path, source = located
            first, last, text = _lines(result.snippet, qmd.limits.max_snippet_chars)
            if not text.strip() or (path, first) in seen:
                continue
            seen.add((path, first))
            yield Hit(
                path=path,
                start_line=first,
                end_line=last,
                score=result.score,
                vector_score=result.score if qmd.search_mode == "vsearch" else 0.0,
                text_score=result.score if qmd.search_mode == "search" else 0.0,
                snippet=text,
                source=source,
                explanation={"qmd": qmd.search_mode, "file": result.file} if request.explain else None,
            )


def _failing(reason: str, action: str) -> Finding:
    return warning(
        "qmd_failing", f"qmd failed, the builtin index answers: {reason}", action or "memline status"
    )


def _lines(text: str, max_chars: int) -> tuple[int, int, str]:
    """Return first line, last line and words of a snippet, cut to its length."""
    header = _HEADER.match(text)
    body = text[header.end() :] if header else text
    first, count = (max(1, int(header[1])), int(header[2])) if header else (1, body.count("\n") + 1)
    shown = body[:max_chars].rstrip("\n")
    if len(body) > max_chars:
        count = min(count, shown.count("\n") + 1)
    return first, first + max(1, count) - 1, shown
