"""Write structured logs: one line a record, an event name and its fields, never a sentence with data in it.

    log = Log("chunk", queue="chunk")
    log.info("file.chunked", path="memory/a.md", chunks=3)

    2026-02-10T08:00:00.123Z INFO chunk file.chunked queue=chunk path=memory/a.md chunks=3

Fields never hold secrets or the text of files.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partialmethod
from typing import Any, TextIO

#: All loggers of Memline are below this one.
ROOT = "memline"

# A command that shows its errors itself keeps no log; without a handler Python prints the bare events.
logging.getLogger(ROOT).addHandler(logging.NullHandler())

#: Attribute of a record that carries the fields.
_FIELDS = "memline_fields"

#: Loggers of libraries that say a line at INFO for every request.
_A_LINE_A_REQUEST = ("httpx", "mcp.server.streamable_http")

#: Fields of every line that a thread writes while it works on something.
_context = threading.local()


@contextmanager
def context(**fields: object) -> Iterator[None]:
    """Add these fields to every line that this thread writes inside, also to those of other libraries."""
    before = getattr(_context, "fields", {})
    _context.fields = {**before, **fields}
    try:
        yield
    finally:
        _context.fields = before


class Log:
    """Writes records of an event and fields; the fields it is made with are in every record."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, name: str, **bound: object) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")
        self._bound = bound

    def _write(self, level: int, event: str, /, *, exc_info: bool = False, **fields: object) -> None:
        if self._logger.isEnabledFor(level):
            extra = {_FIELDS: {**self._bound, **fields}}
            self._logger.log(level, "%s", event, exc_info=exc_info, extra=extra)

    debug = partialmethod(_write, logging.DEBUG)
    info = partialmethod(_write, logging.INFO)
    warning = partialmethod(_write, logging.WARNING)
    error = partialmethod(_write, logging.ERROR)
    #: Writes an error with the traceback of the current exception.
    exception = partialmethod(_write, logging.ERROR, exc_info=True)


class TextFormatter(logging.Formatter):
    """`<time> <level> <logger> <event> key=value …`, always one line."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname} {_name(record)}"
        fields = " ".join(f"{name}={_plain(value)}" for name, value in _fields(record, self).items())
        event = record.getMessage()
        # A message of another library may be any text.
        shown = event if event.isprintable() else json.dumps(event, ensure_ascii=False)
        return f"{head} {shown} {fields}".rstrip()


def configure(level: str = "WARNING", stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (standard error); a second call replaces the first.

    `level` comes from `shared.config.environment.log_level`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _A_LINE_A_REQUEST:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _name(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{ROOT}.")


def _fields(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, Any]:
    fields: dict[str, Any] = {**getattr(_context, "fields", {}), **getattr(record, _FIELDS, {})}
    if record.exc_info:
        fields["traceback"] = formatter.formatException(record.exc_info)
    return fields


def _plain(value: object) -> str:
    """Write the value without quotes when that is unambiguous, else as a JSON string."""
    text = str(value)
    simple = text and text.isprintable() and not any(mark in text for mark in " =\"'")
    return text if simple else json.dumps(text, ensure_ascii=False)
