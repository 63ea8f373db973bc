"""The rows of a job: written as the JSONL file that it is made of, and read from the JSONL of its results.

A file of 200 MB is never in memory: it is written to a temporary file without a name, so that its size is
known before the first byte is sent, and read from there piece by piece. A row of the results is good, an
error, or nothing that can be read; none of them ends the reading.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import IO, Any

from memline.shared.batches.planning import MAX_BYTES, MAX_ROWS
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient, Upload
from memline.shared.embedders.provider_client import Reply, parse_json
from memline.shared.embedders.provider_errors import redact_line
from memline.shared.embedders.vector_checks import FLOAT_BYTES, Values, unit_vector
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderTooBig,
)
from memline.shared.tables import as_dict
from memline.shared.values import value

#: Bytes that are read and sent at a time.
PIECE_BYTES = 256 * 1024

CONTENT_TYPE = "application/jsonl"

#: 3,072 numbers are 75 kB; a longer line than this is not a row, and only its beginning is kept.
MAX_LINE_BYTES = 16 * 1024 * 1024

#: Vectors that tell the dimensions where they are not known.
VOTES = 8

#: Errors of a job that are shown; a file that is wrong in one row is often wrong in all.
MAX_SHOWN_ERRORS = 3

#: "Enqueued token limit reached for … Limit: 3,000,000 enqueued tokens."
_ENQUEUED = re.compile(r"enqueued token limit|[\d,]+ enqueued tokens", re.IGNORECASE)

#: The key of a line that cannot be parsed, in its first bytes.
_KEY = re.compile(rb'"(?:custom_id|key)"\s*:\s*"([^"\\]{1,256})"')
_KEY_WITHIN_BYTES = 4096

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

ROW = "batch row"


@value
class BatchRow:
    """One text of a job."""

    #: Its text hash in hex; no two rows of a job have the same.
    key: str
    text: str


@value
class BatchResult:
    """What became of one row: a vector or an error, never both."""

    #: The key of the row as the provider returned it, so perhaps one of another job, or a second time. Empty:
    #: the line does not say it (it was cut off, or is not JSON).
    key: str
    #: Checked, unit length, as everywhere.
    vector: bytes | None = None
    #: `refused`, `too_big`: the text; `later`, `broken`: the row may work when it is asked for again;
    #: `stop`: nothing will work until the operator acts.
    error: ProviderError | None = None


@contextmanager
def spooled(rows: Iterable[Mapping[str, object]], provider: str) -> Iterator[IO[bytes]]:
    """Write rows to a temporary file that lasts for the block, each as a line of JSON.

    Raises ProviderTooBig above the caps, ProviderLater when the disk is full, and ProviderBrokenAnswer when
    there is no row.
    """
    count = 0
    with tempfile.TemporaryFile(buffering=PIECE_BYTES) as file:
        try:
            for count, row in enumerate(rows, 1):
                # A lone surrogate cannot be sent, and becomes a question mark.
                text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                file.write(text.encode("utf-8", "replace") + b"\n")
                if count > MAX_ROWS or file.tell() > MAX_BYTES:
                    raise ProviderTooBig(
                        f"{provider} batch of more than {MAX_ROWS} rows or {MAX_BYTES} bytes"
                    )
            file.flush()
        except OSError as error:
            raise ProviderLater(
                f"the file of a {provider} batch cannot be written to {tempfile.gettempdir()}: "
                f"{error.strerror}",
                hint="make room there, or set TMPDIR to another folder",
            ) from None
        if not count:
            # The texts may have lost their last chunk meanwhile.
            raise ProviderBrokenAnswer(f"{provider} batch without rows")
        yield file


def multipart(kind: str, about: str, file: IO[bytes], file_headers: str = "") -> Upload:
    """Make a body of two parts: `about`, which is headers, an empty line and text, and the file."""
    boundary = f"memline{token_hex(16)}"
    file_headers += f"Content-Type: {CONTENT_TYPE}"
    head = f"--{boundary}\r\n{about}\r\n--{boundary}\r\n{file_headers}\r\n\r\n".encode()
    tail = f"\r\n--{boundary}--\r\n".encode()

    def pieces() -> Iterator[bytes]:
        file.seek(0)
        return chain([head], iter(partial(file.read, PIECE_BYTES), b""), [tail])

    size = len(head) + file.seek(0, os.SEEK_END) + len(tail)
    return Upload(content_type=f"multipart/{kind}; boundary={boundary}", size=size, pieces=pieces)


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split pieces into lines without their ends. One above `MAX_LINE_BYTES` is cut, but stays above it."""
    pending = bytearray()
    for piece in pieces:
        first, *others = piece.split(b"\n")
        pending += first[: max(MAX_LINE_BYTES + 1 - len(pending), 0)]
        for other in others:
            yield bytes(pending)
            pending = bytearray(other)
    if pending:
        yield bytes(pending)


