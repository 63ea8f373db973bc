"""The lines of a batch's answer, and what a line says.

A line is good, an error, or nothing that can be read; none of them ends the reading. What differs between
providers is where key, numbers and error stand, see `RowReader`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shared.embedders.batch import BatchResult
from shared.embedders.classify import classify
from shared.embedders.masking import shown
from shared.embedders.vectors import FLOAT_BYTES, Values, unit_vector
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater

#: 3,072 numbers are 75 kB; what is longer than this is no row, and only its beginning is kept.
MAX_LINE_BYTES = 16 * 1024 * 1024

#: Of a line that is too long.
HEAD_BYTES = 4096

#: The key of a line that cannot be parsed.
_KEY = re.compile(rb'"(?:custom_id|key)"\s*:\s*"([^"\\]{1,256})"')

#: Codes of errors that are none of the text's; beside these an error without a status is the text's.
_LATER = re.compile(
    r"expired|cancel|rate.?limit|server.?error|internal|timeout|timed.?out|overloaded|unavailable",
    re.IGNORECASE,
)

#: https://cloud.google.com/apis/design/errors: `google.rpc.Code` -> HTTP status.
_OF_RPC_CODE = {
    1: 503, 2: 500, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429,
    9: 400, 10: 409, 11: 400, 12: 501, 13: 500, 14: 503, 15: 500, 16: 401,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReader:
    """How to read the rows of one provider."""

    provider: str
    #: Dimensions of every vector; 0: the first good row tells.
    dims: int
    secrets: tuple[str, ...]
    key_hint: str
    #: The numbers of a row. Raises ProviderBrokenAnswer, or RowFailed for a row that is an error.
    values: Callable[[dict[str, Any]], Values]

    def results(self, pieces: Iterable[bytes]) -> Iterator[BatchResult]:
        """The result of every line; blank lines are none. Raises what `pieces` raises."""
        dims = self.dims
        for line, whole in lines(pieces):
            if not line.strip():
                continue
            if not whole:
                yield self._broken(line, f"a line of more than {MAX_LINE_BYTES} bytes")
                continue
            try:
                result = self._result(json.loads(line.decode("utf-8-sig")), dims)
            except (ValueError, RecursionError):
                yield self._broken(line, "a line that is no JSON")
                continue
            if result.vector is not None:
                dims = dims or len(result.vector) // FLOAT_BYTES
            yield result

    def _result(self, row: Any, dims: int) -> BatchResult:
        if not isinstance(row, dict):
            return BatchResult(key="", error=self._error("a line that is no object"))
        key = next((row[name] for name in ("custom_id", "key", "request_id") if row.get(name)), "")
        if not isinstance(key, str):
            return BatchResult(key="", error=self._error("a row whose key is no text"))
        try:
            return BatchResult(key=key, vector=unit_vector(self.values(row), dims=dims or None))
        except RowFailed as failed:
            return BatchResult(key=key, error=self.failure(failed.status, failed.said))
        except ProviderBrokenAnswer as error:
            return BatchResult(key=key, error=self._error(error.message, hint=error.hint))

    def failure(self, status: int | None, said: Any, *, what: str = "batch row") -> ProviderError:
        """The error of a row (or a job) by its status, or by its code when it has none."""
        answer = said if isinstance(said, dict) and "error" in said else {"error": said}
        body = json.dumps(answer, ensure_ascii=False)
        if status is None:
            inner = answer["error"] if isinstance(answer["error"], dict) else {"message": answer["error"]}
            words = " ".join(str(inner.get(name) or "") for name in ("code", "status", "type"))
            status = _status_of(inner.get("code"))
            if status is None and _LATER.search(words):
                return ProviderLater(self._text(what, str(inner.get("message") or words)))
        return classify(
            self.provider,
            status or 400,
            {},
            body,
            what=what,
            secrets=self.secrets,
            key_hint=self.key_hint,
        )

    def _broken(self, line: bytes, said: str) -> BatchResult:
        found = _KEY.search(line[:HEAD_BYTES])
        key = found.group(1).decode("utf-8", "replace") if found else ""
        return BatchResult(key=key, error=self._error(said))

    def _error(self, said: str, *, hint: str = "") -> ProviderBrokenAnswer:
        return ProviderBrokenAnswer(self._text("batch row", said), hint=hint)

    def _text(self, what: str, said: str) -> str:
        return f"{self.provider} {what} failed: {shown(said, self.secrets)}"


class RowFailed(Exception):
    """The row is an error of the provider's."""

    def __init__(self, status: int | None, said: Any) -> None:
        super().__init__("the row is an error")
        #: HTTP status; None when only a code tells.
        self.status = status
        #: What the provider wrote: an error object, one in `error`, or text.
        self.said = said


def lines(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each line without its end, and whether it is whole; of one that is too long, the beginning."""
    pending = bytearray()
    too_long = False
    for piece in pieces:
        start = 0
        while start <= len(piece):
            end = piece.find(b"\n", start)
            part = memoryview(piece)[start : len(piece) if end < 0 else end]
            if not too_long:
                pending += part
                if len(pending) > MAX_LINE_BYTES:
                    too_long = True
                    pending = pending[:HEAD_BYTES]
            if end < 0:
                break
            yield bytes(pending), not too_long
            pending = bytearray()
            too_long = False
            start = end + 1
    if pending:
        yield bytes(pending), not too_long


def _status_of(code: Any) -> int | None:
    """The HTTP status that a code stands for; None when it is a word."""
    try:
        number = int(code)
    except (TypeError, ValueError):
        return None
    return _OF_RPC_CODE.get(number, number if 400 <= number < 600 else None)
