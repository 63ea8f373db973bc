"""The jobs and files of a provider's Batch API in the memory of a stub server, and how jobs end.

What `control` takes, with what holds without it:

    looks     0           looks at a job before the one that finds it final; -1: it is born final
    file_looks 0          looks at an uploaded file before a job can be made of it
    end       completed   or failed, expired, cancelled; or a list: of the next jobs, the last of all others
    done      all         rows that were worked through before the end (for expired and cancelled: 0)
    reason    …           why a job failed: `code: message`
    metadata  true        false: the server forgets what a job was given (OpenAI, Voyage)
    rows      no fault    what is wrong with rows, see `ROW_FAULTS`

A job is settled when it becomes final: only then its rows are counted as embedded, by the server that also
counts those of ordinary requests.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

#: Words of a comma list, many with a word of the texts behind a colon; without one they mean all rows.
ROW_FAULTS = {
    "refused": "a row with status 400",
    "429": "a row with status 429",
    "500": "a row with status 500",
    "error": "a row that is an error object without a status",
    "missing": "no row",
    "duplicate": "the row twice",
    "nan": "NaN in the vector",
    "zero": "a vector of zeros",
    "empty": "a vector without numbers",
    "wrong-dims": "a vector one dimension short",
    "no-key": "a row that does not say whose it is",
    "permuted": "rows in reverse order",
    "foreign": "one more row, of another job",
    "not-json": "one more line, which is no JSON",
    "no-object": "one more line, which is a number",
    "nul": "one more line of NUL bytes",
    "blank": "blank lines between the rows",
    "huge": "one more line of 10 MB; `huge:20` of 20",
    "half": "the last line is cut in the middle",
}

FOREIGN_KEY = "f" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One text of a job."""

    key: str
    text: str
    #: What differs from row to row in the request (OpenAI's body, Gemini's request).
    request: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class StoredFile:
    """An uploaded file, or one that a job has made."""

    id: str
    name: str
    purpose: str
    size: int
    created_at: float
    #: Looks at it until a job can be made of it.
    looks_left: int = 0
    #: The lines of it, made anew each time.
    lines: Callable[[], Iterator[bytes]] = field(repr=False)
    #: An upload is kept on disk.
    content: IO[bytes] | None = field(default=None, repr=False)


@dataclass(slots=True, kw_only=True)
class Job:
    """One job; what of it is shown differs between providers."""

    id: str
    input_file: str
    tag: str
    agent: str
    request: dict[str, Any] = field(repr=False)
    created_at: float
    #: `validating`, `in_progress`, `cancelling`, `completed`, `failed`, `expired`, `cancelled`.
    state: str = "validating"
    looks_left: int = 0
    end: str = "completed"
    rows: int = 0
    done: int = 0
    failed: int = 0
    output: str = ""
    errors: str = ""
    reasons: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_final(self):
        return self.state in ("completed", "failed", "expired", "cancelled")


def parsed_rows(fault):
    """Row fault -> the word of the texts it is for. Raises ValueError for an unknown one."""
    faults = {}
    for part in filter(None, fault.split(",")):
        word, _, argument = part.strip().partition(":")
        if word not in ROW_FAULTS:
            raise ValueError(f"unknown row fault {word!r}; known are: {', '.join(ROW_FAULTS)}")
        faults[word] = argument
    return faults


