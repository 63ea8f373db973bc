"""Run one flush from the request to the note, and record every step.

A request is paid for, so its answer is kept in the state before it is used: when a worker is killed in
between, the next one writes the same answer into the note.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import MemlineError, ProviderTooBig
from memline.shared.flush import flush_plan, flush_request
from memline.shared.flush import state as flush_state
from memline.shared.flush.state import ASKED, DONE, FAILED, NOTHING, SKIPPED, STORED, SessionState, file_lock
from memline.shared.flush.transcript import claude_turns, recent_turns
from memline.shared.sources.append import (
    AppendRefused,
    AppendResult,
    append,
    local_time,
    log_path,
    lost_with,
    visible,
)
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sources.redaction import redact

_ITEM = re.compile(r" ?([-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(```+|~~~+)")


def why_not_writable(workspace: Path, relative: str) -> str:
    """Say why a note cannot be appended to, as far as can be known without writing; empty when it can."""
    if not workspace.is_dir():
        return f"the workspace {workspace} does not exist"
    path = workspace
    for part in relative.split("/"):
        if not os.path.lexists(path / part):
            break
        path /= part
        if path.is_symlink():
            return f"{path} is a symbolic link"
    if path.name == Path(relative).name and not path.is_file():
        return f"{path} is not a regular file"
    if not os.access(path, os.W_OK):
        return f"{path} is not writable"
    return ""


def write(workspace: Path, relative: str, entry: str) -> AppendResult:
    """Append an entry to a note, without the items that it already has. Raises AppendRefused."""
    return append(str(workspace), relative, lambda before: _new_lines(before, entry))


def _new_lines(before: str, entry: str) -> str:
    known = {_normalized(block) for block in _blocks(before)}
    kept: list[str] = []
    has_news = False
    for block in _blocks(entry):
        if _is_fact(block):
            if _normalized(block) in known:
                continue
            has_news = True
        kept += block
    if not has_news:
        return ""
    text = "\n".join(line.rstrip() for line in kept).strip("\n")
    # A blank line before it: a list in Markdown would continue otherwise.
    return f"\n{text}" if before.strip() and not before.endswith("\n\n") else text


def _is_fact(block: list[str]) -> bool:
    """Say whether a block holds a fact; a heading does not: it may repeat above new items."""
    return not block[0].startswith("#") and any(char.isalnum() for line in block for char in line)


def _blocks(text: str) -> list[list[str]]:
    """Split into items with what belongs to them, paragraphs, code, headings and blank lines.

    A line below an item says something about the item, so alone it is neither known nor new. An open code
    block is closed, or what is added later would be code.
    """
    blocks: list[list[str]] = []
    fence = ""
    is_new = True
    for line in text.splitlines():
        mark = _FENCE.match(line)
        is_apart = not line.strip() or line.startswith("#")
        if fence:
            blocks[-1].append(line)
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
            continue
        if is_new or is_apart or _ITEM.match(line) or (mark and not line[0].isspace()):
            blocks.append([line])
        else:
            blocks[-1].append(line)
        is_new = is_apart
        fence = mark[1] if mark else ""
    if fence:
        blocks[-1].append(fence)
    return blocks


def _normalized(block: list[str]) -> str:
    """Drop spacing, list marks and case, in which equal blocks may differ."""
    lines = (" ".join(line.strip().lstrip("-*+").split()) for line in block)
    return "\n".join(lines).casefold()


_RUN_LOCK = "memline-flush.run.lock"

#: A conversation that is too long for its model is divided by this, down to so many tokens.
_SHORTER = 4
MIN_CONVERSATION_TOKENS = 1_000

#: Reads the end of a conversation within so many tokens, and says whether older turns were left out.
TurnsOf = Callable[[int], tuple[list[str], bool]]


def run(settings: AgentSettings, name: str, *, cycle: str, clock: Clock) -> SessionState | None:
    """Flush the session with this transcript for a compaction cycle; None: not requested.

    Safe twice, late and at the same time: an agent has one flush at a time, and one for each request.
    Raises OSError when the folder of the transcripts cannot be written.
    """
    folder = flush_plan.folder_of(settings)
    if not folder.is_dir():
        return None
    with file_lock(folder / _RUN_LOCK):
        with flush_state.editing(folder) as state:
            session = state.sessions.get(name)
            if session is None or session.cycle != cycle or session.outcome != ASKED:
                return None
            # Recorded before the paid request: a worker that cannot write here could not keep the answer.
            session.at = clock.now()
        outcome, reason = _flush(settings, folder, name, session, clock)
        with _recording(folder, name, cycle) as recorded:
            if recorded:
                # A provider's words may hold characters that cannot be written.
                recorded.outcome, recorded.reason, recorded.at = outcome, visible(reason), clock.now()
                if outcome in DONE:
                    recorded.reply = ""
            return recorded


@contextmanager
def _recording(folder: Path, name: str, cycle: str) -> Iterator[SessionState | None]:
    """Lend the session for a change; None when it was compacted meanwhile, which begins another flush."""
    with flush_state.editing(folder) as state:
        session = state.sessions.setdefault(name, SessionState(cycle=cycle))
        yield session if session.cycle == cycle else None


def _flush(
    settings: AgentSettings, folder: Path, name: str, session: SessionState, clock: Clock
) -> tuple[str, str]:
    """Return the outcome and its reason."""
    relative, reason = _today(settings, clock)
    if reason:
        return SKIPPED, reason
    answer = session.reply
    if not answer:
        try:
            raw = _ask_about(settings, folder, name, session, clock)
        except MemlineError as error:
            return FAILED, f"{error.message}; {error.hint}" if error.hint else error.message
        if raw is None:
            return NOTHING, "the session has no text"
        # A model repeats what it was shown, and a note is sent to an embedding provider.
        answer = redact(visible(raw))
    entry = flush_request.entry(answer)
    if not any(map(_is_fact, _blocks(entry))):
        return NOTHING, "there was nothing to keep"
    if not session.reply:
        with _recording(folder, name, session.cycle) as recorded:
            if recorded:
                recorded.reply = answer
    try:
        written = write(settings.workspace, relative, entry)
    except AppendRefused as error:
        # The answer stays in the state, so that a retry costs nothing.
        return FAILED, error.message
    if written.start_line:
        return STORED, f"{relative}#L{written.start_line}-L{written.end_line}"
    # With a reply from before, the worker that was killed had written it.
    return STORED if session.reply else NOTHING, f"all of it is in {relative} already"


def write_down(settings: AgentSettings, turns_of: TurnsOf, *, clock: Clock) -> tuple[str, str]:
    """Write a conversation down that another program keeps; return the outcome and its reason.

    Nothing is recorded of it: called twice it is paid for twice. Raises a MemlineError when the model gives
    no answer, or the note cannot be written.
    """
    relative, reason = _today(settings, clock)
    if reason:
        return SKIPPED, reason
    raw = _ask(
        settings,
        turns_of,
        flush_plan.threshold_in(settings.sessions, settings.sessions.context_tokens),
        clock,
    )
    entry = flush_request.entry(redact(visible(raw or "")))
    if not any(map(_is_fact, _blocks(entry))):
        return NOTHING, "there was nothing to keep"
    written = write(settings.workspace, relative, entry)
    if not written.start_line:
        return NOTHING, f"all of it is in {relative} already"
    return STORED, f"{relative}#L{written.start_line}-L{written.end_line}"


def write_down_claude_code(settings: AgentSettings, path: Path, *, clock: Clock) -> str:
    """Write down a session of Claude Code; return where, empty when nothing was kept."""
    if not flush_plan.is_on(settings):
        return ""
    read = partial(claude_turns, path, now=clock.now())
    outcome, reason = write_down(settings, lambda tokens: read(max_tokens=tokens), clock=clock)
    return reason if outcome == STORED else ""


def _today(settings: AgentSettings, clock: Clock) -> tuple[str, str]:
    """Return the note of today, and why it cannot be written; empty when it can."""
    relative = log_path(local_time(clock.now(), settings.sessions.user_timezone).date())
    why = why_not_writable(settings.workspace, relative)
    return relative, why or lost_with(MemoryPaths.of(settings), relative)


def _ask_about(
    settings: AgentSettings, folder: Path, name: str, session: SessionState, clock: Clock
) -> str | None:
    entry = flush_plan.read_registry(folder).get(name)
    read = partial(recent_turns, folder, name, session.size, start=session.start, now=clock.now())
    max_tokens = flush_plan.threshold_of(settings, entry, session.size.model)
    return _ask(settings, lambda tokens: read(max_tokens=tokens), max_tokens, clock)


def _ask(settings: AgentSettings, turns_of: TurnsOf, max_tokens: int, clock: Clock) -> str | None:
    """Ask the model about as much of the conversation as it can take; None when that has no text."""
    flush = settings.sessions.compaction.memory_flush
    now = local_time(clock.now(), settings.sessions.user_timezone)
    wanted = flush_request.request(flush.prompt, now)
    system = flush_request.system_prompt(flush.system_prompt, now)
    if window := flush_plan.known_window(settings.sessions, flush.model):
        max_tokens = min(max_tokens, flush_plan.threshold_in(settings.sessions, window))
    max_tokens = max(max_tokens, MIN_CONVERSATION_TOKENS)
    while True:
        turns, is_cut = turns_of(max_tokens)
        if not turns:
            return None
        try:
            conversation = flush_request.conversation(turns, is_cut=is_cut)
            return flush_request.ask(settings, system, f"{conversation}\n\n{wanted}")
        except ProviderTooBig:
            max_tokens //= _SHORTER
            if max_tokens < MIN_CONVERSATION_TOKENS:
                raise
