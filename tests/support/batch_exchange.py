"""One call of a stub server's Batch API: its request, its effect, its answer, and its faults."""

from __future__ import annotations

import json
import re
import socket
import struct
import tempfile
import zlib
from typing import TYPE_CHECKING

from tests.support.batch_jobs import StoredFile
from tests.support.embedding_faults import ErrorAnswer

if TYPE_CHECKING:
    pass

#: What else can go wrong with a call; `-after`: it had its effect.
CALL_FAULTS = {
    "reset": "the connection is reset before anything happened",
    "reset-after": "the connection is reset instead of an answer",
    "hang": "no answer while the server lives, and no effect",
    "hang-after": "no answer while the server lives",
    "500-after": "a 500 although it worked",
    "html": "a 200 with a web page, although it worked",
    "empty": "a 200 without a body, although it worked",
    "truncated": "a connection that ends in the middle of the answer",
    "half": "a 200 with half of the JSON (or of the file), and nothing wrong with the connection",
    "no-id": "a 200 with an object that says nothing",
    "404": "not found",
    "400": "`400:WORDS`: refused with these words",
    "413": "too large",
    "slow": "`slow:500` waits so many milliseconds",
    "trickle": "a byte at a time, while the server lives",
    "gzip": "the answer is packed",
}

#: Those of them that come after the effect.
_AFTER = (
    "reset-after",
    "hang-after",
    "500-after",
    "html",
    "empty",
    "truncated",
    "half",
    "no-id",
    "trickle",
    "gzip",
)

_PIECE = 1 << 16


