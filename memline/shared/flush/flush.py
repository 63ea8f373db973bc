"""Write down what is worth keeping of a session, before it is compacted.

A chat model sees the end of the conversation and answers with what should still be known later; the answer is
appended to today's note. A session is flushed once between two compactions: that is recorded before the model
is asked, so nothing is paid for twice, and a flush that fails is not repeated by itself.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

import msgspec

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings, Compaction
from memline.shared.errors import ConfigError, MemlineError, ProviderTooBig
from memline.shared.flush import chat_model
from memline.shared.flush.session_end import SessionEnd, newest, read_end, turns_of
from memline.shared.index import meta
from memline.shared.index.driver import faults, open_writer, transaction
from memline.shared.sessions import openclaw
from memline.shared.sessions.secrets import mask
from memline.shared.sessions.stores import TranscriptFormat
from memline.shared.sources.append import AppendResult, append, local_time, log_path, visible
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sources.safe_open import FileRefused
from memline.shared.words import cite

#: Outcomes of a flush.
STORED, NOTHING, SKIPPED, NOT_DUE = "stored", "nothing", "skipped", "not due"

#: However large the reserve is, so much of a window stays for the conversation: 8,000 tokens, of a small
#: window half. The original has the same limits; without them a reserve of 20,000 tokens is more than a
#: window of 16,384 has, and its session was never flushed.
MIN_PROMPT_TOKENS = 8_000

#: A conversation that is too long for its model is divided by this, down to so many tokens.
_SHORTER = 4
_MIN_CONVERSATION_TOKENS = 1_000

#: Seconds for which an index remembers that a session was flushed.
_REMEMBERED_S = 30 * 86_400.0

_ITEM = re.compile(r" ?([-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(```+|~~~+)")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an agent, in a file of OpenClaw or of Claude Code."""

    settings: AgentSettings
    path: Path
    format: TranscriptFormat = openclaw.FORMAT


class Flushed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a flush."""

    #: `stored`, `nothing` (there was nothing to keep), `skipped` (the note cannot be written) or `not due`.
    outcome: str
    #: The lines that were added, as `memory/2026-02-03.md#L4-L9`, or why there are none.
    reason: str = ""


def is_on(settings: AgentSettings) -> bool:
    """Tell whether sessions of this agent are flushed: a model is named, and nothing is disabled."""
    flush = settings.content.agents.defaults.compaction.memory_flush
    return settings.memory.enabled and flush.enabled and bool(flush.model)


def folder_of(settings: AgentSettings) -> Path:
    """Return the folder of an agent's transcripts."""
    return settings.state_dir / "agents" / settings.agent / "sessions"


def flush(session: Session, clock: Clock, *, if_due: bool = False) -> Flushed:
    """Ask the model what is worth keeping of a session, and append it to today's note.

    `if_due`: only when its window is nearly full and it was not flushed since its last compaction. Safe
    twice and at the same time: only one claims the cycle, and no item is appended twice.
    Raises a MemlineError when no model is configured or gives an answer, or the note cannot be written.
    """
    settings = session.settings
    if not is_on(settings):
        where = "agents.defaults.compaction.memoryFlush"
        raise ConfigError(
            f"no session of {settings.agent} is flushed: {where} names no model, or is disabled",
            hint='write memoryFlush: { model: "qwen3:8b", baseUrl: "http://127.0.0.1:11434/v1" }',
        )
    try:
        end = read_end(session.path)
    except (FileRefused, OSError) as error:
        reason = error.message if isinstance(error, FileRefused) else error.strerror or str(error)
        raise MemlineError(f"the transcript {session.path} cannot be read: {reason.lower()}") from error
    if if_due and not _is_due(settings, end):
        return Flushed(outcome=NOT_DUE)
    today = local_time(clock.now(), settings.content.agents.defaults.user_timezone).date()
    note = log_path(MemoryPaths.of(settings), today)
    if why := _why_not_writable(settings.workspace):
        return Flushed(outcome=SKIPPED, reason=why)
    if not _claim(session, clock, end.began) and if_due:
        return Flushed(outcome=NOT_DUE)
    turns = turns_of(end, session.format, now=clock.now())
    if not turns:
        return Flushed(outcome=NOTHING, reason="the session has no text")
    answer = _ask(settings, turns, clock)
    # A model repeats what it was shown, and a note is sent to an embedding provider.
    entry = chat_model.entry(mask(visible(answer)))
    if not any(map(_is_fact, _blocks(entry))):
        return Flushed(outcome=NOTHING, reason="there was nothing to keep")
    written = write(settings.workspace, note, entry)
    if not written.start_line:
        return Flushed(outcome=NOTHING, reason=f"all of it is in {note} already")
    return Flushed(outcome=STORED, reason=cite(note, written.start_line, written.end_line))


