"""The Batch API of a stub server: every call of a job's life, and what can go wrong with one.

It is part of every `EmbeddingServer`, at the same address and with the same key, so that a client can go from
batches to ordinary requests and back. Vectors are those of an ordinary request for the same text.

    POST /control  {"batch": {"looks": 2, "end": "expired", "done": 5, "rows": "nan:POISON",
                              "faults": {"create": ["500-after"], "look": "500"}, …}}
    GET  /log      {…, "batch": {"calls": {"create": 1, …}, "jobs": [{"id", "tag", "agent", "state", "rows",
                                 "done", "failed"}], "files": 1}}

What `batch` takes, with what holds without it:

    looks     0           looks at a job before the one that finds it final
    end       completed   or failed, expired, cancelled
    done      all         rows that were worked through before the end (for expired and cancelled: 0)
    rows      no fault    what is wrong with rows, see `ROW_FAULTS`
    faults    {}          for a call of `log` either one fault, which stays, or a list of them, one a call
    latency_ms, enabled   of every call; false: nobody here knows what a batch is

A job is settled when it becomes final: only then its rows are counted as embedded, by the server that also
counts those of ordinary requests.
"""

import itertools
import json
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.embedding_faults import FAULTS, error_answer, parsed
from tests.support.provider_wires import Answer, encoded, numbers_of

#: What can go wrong with a call beside the words of FAULTS that make an error; `-after`: it had its effect.
CALL_FAULTS = {
    "reset": "the connection is reset before anything happened",
    "500-after": "a 500 although it worked",
    "html": "a 200 with a web page, although it worked",
    "half": "a 200 with half of the answer, and nothing wrong with the connection",
    "404": "not found",
    "400": "`400:WORDS`: refused with these words",
}

#: Words of a comma list, many with a word of the texts behind a colon; without one they mean all rows.
ROW_FAULTS = {
    "refused": "a row with status 400",
    "missing": "no row",
    "duplicate": "the row twice",
    "nan": "NaN in the vector",
    "wrong-dims": "a vector one dimension short",
    "permuted": "rows in reverse order",
    "foreign": "one more row, of another job",
    "not-json": "one more line, which is no JSON",
}


@dataclass(slots=True, kw_only=True)
class Job:
    """One job; what of it is shown differs between providers."""

    id: str
    input_file: str
    tag: str
    agent: str
    request: dict[str, Any] = field(repr=False)
    looks_left: int
    end: str
    #: `validating`, `in_progress`, `cancelling`, `completed`, `failed`, `expired`, `cancelled`.
    state: str = "validating"
    rows: int = 0
    done: int = 0
    failed: int = 0
    #: Files of the results.
    output: str = ""
    errors: str = ""
    reason: str = ""

    @property
    def is_final(self):
        return self.state in ("completed", "failed", "expired", "cancelled")