class Jobs:
    """All jobs and files of a server. Its methods are called under the server's lock, but for lines."""

    def __init__(self, *, read):
        """`read` makes rows of the lines of an uploaded file; raises ValueError, with a line number."""
        self.lock = threading.RLock()
        self.files = {}
        self.jobs = {}
        self._read = read
        self._numbers = itertools.count(1)
        self.looks = 0
        self.file_looks = 0
        self.ends = ["completed"]
        self.keeps_metadata = True
        self.done = None
        self.reason = "invalid_file: the input file cannot be used"
        self.row_faults = {}
        #: Called with the texts of a job that were embedded.
        self.on_embedded = lambda texts: None
        #: A line of the results for a row, and of the errors: see the wires.
        self.write = lambda job, row, faults: b""
        self.write_error = lambda job, row, status, code: b""
        #: Whether failed rows go into a file of their own.
        self.has_error_file = True

    def control(self, changes):
        """Change how coming jobs go; see above."""
        self.looks = int(changes.get("looks", self.looks))
        self.file_looks = int(changes.get("file_looks", self.file_looks))
        if end := changes.get("end"):
            self.ends = [end] if isinstance(end, str) else list(end)
        self.done = changes.get("done", self.done)
        self.keeps_metadata = bool(changes.get("metadata", self.keeps_metadata))
        self.reason = str(changes.get("reason", self.reason))
        if "rows" in changes:
            self.row_faults = parsed_rows(changes["rows"])

    def add_file(self, content, *, name, size):
        """Keep an uploaded file, which is `size` bytes from the place where `content` stands."""
        start = content.tell()
        reading = threading.Lock()

        def lines():
            at = start
            while at < start + size:
                with reading:
                    content.seek(at)
                    line = content.readline(start + size - at)
                at += len(line)
                yield line

        file = self._store(name, "batch", size, lines)
        file.content, file.looks_left = content, self.file_looks
        return file

    def remove_file(self, id_):
        """Drop a file."""
        content = self.files.pop(id_).content
        if content is not None:
            content.close()

    def close(self):
        """Drop all files."""
        for id_ in list(self.files):
            self.remove_file(id_)

    def make(self, *, file_id, tag, agent, request):
        """A new job over an uploaded file."""
        if not self.keeps_metadata:
            request = {name: value for name, value in request.items() if name != "metadata"}
        job = Job(
            id=f"batch_{next(self._numbers):06}",
            input_file=file_id,
            tag=tag,
            agent=agent,
            request=request,
            created_at=time.time(),
            looks_left=self.looks,
            end=self.ends.pop(0) if len(self.ends) > 1 else self.ends[0],
        )
        self.jobs[job.id] = job
        if job.looks_left < 0:
            self._settle(job)
        return job

    def look(self, job):
        """The job after it was looked at once more."""
        if not job.is_final:
            job.looks_left -= 1
            if job.state != "cancelling":
                job.state = "in_progress"
            if job.looks_left < 0:
                self._settle(job)
        return job

    def cancel(self, job):
        """Begin to end a job; False when it is final already."""
        if job.is_final:
            return False
        job.state, job.end = "cancelling", "cancelled"
        return True

    def _settle(self, job):
        faults = dict(self.row_faults)
        source = self.files.get(job.input_file)
        if source is None:
            job.state, job.reasons = "failed", [_reason("invalid_file: the input file is gone", None)]
            return
        texts = []
        try:
            keys = set()
            for row in self._read(job, source.lines()):
                if row.key in keys:
                    raise ValueError(len(keys) + 1, f"duplicate_custom_id: {row.key} is used twice")
                keys.add(row.key)
                texts.append(row.text)
        except ValueError as error:
            line, said = error.args if len(error.args) == 2 else (None, str(error))
            job.state, job.reasons = "failed", [_reason(str(said), line)]
            return
        job.state = job.end
        job.rows = len(texts)
        if job.end == "failed":
            job.reasons = [_reason(self.reason, None)]
            return
        usual = job.rows if job.end == "completed" else 0
        worked = usual if self.done is None else min(self.done, job.rows)
        good = [text for text in texts[:worked] if not failure(faults, text)]
        job.done, job.failed = len(good), job.rows - len(good)
        self.on_embedded(good)
        if good or "error" in faults or (worked and not self.has_error_file):
            job.output = self._result_file(job, source, faults, worked, good=True)
        if job.failed and self.has_error_file:
            job.errors = self._result_file(job, source, faults, worked, good=False)

    def _result_file(self, job, source, faults, worked, *, good):
        def lines():
            rows = enumerate(self._read(job, source.lines()))
            if good:
                wanted = ((row, failure(faults, row.text)) for at, row in rows if at < worked)
                made = (
                    self.write(job, row, faults) if failed is None else self.write_error(job, row, *failed)
                    for row, failed in wanted
                    if (failed is None or not self.has_error_file or failed[0] == 0)
                    and not means(faults, "missing", row.text)
                    for _ in range(2 if means(faults, "duplicate", row.text) else 1)
                )
                yield from spoilt(faults, made, self._stray(job, faults))
                return
            unfinished = (0, f"batch_{job.end}")
            for at, row in rows:
                failed = failure(faults, row.text) if at < worked else unfinished
                if failed is not None and (failed[0] or at >= worked):
                    yield self.write_error(job, row, *failed)

        kind = "output" if good else "errors"
        return self._store(f"{job.id}_{kind}.jsonl", "batch_output", 0, lines).id

    def _stray(self, job, faults):
        """Lines that belong to no row of the job."""
        made = []
        if "foreign" in faults:
            row = Row(key=FOREIGN_KEY, text="a text of somebody else", request={})
            made.append(self.write(job, row, {}))
        if "not-json" in faults:
            made.append(b"<html>upstream error</html>\n")
        if "no-object" in faults:
            made.append(b"17\n")
        if "nul" in faults:
            made.append(b"\0" * 100 + b"\n")
        return made

    def _store(self, name, purpose, size, lines):
        file = StoredFile(
            id=f"file-{next(self._numbers):06}",
            name=name,
            purpose=purpose,
            size=size,
            created_at=time.time(),
            lines=lines,
        )
        self.files[file.id] = file
        return file


def failure(faults, text):
    """Status and code of a row that fails; status 0: an error object without one."""
    if means(faults, "refused", text):
        return 400, "invalid_request_error"
    if means(faults, "429", text):
        return 429, "rate_limit_exceeded"
    if means(faults, "500", text):
        return 500, "server_error"
    if means(faults, "error", text):
        return 0, "invalid_input"
    return None


def spoilt(faults, rows, stray):
    """The lines of a file with what the faults do to it as a whole."""
    if "permuted" in faults:
        rows = reversed(list(rows))
    if "huge" in faults:
        yield b'{"custom_id": "' + b"0" * (int(faults["huge"] or 10) * 1_000_000) + b'"}\n'
    yield from stray
    last = b""
    for line in rows:
        if last:
            yield last
        if "blank" in faults:
            yield b"\n  \n"
        last = line
    yield last[: len(last) // 2] if "half" in faults else last


def means(faults, word, text):
    """Whether a fault is meant for the row of this text."""
    return word in faults and faults[word] in text


def _reason(said, line):
    code, _, message = said.partition(": ")
    return {"code": code, "message": message or code, "param": None, "line": line}


def as_line(row):
    return json.dumps(row).encode() + b"\n"