class Exchange:
    """One request and its answer."""

    def __init__(self, side, request, call, name, query):
        self._side = side
        self._stub = side.stub
        self._wire = side.wire
        self._request = request
        self._call = call
        self._name = name
        self._query = query
        self._headers = {name.lower(): value for name, value in request.headers.items()}

    def run(self):
        fault, _, argument = self._side.next_fault(self._call).partition(":")
        with tempfile.SpooledTemporaryFile(max_size=1 << 20) as body:
            self._read(body)
            wait_ms = self._side.latency_ms + (float(argument) if fault == "slow" else 0)
            if wait_ms:
                self._stub.stopping.wait(wait_ms / 1000)
            if fault in ("reset", "hang"):
                self._vanish(fault)
                return
            error = self._refusal(fault, argument)
            if error is not None:
                self._send(
                    error.status,
                    [error.body],
                    error.kind,
                    location=error.location,
                    wait=error.retry_after,
                    encoding=error.encoding,
                )
                return
            with self._side.jobs.lock:
                answer = self._perform(body)
            if isinstance(answer, ErrorAnswer):
                self._send(answer.status, [answer.body], answer.kind)
            elif isinstance(answer, StoredFile):
                self._after(fault, answer.lines(), "application/octet-stream")
            else:
                self._after(fault, iter([json.dumps(answer).encode()]), "application/json")

    def _read(self, body):
        left = int(self._headers.get("content-length") or 0)
        while left and (piece := self._request.rfile.read(min(left, _PIECE))):
            body.write(piece)
            left -= len(piece)
        body.seek(0)

    def _refusal(self, fault, argument):
        if not self._stub.admits(self._headers):
            fault, argument = "401", ""
        if fault == "404":
            return self._error(404, "Not found.", "not_found")
        if fault == "400":
            return self._error(400, argument or "Bad request.", "invalid_request_error")
        if fault == "413":
            return self._error(413, "The file is too large.", "file_too_large")
        if fault in ("", "slow", *_AFTER):
            return None
        return self._stub.error({fault: argument}, {"input": [], "model": "stub"}, self._headers)

    def _perform(self, body):
        jobs = self._side.jobs
        if not self._side.knows_pages:
            self._query = {name: text for name, text in self._query.items() if name in ("limit", "pageSize")}
        if self._call == "upload":
            return self._upload(body)
        if self._call == "create":
            return self._create(json.loads(body.read() or b"{}"))
        if self._call == "list-files":
            files = [self._wire.file(file) for file in reversed(jobs.files.values())]
            return self._wire.page("files", files, self._query, self._side.page_rows)
        if self._call == "list":
            shown = [self._wire.job(job) for job in reversed(jobs.jobs.values())]
            return self._wire.page("jobs", shown, self._query, self._side.page_rows)
        if self._call in ("look", "cancel"):
            job = jobs.jobs.get(self._name)
            if job is None:
                return self._error(404, f"No batch found with id '{self._name}'.", "not_found")
            if self._call == "cancel" and not jobs.cancel(job):
                return self._error(409, f"Cannot cancel a batch with status '{job.state}'.", "conflict")
            return self._wire.job(job if self._call == "cancel" else jobs.look(job))
        file = jobs.files.get(self._name)
        if file is None:
            return self._error(404, f"No such File object: {self._name}", "not_found")
        if self._call == "file":
            file.looks_left -= 1
            return self._wire.file(file)
        if self._call == "delete":
            jobs.remove_file(self._name)
            return {"id": self._name, "object": "file", "deleted": True}
        return file

    def _upload(self, body):
        kind = self._headers.get("content-type", "")
        about, start, size = _parts(body, kind)
        wrong = self._wire.upload(about)
        if wrong:
            return self._error(400, wrong, "invalid_request_error")
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the file in the store
        body.seek(start)
        left = size
        while left and (piece := body.read(min(left, _PIECE))):
            kept.write(piece)
            left -= len(piece)
        kept.seek(0)
        file = self._side.jobs.add_file(kept, name=about["filename"], size=size)
        return self._wire.made_file(file)

    def _create(self, body):
        wrong, file_id, tag, agent = self._wire.creation(body)
        jobs = self._side.jobs
        if not wrong and file_id not in jobs.files:
            wrong = f"Invalid 'input_file_id': {file_id} does not exist."
        if wrong:
            return self._error(400, wrong, "invalid_request_error")
        if jobs.files[file_id].looks_left > 0:
            return self._error(404, f"Input file not found: {file_id}", "not_found")
        return self._wire.job(jobs.make(file_id=file_id, tag=tag, agent=agent, request=body))

    def _after(self, fault, pieces, kind):
        """The answer of a call that worked, with what becomes of it on its way."""
        if fault in ("reset-after", "hang-after"):
            self._vanish(fault)
        elif fault == "500-after":
            error = self._stub.error({"500": ""}, {"input": [], "model": "stub"}, self._headers)
            assert error is not None
            self._send(500, [error.body], error.kind)
        elif fault == "html":
            self._send(200, [b"<!doctype html><title>Sign in</title>"], "text/html")
        elif fault == "empty":
            self._send(200, [], kind)
        elif fault == "no-id":
            self._send(200, [b"{}"], kind)
        elif fault in ("half", "truncated"):
            whole = b"".join(pieces)
            self._send(200, [whole[: len(whole) // 2]], kind, cut=fault == "truncated")
        elif fault == "gzip":
            packed = zlib.compress(b"".join(pieces), wbits=31)
            self._send(200, [packed], kind, encoding="gzip")
        elif fault == "trickle":
            self._send(200, self._slowly(pieces), kind)
        else:
            self._send(200, pieces, kind)

    def _slowly(self, pieces):
        for piece in pieces:
            for at in range(len(piece)):
                yield piece[at : at + 1]
                if self._stub.stopping.wait(0.02):
                    return

    def _vanish(self, fault):
        self._request.close_connection = True
        if fault.startswith("hang"):
            self._stub.stopping.wait()
            return
        # Closed at once, with a reset.
        self._request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._request.connection.close()

    def _send(
        self,
        status,
        pieces,
        kind,
        *,
        location="",
        wait="",
        encoding="",
        cut=False,
    ):
        """An answer piece by piece; `cut`: its end never comes."""
        request = self._request
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Transfer-Encoding", "chunked")
        for name, value in (("Location", location), ("Retry-After", wait), ("Content-Encoding", encoding)):
            if value:
                request.send_header(name, value)
        request.end_headers()
        for piece in pieces:
            if piece:
                request.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if self._call not in ("output", "errors") or len(piece) == 1:
                request.wfile.flush()
        if cut:
            request.wfile.flush()
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        request.wfile.write(b"0\r\n\r\n")
        request.wfile.flush()

    def _error(self, status, message, code):
        return self._stub.plain_error(status, message, code)


def _parts(body, content_type):
    """What a multipart body says of its file, and where in it the file is."""
    found = re.search(r"boundary=\"?([^\";]+)", content_type)
    if not found:
        return {}, 0, 0
    boundary = found[1].encode()
    size = body.seek(0, 2)
    body.seek(0)
    head = body.read(_PIECE)
    related = content_type.startswith("multipart/related")
    # The file is the last part; before it stand fields, or what is to be known about it.
    marks = [at.end() for at in re.finditer(b"--" + re.escape(boundary) + rb"\r\n", head)]
    start = head.index(b"\r\n\r\n", marks[-1]) + 4
    about = {}
    if related:
        first = head[head.index(b"\r\n\r\n", marks[0]) + 4 : marks[-1] - len(boundary) - 6]
        about["filename"] = json.loads(first).get("file", {}).get("displayName", "")
    else:
        for mark in marks:
            lines, _, value = head[mark:].partition(b"\r\n\r\n")
            name = re.search(rb'[ ;]name="([^"]*)"', lines)
            file_name = re.search(rb'filename="([^"]*)"', lines)
            if file_name:
                about["filename"] = file_name[1].decode()
            elif name:
                about[name[1].decode()] = value.partition(b"\r\n--")[0].decode()
    return about, start, size - start - len(boundary) - len(b"\r\n----\r\n")
