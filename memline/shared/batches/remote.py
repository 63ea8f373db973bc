"""Call a Batch API over HTTP: what all providers have in common.

    upload ─► is_file_ready ─► create ─► get_job … ─► results ─► clean_up
       ╰ find_upload             ╰ find      ╰ cancel

A job is one file of rows that the provider works through when it has time, at half the price. Every call can
fail after it had its effect. So the caller commits a *tag* of its own before the first call: the name of the
uploaded file and the job carry it, and `find_upload` and `find` bring back what a lost answer left behind.

A call that makes something (an upload, a job) is sent once, and its errors say in `maybe_done` whether it may
have been made; all other calls may be repeated, and are. A row of the results is good, an error, or nothing
that can be read; none of them ends the reading.
"""

from __future__ import annotations

import json
import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import IO, Any, ClassVar
from urllib.parse import quote

from memline.shared.batches import jsonl
from memline.shared.batches.api import BatchJob, BatchResult, BatchRow
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders import vector_checks
from memline.shared.embedders.choice import Choice, choose_for_identity
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient, Query, Reply, parse_json
from memline.shared.embedders.protocol import Identity
from memline.shared.embedders.provider_errors import redact_line
from memline.shared.embedders.vector_checks import FLOAT_BYTES, Values, unit_vector
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTooBig,
)
from memline.shared.providers import PROVIDERS, known_dims, load

#: Pages of a list that are read before it counts as endless: at 100 a page more jobs than any account has.
MAX_PAGES = 1000

#: Jobs or files that are asked for at a time; the providers' own maximum.
PAGE_ROWS = 100

#: The longest valid id or state of a job.
MAX_WORD_CHARS = 1000

#: Errors of a job that are shown; a file that is wrong in one row is often wrong in all.
MAX_SHOWN_ERRORS = 3

#: Vectors that tell the dimensions where they are not known.
VOTES = 8

#: Statuses of an address without a Batch API.
_UNKNOWN_THERE = (404, 405, 501)

#: Statuses below 500 that do not say that nothing was done.
_UNSURE = (408, 409)

#: What a provider says of an uploaded file that it has not looked through yet, with status 404 or 400.
_FILE_NOT_FOUND = re.compile(
    rb"file[^\"{}]{0,80}(?:not (?:be )?found|does not exist|not exist)", re.IGNORECASE
)

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

UPLOAD = "batch file upload"
FIND_UPLOAD = "batch file list"
FILE = "batch file status"
CREATE = "batch create"
FIND = "batch list"
STATUS = "batch status"
CONTENT = "batch file content"
CANCEL = "batch cancel"
DELETE = "batch file delete"
ROW = "batch row"

#: What a list is for -> its path, query, and the field of its entries.
Lists = Mapping[str, tuple[str, Query, str]]


