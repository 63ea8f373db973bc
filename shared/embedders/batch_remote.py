"""What all Batch APIs behind HTTP have in common: the order of the calls, and what becomes of their errors.

Two kinds of call are told apart everywhere: those that make something (an upload, a job) are sent once, and
their errors say in `maybe_done` whether it may have been made; all others may be repeated, and are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from shared.clock import Clock
from shared.embedders import vectors
from shared.embedders.batch import BatchApi, BatchCaps, BatchLook, BatchResult, BatchRow
from shared.embedders.batch_file import BatchFile, collected, line_of
from shared.embedders.batch_rows import RowReader
from shared.embedders.connection import Reply
from shared.embedders.endpoint import Endpoint
from shared.embedders.http import HttpClient
from shared.embedders.protocol import Identity
from shared.embedders.vectors import Values
from shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
)

#: Pages of a list that are read before it counts as endless: at 100 a page more jobs than anybody has.
MAX_PAGES = 1000

#: Jobs or files that are asked for at a time; the providers' own maximum.
PAGE_ROWS = 100

#: Longest id or state of a job that is one.
MAX_WORD_CHARS = 1000

#: Statuses of an address where nobody knows what a batch is.
_UNKNOWN_THERE = (404, 405, 501)

#: Statuses below 500 that do not say that nothing was done.
_UNSURE = (408, 409)

UPLOAD = "batch file upload"
FIND_UPLOAD = "batch file list"
CREATE = "batch create"
FIND = "batch list"
LOOK = "batch status"
CONTENT = "batch file content"
CANCEL = "batch cancel"
DELETE = "batch file delete"


class RemoteBatchApi(ABC):
    """The Batch API of one model behind one address. Safe to call from several threads."""

    #: OpenAI's own caps. Voyage takes twice the rows and Gemini ten times the bytes, but a job is lost, late
    #: or looked for as a whole.
    caps: ClassVar[BatchCaps] = BatchCaps(max_rows=50_000, max_bytes=200_000_000)

    #: As of the embedder of this provider.
    known_dims: ClassVar[Mapping[str, int]]

    def __init__(
        self,
        *,
        identity: Identity,
        endpoint: Endpoint,
        timeout_s: float = 60,
        vector_dims: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """`vector_dims`: what earlier vectors of this identity have; 0: the first row tells."""
        self._identity = identity
        self._endpoint = endpoint
        self._http = HttpClient(endpoint, timeout_s=timeout_s, clock=clock)
        known = self.known_dims.get(identity.model, 0) if endpoint.public else 0
        self._reader = RowReader(
            provider=endpoint.provider,
            dims=identity.dims or vector_dims or known,
            secrets=endpoint.secrets,
            key_hint=endpoint.key_hint,
            values=self._values,
        )

    @property
    def identity(self) -> Identity:
        return self._identity

    def row_bytes(self, row: BatchRow) -> int:
        return len(line_of(self._row(row)))

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        lines = (line_of(self._row(row)) for row in rows)
        with (
            collected(lines, caps=self.caps, provider=self._endpoint.provider) as file,
            self._errors(makes=True),
        ):
            return self._text_of(self._send(file, tag), "id of the file", UPLOAD)

    def find_upload(self, tag: str) -> str | None:
        with self._errors():
            try:
                return next((file for file, name in self._files() if name == file_name(tag)), None)
            except ProviderStop as error:
                if error.status in _UNKNOWN_THERE:
                    # Files that cannot be listed cannot be found; sent again, the file costs nothing.
                    return None
                raise

    def create(self, file_id: str, *, tag: str, agent: str) -> BatchLook:
        with self._errors(makes=True):
            return self._look(self._create(file_id, tag, agent), CREATE)

    def find(self, tag: str) -> BatchLook | None:
        with self._errors():
            found: BatchLook | None = None
            file_id: str | None = ""
            for job in self._jobs():
                try:
                    look = self._look(job, FIND)
                except ProviderBrokenAnswer:
                    # The list holds the jobs of others, which need not look like ours.
                    continue
                if not look.tag and look.input_file:
                    # A server that forgets what a job was given for it still knows its file.
                    file_id = self.find_upload(tag) if file_id == "" else file_id
                    look = replace(look, tag=tag) if look.input_file == file_id else look
                if look.tag != tag:
                    continue
                if look.state in ("running", "done"):
                    return look
                found = found or look
            return found

    def look(self, batch_id: str) -> BatchLook:
        with self._errors():
            reply = self._http.get(self._job_path(batch_id), what=LOOK)
            if reply.status == 404 and reply.body.lstrip().startswith((b"{", b"[")):
                error = self._http.error(reply)
                return BatchLook(
                    id=batch_id,
                    state="failed",
                    said="unknown",
                    reason=error.message,
                    error=ProviderBrokenAnswer(error.message, status=404),
                )
            return self._look(self._thing(reply), LOOK)

    def results(self, look: BatchLook) -> Iterator[BatchResult]:
        vectors.expect_many()
        if look.output:
            count = 0
            with self._errors(), self._still_there(), closing(self._content(look.output)) as pieces:
                for result in self._reader.results(pieces):
                    count += 1
                    yield result
            if not count:
                raise ProviderBrokenAnswer(self._said(CONTENT, "200, but an empty file"), status=200)
        if look.errors:
            try:
                with self._errors(), closing(self._content(look.errors)) as pieces:
                    yield from self._reader.results(pieces)
            except ProviderLater:
                raise
            except ProviderError as error:
                # The good rows are here, and the others have no vector either way.
                said = f"the file of the errors is not available: {error.message}"
                yield BatchResult(key="", error=ProviderBrokenAnswer(self._said(CONTENT, said)))

    def cancel(self, batch_id: str) -> BatchLook:
        with self._errors():
            reply = self._http.post(f"{self._job_path(batch_id)}{self.cancel_suffix}", {}, what=CANCEL)
            error = self._http.error(reply) if reply.status >= 300 else None
            # A job that is final (400, 409) or unknown is none: the look says what it is.
            if error and reply.status not in (404, 409) and not isinstance(error, ProviderRefused):
                raise error
        return self.look(batch_id)

    def clean_up(self, look: BatchLook | None, *, file_id: str) -> None:
        names = [file_id, *([look.input_file, look.output, look.errors] if look else [])]
        first: ProviderError | None = None
        for name in dict.fromkeys(filter(None, names)):
            try:
                with self._errors():
                    reply = self._http.delete(self._file_path(name), what=DELETE)
                    if reply.status >= 300 and not self._is_gone(reply):
                        raise self._http.error(reply)
            except ProviderError as error:
                first = first or error
        if first is not None:
            raise first

    def close(self) -> None:
        self._http.close()

    #: What a job's path ends with when it is to be cancelled.
    cancel_suffix: ClassVar[str]

    #: An empty list is left out of an answer, as Google does with all that is empty.
    bare_lists: ClassVar[bool] = False

    @abstractmethod
    def _row(self, row: BatchRow) -> dict[str, object]:
        """A row as it stands in the uploaded file."""

    @abstractmethod
    def _values(self, row: dict[str, Any]) -> Values:
        """The numbers of a row of the results; see `RowReader.values`."""

    @abstractmethod
    def _send(self, file: BatchFile, tag: str) -> object:
        """Upload a file; its id, unchecked."""

    @abstractmethod
    def _files(self) -> Iterator[tuple[str, str]]:
        """Id and name of every uploaded file, the newest first."""

    @abstractmethod
    def _create(self, file_id: str, tag: str, agent: str) -> Any:
        """Make a job; the answer, unchecked."""

    @abstractmethod
    def _jobs(self) -> Iterator[Any]:
        """Every job, the newest first, unchecked."""

    @abstractmethod
    def _look(self, job: Any, what: str) -> BatchLook:
        """A job as the provider describes it. Raises ProviderBrokenAnswer."""

    @abstractmethod
    def _content(self, name: str) -> Generator[bytes, None, None]:
        """The bytes of a file."""

    @abstractmethod
    def _job_path(self, batch_id: str) -> str: ...

    @abstractmethod
    def _file_path(self, name: str) -> str: ...

    def _is_gone(self, reply: Reply) -> bool:
        """Whether the answer to a deletion says that the file is not there."""
        return reply.status in (404, 410)

    def _made(self, reply: Reply) -> Any:
        """The JSON of an answer to a call that makes something."""
        if reply.status in _UNKNOWN_THERE:
            raise ProviderStop(
                self._http.error(reply).message,
                hint="there is no Batch API for this model at this address: set "
                "memorySearch.remote.batch.enabled to false",
                status=reply.status,
            )
        return self._thing(reply)

    def _thing(self, reply: Reply) -> Any:
        """The JSON that describes a file or a job; an error beside its name is that of the job."""
        answer = self._http.any_json(reply)
        named = isinstance(answer, dict) and (answer.get("id") or answer.get("name"))
        return answer if named else self._http.json(reply)

    def _pages(self, path: str, query: Mapping[str, str | int], *, rows: str, what: str) -> Iterator[Any]:
        """The entries of a list, page by page. Raises ProviderBrokenAnswer for one without an end."""
        seen: set[str] = set()
        more: Mapping[str, str] = {}
        for _ in range(MAX_PAGES):
            page = self._http.json(self._http.get(path, query={**query, **more}, what=what))
            page = page if isinstance(page, dict) else {"": page}
            entries = page.get(rows)
            if entries is None and self.bare_lists and not page.keys() - {"nextPageToken"}:
                entries = []
            if not isinstance(entries, list):
                # Not the same as an empty one: whoever finds no job may make a second.
                said = f"200, but without a list `{rows}`"
                raise ProviderBrokenAnswer(self._said(what, said), status=200)
            yield from entries
            more = self._next_page(page, entries)
            # A server that knows no pages gives the first one for ever.
            if not more or str(more) in seen:
                return
            seen.add(str(more))
        raise ProviderBrokenAnswer(self._said(what, "the list has no end"), status=200)

    @abstractmethod
    def _next_page(self, page: dict[str, Any], entries: list[Any]) -> Mapping[str, str]:
        """What to ask for the page behind; empty when this one is the last."""

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

    @contextmanager
    def _still_there(self) -> Iterator[None]:
        """A file that is gone says nothing against the provider."""
        try:
            yield
        except ProviderStop as error:
            if error.status not in (404, 410):
                raise
            raise ProviderBrokenAnswer(error.message, status=error.status) from None

    def _text_of(self, value: object, name: str, what: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MAX_WORD_CHARS:
            raise ProviderBrokenAnswer(self._said(what, f"200, but without {name}"), status=200)
        return value

    def _said(self, what: str, said: str) -> str:
        return f"{self._endpoint.provider} {what} failed: {said}"


def file_name(tag: str) -> str:
    """The name of the uploaded file of a job. Raises ValueError for a tag that cannot stand in a name."""
    if not re.fullmatch(r"[\w.-]{1,100}", tag, re.ASCII):
        raise ValueError(f"a tag has letters, digits, dots and dashes only: {tag!r}")
    return f"memline-{tag}.jsonl"


def is_batch_api(made: RemoteBatchApi) -> BatchApi:
    """`made` itself; here mypy sees that it fits the protocol."""
    return made