def _is_due(settings: AgentSettings, end: SessionEnd) -> bool:
    compaction = settings.content.agents.defaults.compaction
    threshold = threshold_in(compaction, _window(settings, end.model))
    force = compaction.memory_flush.force_flush_transcript_bytes
    return bool((threshold and end.tokens >= threshold) or (force and end.size >= force))


def _window(settings: AgentSettings, model: str) -> int:
    """Return the window of a model (`provider/model` or its bare id), else that of all models."""
    known, defaults = settings.content.models.windows, settings.content.agents.defaults
    return known.get(model) or known.get(model.partition("/")[2]) or defaults.context_tokens


def threshold_in(compaction: Compaction, window: int) -> int:
    """Return the tokens at which a session with this window is flushed; 0: never.

    `window - reserve - soft`, where the reserve leaves `MIN_PROMPT_TOKENS` or half of a small window, and
    the soft threshold takes at most half of what the reserve left.
    """
    prompt = min(MIN_PROMPT_TOKENS, window // 2)
    room = window - min(compaction.reserve_tokens_floor, window - prompt)
    return room - min(compaction.memory_flush.soft_threshold_tokens, room // 2)


def _claim(session: Session, clock: Clock, began: float) -> bool:
    """Record in the agent's index that a session is flushed now; False when it was since `began`."""
    path, name, now = session.settings.index_path, str(session.path), clock.now()
    if not path.exists():
        return True
    with closing(open_writer(path)) as writer, faults(path), transaction(writer):
        flushed = meta.get(writer, meta.FLUSHED_AT, {})
        is_first = not began <= flushed.get(name, -1.0)
        kept = {each: at for each, at in flushed.items() if at > now - _REMEMBERED_S}
        meta.put(writer, meta.FLUSHED_AT, {**kept, name: now})
    return is_first


def _ask(settings: AgentSettings, turns: list[str], clock: Clock) -> str:
    """Ask the model about as much of the conversation as it can take."""
    defaults = settings.content.agents.defaults
    flush = defaults.compaction.memory_flush
    now = local_time(clock.now(), defaults.user_timezone)
    system = chat_model.system_prompt(flush.system_prompt, now)
    wanted = chat_model.request(flush.prompt, now)
    window = _window(settings, flush.model)
    max_tokens = max(threshold_in(defaults.compaction, window), _MIN_CONVERSATION_TOKENS)
    while True:
        shown, is_cut = newest(turns, max_tokens)
        try:
            conversation = chat_model.conversation(shown, is_cut=is_cut)
            return chat_model.ask(settings, system, f"{conversation}\n\n{wanted}")
        except ProviderTooBig:
            max_tokens //= _SHORTER
            if max_tokens < _MIN_CONVERSATION_TOKENS:
                raise


def _why_not_writable(workspace: Path) -> str:
    """Say why notes cannot be written, as far as can be known before the model is asked; empty: they can."""
    if not workspace.is_dir():
        return f"the workspace {workspace} does not exist"
    return "" if os.access(workspace, os.W_OK) else f"{workspace} is not writable"


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