class ResultReader(ABC):
    """Reads the results of a job, and the errors in them, in the words of its provider."""

    _endpoint: Endpoint
    _http: HttpClient
    #: Dimensions of every vector; 0: the rows tell.
    _dims: int

    @abstractmethod
    def _values(self, row: dict[str, Any]) -> Values:
        """Return the numbers of a row of the results. Raises its error without them; see `_error_of`."""

    def _results(self, pieces: Iterable[bytes]) -> Iterator[BatchResult]:
        """Read the result of every line but blank ones.

        Where the dimensions are not known, the first rows vote: an odd one does not spoil the others.
        """
        results = (self._result(line) for line in lines(pieces) if line.strip())
        first: list[BatchResult] = []
        votes: Counter[int] = Counter()
        while not self._dims and votes.total() < VOTES and (result := next(results, None)):
            first.append(result)
            votes.update([len(result.vector) // FLOAT_BYTES] if result.vector else [])
        dims = self._dims or (votes.most_common(1)[0][0] if votes else 0)
        for result in chain(first, results):
            count = len(result.vector) // FLOAT_BYTES if result.vector else 0
            dims = dims or count
            if count not in (0, dims):
                yield self._bad_row(result.key, f"{count} dimensions; expected {dims}")
            else:
                yield result

    def _result(self, line: bytes) -> BatchResult:
        try:
            is_whole = len(line) <= MAX_LINE_BYTES
            row = parse_json(line.decode("utf-8-sig")) if is_whole else None
        except (ValueError, RecursionError):
            is_whole = False
        if not is_whole:
            match = _KEY.search(line[:_KEY_WITHIN_BYTES])
            key = match.group(1).decode("utf-8", "replace") if match else ""
            return self._bad_row(key, "a line that is not JSON, or is too long")
        if not isinstance(row, dict):
            return self._bad_row("", "a line that is not an object")
        key = next((row[name] for name in ("custom_id", "key", "request_id") if row.get(name)), "")
        if not isinstance(key, str):
            return self._bad_row("", "a row whose key is not text")
        try:
            return BatchResult(key=key, vector=unit_vector(self._values(row), dims=None))
        except ProviderBrokenAnswer as error:
            return self._bad_row(key, error.message, hint=error.hint)
        except ProviderError as error:
            return BatchResult(key=key, error=error)
        except RecursionError:
            # As deep as it could just be read, but not written into the words of its error.
            return self._bad_row(key, "a row that is nested too deeply")

    def _bad_row(self, key: str, problem: str, *, hint: str = "") -> BatchResult:
        error = ProviderBrokenAnswer(self._text(ROW, self._redacted(problem)), hint=hint)
        return BatchResult(key=key, error=error)

    def _error_of(self, status: int | None, answer: Any, *, what: str = ROW) -> ProviderError:
        """Make the error of a row (or a job) by its status, or by its code when it has none."""
        answer = answer if isinstance(answer, dict) and "error" in answer else {"error": answer}
        if status is None:
            inner = as_dict(answer["error"])
            code = number(inner.get("code"))
            status = _OF_RPC_CODE.get(code, code if 400 <= code < 600 else None)
            words = " ".join(str(inner.get(name) or "") for name in ("code", "status", "type"))
            if status is None and _LATER.search(words):
                return ProviderLater(self._text(what, self._redacted(str(inner.get("message") or words))))
        body = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
        return self._http.error(Reply(status=status or 400, headers={}, body=body, what=what))

    def _failure(self, errors: Sequence[Any]) -> tuple[str, ProviderError]:
        """Why a job failed, and what kind of failure that is."""
        texts = [error_words(error) for error in errors[:MAX_SHOWN_ERRORS]]
        reason = self._redacted("; ".join(filter(None, texts)))
        text = self._text("batch", reason or "no reason was given")
        if _ENQUEUED.search(" ".join(texts)):
            return reason, ProviderTooBig(text)
        error = self._error_of(None, errors[0], what="batch") if errors else ProviderBrokenAnswer(text)
        return reason, ProviderBrokenAnswer(text) if isinstance(error, ProviderRefused) else error

    def _text(self, what: str, problem: str) -> str:
        return f"{self._endpoint.provider} {what} failed: {problem}"

    def _redacted(self, text: str) -> str:
        return redact_line(text, self._endpoint.secrets)


def number(value: object) -> int:
    """Return a count, which a provider may write as text; 0 when it is not a number."""
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError, OverflowError):
        return 0


def error_words(error: Any) -> str:
    """Put one error of a job in words."""
    if not isinstance(error, dict):
        return str(error)
    words = str(error.get("message") or error.get("code") or "")
    line = error.get("line")
    return f"{words} (line {line})" if line is not None else words
