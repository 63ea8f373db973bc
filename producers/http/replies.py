"""JSON answers of the HTTP API, errors among them: always what happened, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from producers.pool import Overloaded
from shared.errors import (
    AccessDenied,
    BadRequest,
    ConfigError,
    IndexFault,
    MemlineError,
    PathNotAllowed,
    UnknownAgent,
)

#: The status of each kind of error; the first that fits counts.
_STATUS = (
    (UnknownAgent, 404),
    (BadRequest, 400),
    (AccessDenied, 403),
    (PathNotAllowed, 403),
    (IndexFault, 503),
    (Overloaded, 503),
    (ConfigError, 500),
)


class Json(Response):
    """An answer that any client can read, whatever characters are in it; nobody keeps a copy."""

    media_type = "application/json"

    def __init__(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, status, {"cache-control": "no-store", **(headers or {})})

    def render(self, content: Any) -> bytes:
        # Lone surrogates, which a client may send in JSON, cannot be written in UTF-8.
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def refusal(status: int, error: str, hint: str = "", *, headers: Mapping[str, str] | None = None) -> Json:
    """An error in the shape of all errors."""
    return Json({"error": error, "hint": hint}, status, headers)


def refusal_of(error: MemlineError) -> Json:
    """The answer to a request that ended in this error."""
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
    headers = {"retry-after": "1"} if isinstance(error, Overloaded) else None
    return refusal(status, error.message, error.hint, headers=headers)


def too_many(wait_s: float, what: str) -> Json:
    """The answer to a client that has to wait."""
    seconds = max(1, round(wait_s + 0.5))
    return refusal(
        429, f"too many {what}", f"try again in {seconds} s", headers={"retry-after": str(seconds)}
    )
