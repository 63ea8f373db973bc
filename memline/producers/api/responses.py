"""Make the JSON responses of the HTTP API; every error says what happened, and what to do."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.responses import Response

from memline.producers.api.calls import Overloaded
from memline.shared.errors import (
    AccessDenied,
    BadRequest,
    IndexFault,
    JobUnknown,
    MemlineError,
    PathNotAllowed,
    QueueError,
    UnknownAgent,
)

#: The status of each kind of error; the first that fits counts. The others say that the state of the settings
#: or of what is asked for does not allow it; 500 is for a fault of ours alone.
_STATUS = (
    ((UnknownAgent, JobUnknown), 404),
    (BadRequest, 400),
    ((AccessDenied, PathNotAllowed), 403),
    ((IndexFault, Overloaded, QueueError), 503),
    (MemlineError, 409),
)


class JsonResponse(Response):
    """A response that any client can read, whatever characters are in it, and that no cache keeps."""

    media_type = "application/json"

    def __init__(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, status, {"cache-control": "no-store", **(headers or {})})

    def render(self, content: Any) -> bytes:
        with suppress(UnicodeEncodeError):
            return msgspec.json.encode(content)
        # Lone surrogates, which a client may send in JSON, cannot be written in UTF-8.
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def error_response(
    status: int, error: str, hint: str = "", *, headers: Mapping[str, str] | None = None
) -> JsonResponse:
    """Make an error in the shape of all errors."""
    return JsonResponse({"error": error, "hint": hint}, status, headers)


def status_of(error: MemlineError) -> int:
    """Return the status of a request that ended in this error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def response_to(error: MemlineError) -> JsonResponse:
    """Make the response to a request that ended in this error."""
    return error_response(status_of(error), error.message, error.hint)