class BatchApi(ABC):
    """The Batch API of one model behind one address. Safe to call from several threads.

    Every method but `close` raises `shared.errors.ProviderError`: later, stop, broken or too_big. Calls that
    change nothing are tried again a few times before that.
    """

    #: What a job's path ends with when it is to be cancelled.
    cancel_suffix: ClassVar[str]

    #: Fields of a file: its id and its name.
    file_fields: ClassVar[tuple[str, str]]

    #: Those of `FIND_UPLOAD` and `FIND`, the newest first.
    lists: ClassVar[Lists]

    #: An empty list is left out of an answer, as Google does with all that is empty.
    bare_lists: ClassVar[bool] = False

    def __init__(
        self, *, identity: Identity, endpoint: Endpoint, timeout_s: float = 60, clock: Clock | None = None
    ) -> None:
        self._identity = identity
        self._endpoint = endpoint
        self._http = HttpClient(endpoint, timeout_s=timeout_s, clock=clock)
        #: Dimensions of every vector; 0: the rows tell.
        self._dims = identity.dims or (
            known_dims(identity.provider, identity.model) if endpoint.public else 0
        )

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        """Send the rows as a file whose name carries `tag`; the id of the file.

        The rows are read once and never held together. Raises ProviderTooBig for more than a job may have,
        before anything is sent.
        """
        with jsonl.spooled(map(self._row, rows), self._endpoint.provider) as file, self._errors(makes=True):
            answer = as_dict(self._made(self._send(file, tag)))
            answer = as_dict(answer.get("file", answer))
            return self._word(answer.get(self.file_fields[0]), "id of the file", UPLOAD)

    def find_upload(self, tag: str) -> str | None:
        """Find an uploaded file with this tag; None when there is none. Of several, the newest."""
        id_field, name_field = self.file_fields
        with self._errors():
            try:
                for file in map(as_dict, self._entries(FIND_UPLOAD)):
                    if file.get(name_field) == file_name(tag) and as_text(file.get(id_field)):
                        return as_text(file.get(id_field))
            except ProviderStop as error:
                # Files that cannot be listed cannot be found; sent again, the file costs nothing.
                if error.status not in _UNKNOWN_THERE:
                    raise
            return None

    def is_file_ready(self, file_id: str) -> bool:
        """Tell whether a job can be made of an uploaded file now; a provider may look through it first."""
        with self._errors():
            reply = self._http.get(path_of("files", file_id), what=FILE)
            if reply.status in _UNKNOWN_THERE:
                # Not every server tells of single files. If this one is gone, the create says so.
                return True
            file = as_dict(self._named_json(reply))
            state = str(file.get("status") or file.get("state") or "").lower()
            if state in ("error", "failed"):
                reason = self._redacted(_words(file.get("status_details") or file.get("error") or ""))
                raise self._broken(FILE, f"the uploaded file cannot be used: {reason}")
            # Some servers leave it at `uploaded` for good; the lifecycle waits a minute at most.
            return state not in ("uploaded", "pending", "processing")

    def create(self, file_id: str, *, tag: str, agent: str) -> BatchJob:
        """Start a job over an uploaded file. Sent once: after an error with `maybe_done`, ask `find`.

        Raises ProviderStop, whose hint is to set remote.batch.enabled to false, where there is no Batch API.
        """
        path, body = self._new_job(file_id, tag, agent)
        with self._errors(makes=True):
            answer = self._made(self._http.post(path, body, what=CREATE, once=True))
            return self._read_job(as_dict(answer), CREATE)

    def find(self, tag: str, *, file_id: str) -> BatchJob | None:
        """Find the job with this tag in the provider's whole list; None when there is none.

        A server that forgets the tag still knows `file_id`, the uploaded file of the job.
        """
        with self._errors():
            ended: BatchJob | None = None
            for answer in self._entries(FIND):
                try:
                    job = self._read_job(as_dict(answer), FIND)
                except ProviderBrokenAnswer:
                    # The list holds the jobs of others, which need not be like ours.
                    continue
                if job.tag != tag and (job.tag or not file_id or job.input_file != file_id):
                    continue
                if job.state in ("running", "done"):
                    return job
                ended = ended or job
            return ended

    def get_job(self, job_id: str) -> BatchJob:
        """Return the job now. Raises an error with status 404 when the provider does not know it."""
        with self._errors():
            answer = self._named_json(self._http.get(path_of("batches", job_id), what=STATUS))
            return self._read_job(as_dict(answer), STATUS)

    def results(self, job: BatchJob) -> Iterator[BatchResult]:
        """Yield the rows of a finished job as they arrive, first those of `output`, then those of `errors`.

        A line that cannot be read is a result with an error and does not end the others. Rows may be missing
        or repeated and come in any order. An error in the middle (the connection is cut) is raised; asking
        again begins anew.
        """
        vector_checks.load_numpy()
        if job.output:
            count = 0
            with self._errors(), closing(self._content(job.output)) as pieces:
                for count, result in enumerate(self._results(pieces), 1):  # noqa: B007
                    yield result
            if not count:
                raise self._broken(CONTENT, "an empty file")
        if job.errors:
            try:
                with self._errors(), closing(self._content(job.errors)) as pieces:
                    yield from self._results(pieces)
            except (ProviderBrokenAnswer, ProviderStop) as error:
                # The good rows are here, and the others have no vector either way.
                problem = f"the file of the errors is not available: {error.message}"
                yield BatchResult(key="", error=ProviderBrokenAnswer(self._text(CONTENT, problem)))

    def cancel(self, job_id: str) -> BatchJob:
        """Ask to cancel a job. It may run on for a while; a job that is final already stays as it is."""
        with self._errors():
            path = f"{path_of('batches', job_id)}{self.cancel_suffix}"
            reply = self._http.post(path, {}, what=CANCEL)
            error = self._http.error(reply) if reply.status >= 300 else None
            # Not for a job that is final (400, 409) or unknown: its state says what it is.
            if error and reply.status not in (404, 409) and not isinstance(error, ProviderRefused):
                raise error
        return self.get_job(job_id)

    def clean_up(self, job: BatchJob | None, *, file_id: str) -> None:
        """Remove the uploaded file and those of the job at the provider. What is gone already is fine.

        All are tried before an error is raised.
        """
        names = [file_id, *([job.input_file, job.output, job.errors] if job else [])]
        first: ProviderError | None = None
        for name in dict.fromkeys(filter(None, names)):
            try:
                with self._errors():
                    reply = self._http.delete(path_of("files", name), what=DELETE)
                    # Google does not tell apart who may not see a file and that there is none.
                    is_gone = reply.status in (404, 410) or (
                        reply.status == 403 and b"not exist" in reply.body
                    )
                    if reply.status >= 300 and not is_gone:
                        raise self._http.error(reply)
            except ProviderError as error:
                first = first or error
        if first is not None:
            raise first

    def close(self) -> None:
        """Free the connections; the object is not used afterwards."""
        self._http.close()

    @abstractmethod
    def _row(self, row: BatchRow) -> dict[str, object]:
        """Make a row of the uploaded file."""

    @abstractmethod
    def _send(self, file: IO[bytes], tag: str) -> Reply:
        """Upload a file."""

    @abstractmethod
    def _new_job(self, file_id: str, tag: str, agent: str) -> tuple[str, dict[str, object]]:
        """Path and body of the request for a job."""

    @abstractmethod
    def _read_job(self, job: dict[str, Any], what: str) -> BatchJob:
        """Read a job as the provider describes it. Raises ProviderBrokenAnswer."""

    @abstractmethod
    def _next_page(self, page: dict[str, Any], entries: list[Any]) -> dict[str, str]:
        """Return what to ask for the page behind; empty when this one is the last."""

    @abstractmethod
    def _content(self, name: str) -> Generator[bytes, None, None]:
        """Return the bytes of a file."""

    @abstractmethod
    def _values(self, row: dict[str, Any]) -> Values:
        """Return the numbers of a row of the results. Raises its error without them; see `_error_of`."""

    def _results(self, pieces: Iterable[bytes]) -> Iterator[BatchResult]:
        """Read the result of every line but blank ones.

        Where the dimensions are not known, the first rows vote: an odd one does not spoil the others.
        """
        results = (self._result(line) for line in jsonl.lines(pieces) if line.strip())
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
            is_whole = len(line) <= jsonl.MAX_LINE_BYTES
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
        texts = [_words(error) for error in errors[:MAX_SHOWN_ERRORS]]
        reason = self._redacted("; ".join(filter(None, texts)))
        text = self._text("batch", reason or "no reason was given")
        if _ENQUEUED.search(" ".join(texts)):
            return reason, ProviderTooBig(text)
        error = self._error_of(None, errors[0], what="batch") if errors else ProviderBrokenAnswer(text)
        return reason, ProviderBrokenAnswer(text) if isinstance(error, ProviderRefused) else error

    def _made(self, reply: Reply) -> Any:
        """Return the JSON of an answer to a call that makes something."""
        if reply.what == CREATE and reply.status in (400, 404) and _FILE_NOT_FOUND.search(reply.body):
            # It was uploaded, so it is only not there yet. Seen at Voyage, with "Input file not found".
            raise ProviderLater(self._http.error(reply).message, status=reply.status)
        if reply.status in _UNKNOWN_THERE:
            raise ProviderStop(
                self._http.error(reply).message,
                hint="there is no Batch API for this model at this address: set "
                "memorySearch.remote.batch.enabled to false",
                status=reply.status,
            )
        return self._named_json(reply)

    def _named_json(self, reply: Reply) -> Any:
        """Return the JSON that describes a file or a job; an error beside its name is that of the job."""
        answer = self._http.any_json(reply)
        named = isinstance(answer, dict) and (answer.get("id") or answer.get("name"))
        return answer if named else self._http.json(reply)

    def _entries(self, what: str) -> Iterator[Any]:
        """Yield the entries of a list, page by page. Raises ProviderBrokenAnswer for one without an end."""
        path, query, field = self.lists[what]
        more: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = as_dict(self._http.json(self._http.get(path, query={**query, **more}, what=what)))
            entries = page.get(field)
            if entries is None and self.bare_lists and not page.keys() - {"nextPageToken"}:
                entries = []
            if not isinstance(entries, list):
                # Not the same as an empty one: where no job is found, a second one may be made.
                raise self._broken(what, f"without a list `{field}`")
            yield from entries
            before, more = more, self._next_page(page, entries)
            # A server that knows no pages gives the first one for ever.
            if not more or more == before:
                return
        raise self._broken(what, "a list without an end")

    @contextmanager
    def _errors(self, *, makes: bool = False) -> Iterator[None]:
        """Make of every error one that a Batch API may raise."""
        try:
            yield
        except ProviderError as error:
            if makes and error.status is not None:
                status = error.status
                error.maybe_done = status < 300 or status >= 500 or status in _UNSURE
            if not isinstance(error, ProviderRefused):
                raise
            # No text was refused, but what was made of them, or the call as a whole.
            raise ProviderBrokenAnswer(
                error.message,
                hint="if this repeats, set memorySearch.remote.batch.enabled to false",
                status=error.status,
            ) from None

    def _word(self, value: object, name: str, what: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MAX_WORD_CHARS:
            raise self._broken(what, f"without {name}")
        return value

    def _broken(self, what: str, problem: str) -> ProviderBrokenAnswer:
        return ProviderBrokenAnswer(self._text(what, f"200, but {problem}"), status=200)

    def _text(self, what: str, problem: str) -> str:
        return f"{self._endpoint.provider} {what} failed: {problem}"

    def _redacted(self, text: str) -> str:
        return redact_line(text, self._endpoint.secrets)


def file_name(tag: str) -> str:
    """Return the name of the uploaded file of a job."""
    return f"memline-{tag}.jsonl"


def as_dict(value: object) -> dict[str, Any]:
    """Return what should be an object; an empty one when it is something else."""
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """Return what should be text; an empty one when it is something else."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """Return a count, which a provider may write as text; 0 when it is not a number."""
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError, OverflowError):
        return 0


def path_of(kind: str, name: str) -> str:
    """Return the path of a file or a job. Google's names begin with their kind."""
    return f"/{kind}/{quote(name.removeprefix(f'{kind}/'), safe='')}"


def _words(error: Any) -> str:
    """Put one error of a job in words."""
    if not isinstance(error, dict):
        return str(error)
    words = str(error.get("message") or error.get("code") or "")
    line = error.get("line")
    return f"{words} (line {line})" if line is not None else words


class BatchApis:
    """Keep the Batch APIs that a process uses, by agent and identity: a batch outlives settings and models.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apis: dict[tuple[str, str], BatchApi] = {}

    def of(self, settings: AgentSettings, identity: Identity, base_url: str) -> BatchApi:
        """Return the Batch API behind an identity. Raises ProviderStop when these settings lead to none."""
        key = (settings.agent, identity.key)
        with self._lock:
            if key not in self._apis:
                self._apis[key] = batch_api_of(choose_for_identity(settings, identity, base_url))
            return self._apis[key]

    def close(self) -> None:
        """Close every API; none is used afterwards."""
        for api in self._apis.values():
            api.close()
        self._apis.clear()


def batch_api_of(choice: Choice) -> BatchApi:
    """Build the client of a provider's Batch API, without a network call. Raises ProviderStop without one.

    A compatible server may or may not have one; it is asked only where the user enabled batches.
    """
    name = PROVIDERS[choice.provider].batch_api if choice.provider in PROVIDERS else ""
    if choice.identity is None or choice.endpoint is None or not name:
        hint = "set remote.batch.enabled to false"
        raise ProviderStop(f"{choice.provider} has no Batch API", hint=hint)
    api: BatchApi = load(name)(identity=choice.identity, endpoint=choice.endpoint, timeout_s=choice.timeout_s)
    return api
