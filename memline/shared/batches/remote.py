"""Call a Batch API over HTTP: what all providers have in common.

    upload ─► create ─► get_job … ─► results ─► clean_up
                ╰ find      ╰ cancel

A job is one file of rows that the provider works through when it has time, at half the price. Every call can
fail after it had its effect. So the caller commits a *tag* of its own before the first call: the name of the
uploaded file and the job carry it, and `find` brings back a job that a lost answer left behind.

A call that makes something (an upload, a job) is sent once, and its errors say in `maybe_done` whether it may
have been made; all other calls may be repeated, and are. A row of the results is good, an error, or nothing
that can be read; none of them ends the reading.
"""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import IO, Any, ClassVar, Literal
from urllib.parse import quote

from memline.shared.batches.job_rows import BatchResult, BatchRow, ResultReader, spooled
from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders import vector_checks
from memline.shared.embedders.choice import Choice, choose_for_identity
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient, Query
from memline.shared.embedders.protocol import Identity
from memline.shared.embedders.provider_client import Reply
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
)
from memline.shared.providers import PROVIDERS, known_dims, load
from memline.shared.tables import as_dict
from memline.shared.values import value

#: Pages of a list that are read before it counts as endless: at 100 a page more jobs than any account has.
MAX_PAGES = 1000

#: Jobs or files that are asked for at a time; the providers' own maximum.
PAGE_ROWS = 100

#: The longest valid id or state of a job.
MAX_WORD_CHARS = 1000

#: Statuses of an address without a Batch API.
_UNKNOWN_THERE = (404, 405, 501)

#: Statuses below 500 that do not say that nothing was done.
_UNSURE = (408, 409)

#: What a provider says of an uploaded file that it has not looked through yet, with status 404 or 400.
_FILE_NOT_FOUND = re.compile(
    rb"file[^\"{}]{0,80}(?:not (?:be )?found|does not exist|not exist|not in an active)", re.IGNORECASE
)

UPLOAD = "batch file upload"
CREATE = "batch create"
FIND = "batch list"
STATUS = "batch status"
CONTENT = "batch file content"
CANCEL = "batch cancel"
DELETE = "batch file delete"

#: What a job is doing, in our words; all but `running` are final.
State = Literal["running", "done", "failed", "expired", "cancelled"]


@value
class BatchJob:
    """A job as the provider described it at one moment."""

    id: str
    state: State
    #: The provider's own word for the state.
    provider_state: str
    #: Why it failed, in words fit to be shown; empty when it did not, or the provider gave no reason.
    reason: str = ""
    #: What kind of failure `reason` is, as for any other call: `later` and `stop` say nothing against the
    #: rows, `too_big` asks for smaller jobs, else it is `broken`.
    error: ProviderError | None = None
    rows_done: int = 0
    rows_failed: int = 0
    #: Names of the files of good rows and of failed ones; empty when there is none (yet). They may be there
    #: whatever the final state is, and hold the rows that were finished.
    output: str = ""
    errors: str = ""
    #: The uploaded file.
    input_file: str = ""
    #: Ours, when the job carries one.
    tag: str = ""


class BatchApi(ResultReader):
    """The Batch API of one model behind one address. Safe to call from several threads.

    Every method but `close` raises `shared.errors.ProviderError`: later, stop, broken or too_big. Calls that
    change nothing are tried again a few times before that.
    """

    #: What a job's path ends with when it is to be cancelled.
    cancel_suffix: ClassVar[str]

    #: The field of a file with its id.
    file_field: ClassVar[str]

    #: Path, query and field of the list of jobs, the newest first.
    jobs_list: ClassVar[tuple[str, Query, str]]

    #: An empty list is left out of an answer, as Google does with all that is empty.
    bare_lists: ClassVar[bool] = False

    def __init__(
        self, *, identity: Identity, endpoint: Endpoint, timeout_s: float = 60, clock: Clock | None = None
    ) -> None:
        self._identity = identity
        self._endpoint = endpoint
        self._http = HttpClient(endpoint, timeout_s=timeout_s, clock=clock)
        self._dims = identity.dims or (
            known_dims(identity.provider, identity.model) if endpoint.public else 0
        )

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        """Send the rows as a file whose name carries `tag`; the id of the file.

        The rows are read once and never held together. Raises ProviderTooBig for more than a job may have,
        before anything is sent.
        """
        with spooled(map(self._row, rows), self._endpoint.provider) as file, self._errors(makes=True):
            answer = as_dict(self._made(self._send(file, tag)))
            answer = as_dict(answer.get("file", answer))
            return self._word(answer.get(self.file_field), "id of the file", UPLOAD)

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

    def _made(self, reply: Reply) -> Any:
        """Return the JSON of an answer to a call that makes something."""
        if reply.what == CREATE and reply.status in (400, 404) and _FILE_NOT_FOUND.search(reply.body):
            # It was uploaded, so it is only not there yet. Seen at Voyage, with "Input file not found".
            raise ProviderLater(self._http.error(reply).message, status=reply.status)
        if reply.status in _UNKNOWN_THERE:
            raise ProviderStop(
                self._http.error(reply).message,
                hint="set memorySearch.remote.batch.enabled to false: this model has no Batch API at this "
                "address",
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
        path, query, field = self.jobs_list
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


def file_name(tag: str) -> str:
    """Return the name of the uploaded file of a job."""
    return f"memline-{tag}.jsonl"


def path_of(kind: str, name: str) -> str:
    """Return the path of a file or a job. Google's names begin with their kind."""
    return f"/{kind}/{quote(name.removeprefix(f'{kind}/'), safe='')}"


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
