"""Queue `flush`: flush a session before it is compacted. Runs beside the transcripts and the notes."""

from __future__ import annotations

from memline.shared.flush import flush_plan
from memline.shared.flush.run import run
from memline.shared.flush.state import NOTHING, STORED
from memline.shared.logs import Log
from memline.shared.queue.broker import actor
from memline.shared.queue.messages import FlushMemory
from memline.workers.context import current

_LOG = Log("flush")


@actor(FlushMemory)
def flush_memory(message: FlushMemory) -> None:
    """Flush one session: ask the chat model, and append its answer to today's note.

    Safe twice, late and out of order: the state beside the transcripts says what is done, an answer that
    was paid for is kept there until it is in the note, and no line is appended twice.
    """
    context = current()
    settings = context.agent(message.agent)
    try:
        session = run(settings, message.session, cycle=message.cycle, clock=context.clock)
    except OSError as error:
        # Not raised: the producer requests it again, as often as a cycle allows.
        reason = f"{flush_plan.folder_of(settings)}: {(error.strerror or str(error)).lower()}"
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
