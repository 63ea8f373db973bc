"""List every call and action once: command line, MCP, HTTP, dashboard and `Memory` are made of it.

A row has the name, the parameters with their limits and words, whether it asks first, and the
line in the audit log.
"""

from __future__ import annotations

from memline.producers.calls.memory_calls import MEMORY_CALLS
from memline.producers.calls.rows import Call
from memline.producers.calls.upkeep_calls import UPKEEP_CALLS
from memline.producers.calls.verb_calls import VERB_CALLS

#: The calls by name.
CALLS: dict[str, Call] = {call.name: call for call in (*MEMORY_CALLS, *UPKEEP_CALLS, *VERB_CALLS)}
