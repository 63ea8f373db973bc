"""Queue `flush`: the silent turn before a session is compacted. Runs beside the transcripts and the notes."""

from __future__ import annotations

from typing import Any

import dramatiq

from shared.flush import plan
from shared.flush.run import run
from shared.flush.state import NOTHING, STORED
from shared.logs import Log
from shared.queue.messages import FlushMemory, decode
from workers import runtime

_LOG = Log("flush")


@dramatiq.actor(queue_name="flush")
def flush_memory(raw: dict[str, Any]) -> None:
    """Take the turn for one session and append what it says to today's note.

    Safe twice, late and out of order: the state beside the transcripts says what is settled, an answer that
    was paid for is kept there until it is in the note, and no line is appended twice.
    """
    message = decode(raw, FlushMemory)
    here = runtime.current()
    settings = here.agent(message.agent)
    try:
        session = run(settings, message.session, cycle=message.cycle, clock=here.clock)
    except OSError as error:
        # Not raised: the producer asks again, as often as a cycle allows.
        reason = f"{plan.folder_of(settings)}: {(error.strerror or str(error)).lower()}"
        _LOG.error("flush.failed", agent=message.agent, session=message.session, reason=reason)
        return
    if session is not None:
        tell = _LOG.info if session.outcome in (STORED, NOTHING) else _LOG.warning
        tell(
            "flush.done",
            agent=message.agent,
            session=message.session,
            outcome=session.outcome,
            reason=session.reason,
        )
