"""Gemini's Batch API for embeddings: the Files API, `:asyncBatchEmbedContent` and a long-running operation.

As documented at ai.google.dev/api/batch-api, /api/files and /gemini-api/docs/batch-api (2026), and as
Google's own client (google-genai) reads it: a JSONL file of `{key, request}` is uploaded
(`/upload/v1beta/files`, `multipart`, one request), the job is made at the model, and `GET batches/<id>`
answers with an operation: `metadata` has state, name and counts, `done` is true at the end, and `response`
or `metadata.output` names the `responsesFile` with `{key, response}` or `{key, error}` a line. Older answers
are the job itself, without an operation around it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from shared.embedders.batch import BatchApi, BatchLook, BatchRow, State
from shared.embedders.batch_fields import moment, number
from shared.embedders.batch_file import CONTENT_TYPE, BatchFile, related
from shared.embedders.batch_remote import (
    CONTENT,
    CREATE,
    FIND,
    FIND_UPLOAD,
    PAGE_ROWS,
    UPLOAD,
    RemoteBatchApi,
    file_name,
    is_batch_api,
)
from shared.embedders.batch_rows import RowFailed
from shared.embedders.connection import Reply
from shared.embedders.endpoint import Endpoint
from shared.embedders.gemini import GeminiEmbedder, values_of, whole_request
from shared.embedders.masking import shown
from shared.embedders.protocol import Identity
from shared.embedders.vectors import Values
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderRefused

#: The longest display name that Google takes.
MAX_NAME_CHARS = 512

#: Words that end a state's name, whatever it begins with (`BATCH_STATE_`, `JOB_STATE_`, nothing).
_FINAL: Mapping[str, State] = {
    "SUCCEEDED": "done",
    "COMPLETED": "done",
    "DONE": "done",
    "FAILED": "failed",
    "EXPIRED": "expired",
    "CANCELLED": "cancelled",
    "CANCELED": "cancelled",
}

#: The part of a file's name or address that is its own.
_FILE = re.compile(r"(?:^|/)(files/[^/?#:]+)")


def build_batch(*, identity: Identity, endpoint: Endpoint, timeout_s: float, vector_dims: int) -> BatchApi:
    """The Batch API of an identity. No network is used yet."""
    return is_batch_api(
        GeminiBatch(identity=identity, endpoint=endpoint, timeout_s=timeout_s, vector_dims=vector_dims)
    )


class GeminiBatch(RemoteBatchApi):
    """Jobs at Gemini."""

    known_dims = GeminiEmbedder.known_dims
    cancel_suffix = ":cancel"
    bare_lists = True

    def _row(self, row: BatchRow) -> dict[str, object]:
        return {"key": row.key, "request": whole_request(self._identity, row.text)}

    def _send(self, file: BatchFile, tag: str) -> object:
        about = {"file": {"displayName": file_name(tag), "mimeType": CONTENT_TYPE}}
        answer = self._made(
            self._http.upload(
                "/files",
                related(file, about=about),
                query={"uploadType": "multipart"},
                service="upload",
                what=UPLOAD,
            )
        )
        answer = answer if isinstance(answer, dict) else {}
        inner = answer.get("file")
        return inner.get("name") if isinstance(inner, dict) else answer.get("name")

    def _files(self) -> Iterator[tuple[str, str]]:
        query = {"pageSize": PAGE_ROWS}
        for file in self._pages("/files", query, rows="files", what=FIND_UPLOAD):
            if isinstance(file, dict) and isinstance(file.get("name"), str):
                yield file["name"], str(file.get("displayName") or "")

    def _create(self, file_id: str, tag: str, agent: str) -> Any:
        # The tag stands last: an agent's name may hold blanks.
        name = f"memline {agent[: MAX_NAME_CHARS - len(tag) - 9]} {tag}"
        body = {"batch": {"displayName": name, "inputConfig": {"file_name": file_id}}}
        path = f"/models/{quote(self._identity.model, safe='')}:asyncBatchEmbedContent"
        return self._made(self._http.post(path, body, what=CREATE, once=True))

    def _jobs(self) -> Iterator[Any]:
        return self._pages("/batches", {"pageSize": PAGE_ROWS}, rows="operations", what=FIND)

    def _next_page(self, page: dict[str, Any], entries: list[Any]) -> Mapping[str, str]:
        token = page.get("nextPageToken")
        return {"pageToken": token} if isinstance(token, str) and token else {}

    def _look(self, job: Any, what: str) -> BatchLook:
        job = job if isinstance(job, dict) else {}
        about = job["metadata"] if isinstance(job.get("metadata"), dict) else job
        said = str(about.get("state") or job.get("state") or "")
        if not said and "done" not in job and what != CREATE:
            raise ProviderBrokenAnswer(self._said(what, "200, but without a state"), status=200)
        failure = job.get("error")
        state: State = _FINAL.get(said.upper().rpartition("_")[2], "running")
        if job.get("done") and state == "running":
            # The operation has ended, so its state is only late.
            state = "failed" if failure else "done"
        reason, error = self._failure(failure) if failure or state == "failed" else ("", None)
        counts = about.get("batchStats")
        counts = counts if isinstance(counts, dict) else {}
        name = str(about.get("displayName") or "")
        output = _output(job, about)
        if state == "done" and not output:
            reason = "completed without output file"
        return BatchLook(
            id=self._text_of(job.get("name") or about.get("name"), "a name", what),
            state=state,
            said=shown(said, self._endpoint.secrets),
            reason=reason,
            error=error,
            rows_done=number(counts.get("successfulRequestCount")),
            rows_failed=number(counts.get("failedRequestCount")),
            output=output,
            input_file=_input(about),
            tag=name.rpartition(" ")[2] if name.startswith("memline ") else "",
            created_at=moment(about.get("createTime")),
        )

    def _failure(self, failure: Any) -> tuple[str, ProviderError]:
        said = failure.get("message") if isinstance(failure, dict) else failure
        reason = shown(str(said or ""), self._endpoint.secrets)
        text = self._said("batch", reason or "no reason was given")
        if not isinstance(failure, dict):
            return reason, ProviderBrokenAnswer(text)
        error = self._reader.failure(None, failure, what="batch")
        return reason, ProviderBrokenAnswer(text) if isinstance(error, ProviderRefused) else error

    def _content(self, name: str) -> Generator[bytes, None, None]:
        return self._http.download(
            f"{self._file_path(name)}:download", query={"alt": "media"}, service="download", what=CONTENT
        )

    def _job_path(self, batch_id: str) -> str:
        return f"/batches/{quote(batch_id.removeprefix('batches/'), safe='')}"

    def _file_path(self, name: str) -> str:
        return f"/files/{quote(name.removeprefix('files/'), safe='')}"

    def _is_gone(self, reply: Reply) -> bool:
        # Google does not tell apart who may not see a file and that there is none.
        return super()._is_gone(reply) or (reply.status == 403 and b"not exist" in reply.body)

    def _values(self, row: dict[str, Any]) -> Values:
        response = row.get("response")
        response = response if isinstance(response, dict) else {}
        failure = row.get("error") or response.get("error")
        if failure:
            raise RowFailed(None, failure)
        return values_of(response.get("embedding") or row.get("embedding"))


def _output(job: dict[str, Any], about: dict[str, Any]) -> str:
    """The file of the results, whose place has moved over time."""
    places = (job.get("response"), about.get("output"), about.get("outputConfig"), about.get("dest"))
    for place in places:
        # An answer as a whole, or with the output in it.
        inner = place.get("output") if isinstance(place, dict) else None
        for holder in (place, inner):
            if not isinstance(holder, dict):
                continue
            for name in ("responsesFile", "file", "fileId", "fileName"):
                if file := _file(holder.get(name)):
                    return file
    return ""


def _input(about: dict[str, Any]) -> str:
    config = about.get("inputConfig")
    return _file(config.get("fileName") or config.get("file_name")) if isinstance(config, dict) else ""


def _file(value: object) -> str:
    """`files/<id>`, also of an address: files are asked for at our own."""
    if not isinstance(value, str) or not value:
        return ""
    found = _FILE.search(value)
    return found[1] if found else f"files/{value}"
