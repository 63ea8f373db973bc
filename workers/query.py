"""Queue `query`: answers searches from a warm index. Reads only."""

from __future__ import annotations

import json
from typing import Any

import dramatiq

from shared.errors import ConfigError, MemlineError
from shared.queue.messages import RunQuery, decode
from shared.search.results import SearchRequest
from workers import runtime


@dramatiq.actor(queue_name="query")
def run_query(raw: dict[str, Any]) -> None:
    """Answer one question into its reply box.

    Safe twice and late: it only reads, an answer after the deadline is not computed, and a box nobody waits
    at takes nothing. Not retried: whoever asked has searched the index directly by then.
    """
    message = decode(raw, RunQuery)
    here = runtime.current()
    if here.clock.now() > message.deadline:
        return
    try:
        request = SearchRequest(query=message.query, **message.options)
        memory = here.memory(message.agent)
        answer = memory.ask(request, files_behind=here.files_behind(message.agent)).to_json()
    except (MemlineError, TypeError) as error:
        hint = error.hint if isinstance(error, MemlineError) else ""
        # Only a wrong question is wrong whoever answers it; the rest may be this process's own trouble.
        answer = {"error": str(error), "action": hint, "elsewhere": not isinstance(error, ConfigError)}
    here.replies.put(message.reply_to, json.dumps(answer).encode())
