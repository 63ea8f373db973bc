"""The Batch API of a stub server: every call of a job's life, and everything that can go wrong with one.

It is part of every server here (`embedding_server`, `voyage_server`, `gemini_server`), at the same address
and with the same key, so that a client can go from batches to ordinary requests and back. Vectors are those
of an ordinary request for the same text.

    POST /control  {"batch": {"looks": 2, "end": "expired", "done": 5, "rows": "nan:POISON",
                              "faults": {"create": ["reset-after"], "look": "500"}, …}}
    GET  /log      {…, "batch": {"calls": {"create": 1, …}, "jobs": [{"id", "tag", "agent", "state", "rows",
                                 "done", "failed"}], "files": 1}}

`faults` holds, for a call, either one fault, which stays, or a list of them, one a call; they take the
place of all before. The calls are upload, list-files, file, create, list, look, output, errors, cancel,
delete. A fault is a word of `embedding_faults.FAULTS` that makes an error answer (`429:60`, `500`, `401`,
`429-quota` …), or one of `CALL_FAULTS`. Beside these and what `batch_jobs` takes there are `latency_ms`
for every call, `page_rows` (the most a page of a list holds), `pages` (false: every page of a list is the
first), `enabled` (false: nobody here knows what a batch is) and `clear_log`.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.batch_exchange import CALL_FAULTS, Exchange
from tests.support.batch_jobs import Jobs, means
from tests.support.embedding_faults import FAULTS

if TYPE_CHECKING:
    pass

#: Vectors to pick from when they are to cost nothing.
POOL = 64

CALLS = ("upload", "list-files", "file", "create", "list", "look", "output", "errors", "cancel", "delete")


class BatchSide:
    """Jobs, files and faults of one server."""

    def __init__(self, stub, wire):
        self.stub = stub
        self.wire = wire
        self._shown = {}
        self.jobs = Jobs(read=wire.rows)
        self.clear()

    def clear(self):
        """Begin anew, as a server that was just started."""
        self.jobs.close()
        self.jobs = Jobs(read=self.wire.rows)
        self.jobs.write = self._row
        self.jobs.write_error = lambda job, row, status, code: self.wire.bad_row(job, row.key, status, code)
        self.jobs.has_error_file = self.wire.has_error_file
        self.jobs.on_embedded = self.stub.count_texts
        self.calls = Counter()
        self.latency_ms = 0.0
        self.page_rows = 100
        self.knows_pages = True
        self.enabled = True
        self._scripts = {}
        self._faults = {}

    def control(self, changes):
        with self.jobs.lock:
            self.jobs.control(changes)
            self.latency_ms = float(changes.get("latency_ms", self.latency_ms))
            self.page_rows = int(changes.get("page_rows", self.page_rows))
            self.knows_pages = bool(changes.get("pages", self.knows_pages))
            self.enabled = bool(changes.get("enabled", self.enabled))
            if "faults" in changes:
                self._faults.clear()
                self._scripts.clear()
            for call, fault in changes.get("faults", {}).items():
                if call not in CALLS:
                    raise ValueError(f"unknown call {call!r}; known are: {', '.join(CALLS)}")
                for each in [fault] if isinstance(fault, str) else fault:
                    _checked(each)
                if isinstance(fault, str):
                    self._faults[call] = fault
                else:
                    self._scripts[call] = deque(fault)
            if changes.get("clear_log"):
                self.calls.clear()

    def log(self):
        with self.jobs.lock:
            shown = ("id", "tag", "agent", "state", "rows", "done", "failed")
            return {
                "calls": dict(self.calls),
                "jobs": [{name: getattr(job, name) for name in shown} for job in self.jobs.jobs.values()],
                "files": len(self.jobs.files),
            }

    def handle(self, request):
        """Answer a request of the Batch API; False when it is none."""
        parts = urlsplit(request.path)
        found = self.wire.route(request.command, unquote(parts.path))
        if found is None or not self.enabled:
            return False
        call, name = found
        if call == "content":
            file = self.jobs.files.get(name)
            call = "errors" if file is not None and file.name.endswith("_errors.jsonl") else "output"
        Exchange(self, request, call, name, dict(parse_qsl(parts.query))).run()
        return True

    def next_fault(self, call):
        with self.jobs.lock:
            self.calls[call] += 1
            script = self._scripts.get(call)
            return script.popleft() if script else self._faults.get(call, "")

    def _row(self, job, row, faults):
        """A good row, or one whose vector is none."""
        key = "" if means(faults, "no-key", row.text) else row.key
        dims = self.wire.dims(job, row) or self.stub.dims
        in_base64 = self.wire.in_base64(job, row)
        for word in ("nan", "zero", "empty", "wrong-dims"):
            if means(faults, word, row.text):
                count = {"empty": 0, "wrong-dims": dims - 1}.get(word, dims)
                value = {"nan": float("nan"), "zero": 0.0}.get(word, 0.5)
                return self.wire.row(job, key, json.dumps([value] * count))
        return self.wire.row(job, key, self._embedding(row.text, dims, in_base64))

    def _embedding(self, text, dims, in_base64):
        if not self.stub.cheap:
            return _as_json(self.stub.vector(text, dims), in_base64)
        place = (zlib.crc32(text.encode("utf-8", "replace")) % POOL, dims, in_base64)
        if place not in self._shown:
            self._shown[place] = _as_json(self.stub.vector(text, dims), in_base64)
        return self._shown[place]


def _checked(fault):
    word = fault.partition(":")[0]
    if word and word not in CALL_FAULTS and word not in FAULTS:
        known = ", ".join([*CALL_FAULTS, *FAULTS])
        raise ValueError(f"unknown fault {word!r}; known are: {known}")


def _as_json(vector, in_base64):
    """A vector in base64 as it stands in a row."""
    return f'"{vector}"' if in_base64 else json.dumps(list(array("f", base64.b64decode(vector))))
