"""The shape of every answer that agents get, as JSON Schema: what MCP publishes and the HTTP API describes.

Additive only, like the answers themselves. Tests hold real answers against these.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _of(kind: str, doc: str = "") -> Schema:
    return {"type": kind, "description": doc} if doc else {"type": kind}


def _nullable(kind: str, doc: str = "") -> Schema:
    return {**_of(kind, doc), "type": [kind, "null"]}


def _list(items: Schema, doc: str = "") -> Schema:
    return {**_of("array", doc), "items": items}


def _object(properties: dict[str, Schema], *, optional: tuple[str, ...] = (), doc: str = "") -> Schema:
    """An object whose properties are all there but for the optional ones; more may come."""
    required = [name for name in properties if name not in optional]
    return {**_of("object", doc), "properties": properties, "required": required}


_TEXT, _COUNT, _YES = _of("string"), _of("integer"), _of("boolean")
_WARNING = _of("string", "What is not as it should be; empty when all is well.")
_ACTION = _of("string", "What to do about it.")
_BEHIND = _object(
    {"files": _COUNT, "vectors": _COUNT}, doc="How many files and vectors are not in the index yet."
)

_HIT = _object(
    {
        "path": _of("string", "File, as memory_get takes it."),
        "startLine": _COUNT,
        "endLine": _COUNT,
        "score": _of("number", "The higher the better; comparable within one answer only."),
        "vectorScore": _of("number", "Similarity of meaning; 0 without a vector."),
        "textScore": _of("number", "Match of words, 1 for the best of this answer; 0 when none matched."),
        "snippet": _of("string", "The part of the note that answers best."),
        "source": _of("string", "memory or sessions."),
        "citation": _of("string", "path#L5-L7; absent where citations are off."),
        "explain": _of("object", "Every contribution to the score."),
    },
    optional=("citation", "explain"),
)

SEARCH = _object(
    {
        "results": _list(_HIT, "Best first."),
        "totalResults": _COUNT,
        "backend": _TEXT,
        "provider": _TEXT,
        "model": _TEXT,
        "mode": _of("string", "hybrid, keyword or vector: how the hits were found."),
        "fallback": {"type": ["object", "null"], "description": "Why another provider is in use."},
        "stale": _of("boolean", "Whether something on disk is not in the index yet."),
        "behind": _BEHIND,
        "warning": _WARNING,
        "action": _ACTION,
        "notice": _of("string", "Why the list is as it is, when nothing is wrong."),
        "citations": _of("string", "auto, on or off, as configured."),
        "truncated": _of("boolean", "Whether snippets were cut to the budget."),
        "disabled": _of("boolean", "No memory for this caller; warning says why."),
        "unavailable": _of("boolean", "The index cannot be used now."),
        "error": _TEXT,
    },
    optional=("disabled", "unavailable", "error"),
)

GET = _object(
    {
        "path": _TEXT,
        "text": _of("string", "The lines; empty when there is no such file."),
        "from": _of("integer", "First line given, 1-based."),
        "lines": _of("integer", "Number of lines given."),
        "truncated": _of("boolean", "Whether more of the file follows."),
        "nextFrom": _nullable("integer", "Where to go on; null at the end."),
        "status": _of("string", "ok or not_found."),
    }
)

STATUS = _object(
    {
        "agentId": _TEXT,
        "enabled": _YES,
        "provider": _TEXT,
        "model": _TEXT,
        "mode": _of("string", "hybrid or keyword: how questions are answered."),
        "files": _COUNT,
        "chunks": _COUNT,
        "sources": _list(_TEXT),
        "sourceCounts": _list(_object({"source": _TEXT, "files": _COUNT, "chunks": _COUNT})),
        "vectors": _object({"ready": _COUNT, "wanted": _COUNT, "failed": _COUNT}),
        "stale": _YES,
        "behind": _BEHIND,
        "append": _of("boolean", "Whether memory_append may be used."),
        "warning": _WARNING,
        "action": _ACTION,
    }
)

APPEND = _object(
    {
        "path": _of("string", "The note that was added to."),
        "startLine": _COUNT,
        "endLine": _COUNT,
        "citation": _TEXT,
        "text": _of("string", "The entry as it stands there."),
        "bytes": _of("integer", "Size of the note now."),
    }
)

CONTEXT = _object(
    {
        "agentId": _TEXT,
        "date": _of("string", "Today, in the time zone of the server."),
        "private": _YES,
        "parts": _list(
            _object(
                {
                    "name": _of("string", "longTerm, yesterday or today."),
                    "path": _TEXT,
                    "text": _TEXT,
                    "chars": _of("integer", "Of the whole note."),
                    "truncated": _YES,
                }
            )
        ),
        "text": _of("string", "All parts as one text."),
        "truncated": _YES,
        "maxChars": _COUNT,
    }
)

OVERVIEW = _object(
    {
        "agents": _list(STATUS),
        "queues": {
            "type": ["object", "null"],
            "description": "Queues, backlog and workers of a fleet; null without one.",
        },
    }
)

ERROR = _object(
    {
        "error": _of("string", "What happened."),
        "hint": _of("string", "What to do about it; may be empty."),
    }
)