class BatchSide:
    """Jobs, files and faults of one server."""

    def __init__(self, stub):
        self._stub, self._wire = stub, stub.wire
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        #: Content by id, and jobs by id.
        self.files = {}
        self._jobs = {}
        self.calls = Counter()
        self._scripts, self._faults, self._row_faults = {}, {}, {}
        self._looks, self._end, self._done = 0, "completed", None
        self._latency_ms, self._is_enabled = 0.0, True

    def control(self, changes):
        """Change how coming calls and jobs go; see above."""
        faults = changes.get("faults", {})
        lasting = {call: fault for call, fault in faults.items() if isinstance(fault, str)}
        scripts = {call: deque(each) for call, each in faults.items() if call not in lasting}
        words = [word.partition(":")[0] for word in chain(lasting.values(), *scripts.values())]
        assert {*words} <= {*CALL_FAULTS, *FAULTS}
        rows = dict(each.partition(":")[::2] for each in filter(None, changes.get("rows", "").split(",")))
        assert rows.keys() <= ROW_FAULTS.keys()
        with self._lock:
            self._looks = changes.get("looks", self._looks)
            self._end = changes.get("end", self._end)
            self._done = changes.get("done", self._done)
            self._latency_ms = changes.get("latency_ms", self._latency_ms)
            self._is_enabled = changes.get("enabled", self._is_enabled)
            if "rows" in changes:
                self._row_faults = rows
            if "faults" in changes:
                self._faults, self._scripts = lasting, scripts

    def log(self):
        with self._lock:
            shown = ("id", "tag", "agent", "state", "rows", "done", "failed")
            jobs = [{name: getattr(job, name) for name in shown} for job in self._jobs.values()]
            return {"calls": dict(self.calls), "jobs": jobs, "files": len(self.files)}

    def add_file(self, content, kind="file"):
        """Keep a file; returns its id."""
        id_ = f"{kind}-{next(self._numbers):06}"
        self.files[id_] = content
        return id_

    def handle(self, handler, method, path, headers, raw):
        """Answer a request of the Batch API; False when it is none."""
        parts = urlsplit(path)
        found = self._wire.call_of(method, unquote(parts.path))
        if found is None or not self._is_enabled:
            return False
        call, name = found
        if call == "content":
            call = "errors" if name.startswith("errors") else "output"
        with self._lock:
            self.calls[call] += 1
            script = self._scripts.get(call)
            fault, _, argument = (script.popleft() if script else self._faults.get(call, "")).partition(":")
        self._stub.stopping.wait(self._latency_ms / 1000)
        if fault == "reset":
            handler.reset()
            return True
        answer = self._refusal(fault, argument, headers)
        if answer is None:
            with self._lock:
                answer = self._perform(call, name, dict(parse_qsl(parts.query)), headers, raw)
            if fault == "500-after":
                answer = self._wire.error(500, "server")
            elif fault == "html":
                answer = Answer(body=b"<!doctype html><title>Sign in</title>", kind="text/html")
            elif fault == "half":
                answer = Answer(body=answer.body[: len(answer.body) // 2])
        handler.send(answer)
        return True

    def _refusal(self, fault, argument, headers):
        if not self._stub.admits(headers):
            fault = "401"
        if fault in ("404", "400"):
            return self._wire.error(int(fault), "words", words=argument or "Not found.")
        if fault in ("", *CALL_FAULTS):
            return None
        return error_answer(self._wire, parsed(f"{fault}:{argument}"), {"model": "stub"}, headers)

    def _perform(self, call, name, query, headers, raw):
        if call == "upload":
            return self._upload(headers, raw)
        if call == "create":
            return self._create(json.loads(raw))
        if call == "list":
            jobs = [self._wire.job(job) for job in reversed(self._jobs.values())]
            return _json(self._wire.page(jobs, query))
        if call in ("look", "cancel"):
            job = self._jobs.get(name)
            if job is None:
                return self._wire.error(404, "words", words=f"No batch found with id '{name}'.")
            if call == "look":
                self._look(job)
            elif job.is_final:
                return self._wire.error(409, "words", words=f"Cannot cancel a batch that is '{job.state}'.")
            else:
                job.state, job.end = "cancelling", "cancelled"
            return _json(self._wire.job(job))
        if name not in self.files:
            return self._wire.error(404, "words", words=f"No such File object: {name}")
        if call == "delete":
            del self.files[name]
            return _json({"id": name, "deleted": True})
        return Answer(body=self.files[name], kind="application/octet-stream")

    def _upload(self, headers, raw):
        kind, _, boundary = headers["content-type"].partition("; boundary=")
        if kind != self._wire.upload_kind:
            return self._wire.error(400, "words", words="Invalid file.")
        if boundary:
            mark = b"--" + boundary.encode()
            _, _, part = raw.rpartition(mark + b"\r\n")
            raw = part.partition(b"\r\n\r\n")[2].rpartition(b"\r\n" + mark)[0]
        return _json(self._wire.file(self.add_file(raw)))

    def _create(self, body):
        wrong, file_id, tag, agent = self._wire.created(body)
        if not wrong and file_id not in self.files:
            wrong = f"Invalid 'input_file_id': {file_id} does not exist."
        if wrong:
            return self._wire.error(400, "words", words=wrong)
        id_, about = f"batch_{next(self._numbers):06}", {"tag": tag, "agent": agent, "request": body}
        job = Job(id=id_, input_file=file_id, **about, looks_left=self._looks, end=self._end)
        self._jobs[id_] = job
        return _json(self._wire.job(job))

    def _look(self, job):
        if not job.is_final:
            job.looks_left -= 1
            job.state = "in_progress" if job.state == "validating" else job.state
            if job.looks_left < 0:
                self._settle(job)

    def _settle(self, job):
        try:
            rows = [self._wire.text_of(json.loads(line)) for line in self.files[job.input_file].splitlines()]
            if len({key for key, *_ in rows}) < len(rows):
                raise ValueError("duplicate_custom_id: a key is used twice")
        except (KeyError, ValueError) as error:
            job.state, job.reason = "failed", str(error)
            return
        job.state, job.rows = job.end, len(rows)
        if job.end == "failed":
            job.reason = "invalid_file: the input file cannot be used"
            return
        usual = job.rows if job.end == "completed" else 0
        worked = usual if self._done is None else self._done
        good, bad, texts = [], [], []
        for at, (key, text, request) in enumerate(rows):
            if at >= worked:
                bad.append(self._wire.bad_row(key, 0, f"batch_{job.end}"))
            elif self._means("refused", text):
                bad.append(self._wire.bad_row(key, 400, "invalid_request_error"))
            else:
                texts.append(text)
                copies = 0 if self._means("missing", text) else 2 if self._means("duplicate", text) else 1
                good += [self._row(job, key, text, request)] * copies
        self._stub.count_texts(texts)
        job.done, job.failed = len(texts), len(bad)
        if bad and self._wire.has_error_file:
            job.errors = self.add_file(b"".join(bad), "errors")
        elif worked:
            good += bad
        if good:
            job.output = self.add_file(b"".join(self._spoilt(good)))

    def _means(self, word, text):
        return word in self._row_faults and self._row_faults[word] in text

    def _row(self, job, key, text, request):
        """A good row, or one whose vector is none."""
        dims, in_base64 = self._wire.parameters(job, request)
        numbers = numbers_of(self._stub.vector(text, dims or self._stub.dims))
        if self._means("nan", text):
            numbers, in_base64 = [float("nan")] * len(numbers), False
        if self._means("wrong-dims", text):
            numbers = numbers[1:]
        return self._wire.row(key, encoded(numbers) if in_base64 else numbers)

    def _spoilt(self, rows):
        """The lines of a file with what the faults do to it as a whole."""
        faults = self._row_faults
        strays = {
            "foreign": self._wire.row("f" * 64, [1.0] * self._stub.dims),
            "not-json": b"<html>upstream error</html>\n",
        }
        lines = rows[::-1] if "permuted" in faults else rows
        return [stray for word, stray in strays.items() if word in faults] + lines


def _json(shown):
    return Answer(body=json.dumps(shown).encode())
