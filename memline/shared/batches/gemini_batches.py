"""Gemini's Batch API for embeddings: the Files API, `:asyncBatchEmbedContent` and a long-running operation.

As documented at ai.google.dev/api/batch-api, /api/files and /gemini-api/docs/batch-api (2026), and as
Google's own client (google-genai) reads it: a JSONL file of `{key, request}` is uploaded
(`/upload/v1beta/files`, `multipart`, one request), the job is made at the model, and `GET batches/<id>`
answers with an operation: `metadata` has state, name and counts, `done` is true at the end, and `response`
or `metadata.output` names the `responsesFile` with `{key, response}` or `{key, error}` a line. Older answers
are the job itself, without an operation around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from typing import IO, Any
from urllib.parse import quote

from memline.shared.batches import remote
from memline.shared.batches.job_rows import CONTENT_TYPE, BatchRow, multipart, number
from memline.shared.batches.remote import PAGE_ROWS, BatchApi, BatchJob, State, file_name
from memline.shared.embedders.gemini import values_of, whole_request
from memline.shared.embedders.provider_client import Reply
from memline.shared.embedders.vector_checks import Values
from memline.shared.tables import as_dict, as_text
from memline.shared.values import replace

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

#: Where an operation names the file of its results: the place has moved over time.
_OUTPUT_FIELDS = ("responsesFile", "file", "fileId", "fileName")

#: The part of a file's name or address that is its own.
_FILE = re.compile(r"(?:^|/)(files/[^/?#:]+)")


class GeminiBatch(BatchApi):
    """Jobs at Gemini."""

    cancel_suffix = ":cancel"
    file_field = "name"
    jobs_list = ("/batches", {"pageSize": PAGE_ROWS}, "operations")
    bare_lists = True

    def _row(self, row: BatchRow) -> dict[str, object]:
        return {"key": row.key, "request": whole_request(self._identity, row.text)}

    def _send(self, file: IO[bytes], tag: str) -> Reply:
        about = json.dumps({"file": {"displayName": file_name(tag), "mimeType": CONTENT_TYPE}})
        content = multipart("related", f"Content-Type: application/json; charset=UTF-8\r\n\r\n{about}", file)
        return self._http.upload(
            "/files",
            replace(content, headers={"x-goog-upload-protocol": "multipart"}),
            query={"uploadType": "multipart"},
            service="upload",
            what=remote.UPLOAD,
        )

    def _new_job(self, file_id: str, tag: str, agent: str) -> tuple[str, dict[str, object]]:
        # The tag comes last: an agent's name may hold blanks.
        name = f"memline {agent[: MAX_NAME_CHARS - len(tag) - 9]} {tag}"
        body: dict[str, object] = {"batch": {"displayName": name, "inputConfig": {"file_name": file_id}}}
        return f"/models/{quote(self._identity.model, safe='')}:asyncBatchEmbedContent", body

    def _next_page(self, page: dict[str, Any], entries: list[Any]) -> dict[str, str]:
        token = as_text(page.get("nextPageToken"))
        return {"pageToken": token} if token else {}

    def _read_job(self, job: dict[str, Any], what: str) -> BatchJob:
        about = job["metadata"] if isinstance(job.get("metadata"), dict) else job
        provider_state = str(about.get("state") or job.get("state") or "")
        if not provider_state and "done" not in job and what != remote.CREATE:
            raise self._broken(what, "without a state")
        failure = job.get("error")
        state: State = _FINAL.get(provider_state.upper().rpartition("_")[2], "running")
        if job.get("done") and state == "running":
            # The operation has ended, so its state is only late.
            state = "failed" if failure else "done"
        reason, error = "", None
        if failure or state == "failed":
            reason, error = self._failure([failure] if failure else [])
        counts, config = as_dict(about.get("batchStats")), as_dict(about.get("inputConfig"))
        name = str(about.get("displayName") or "")
        output = _output(job, about)
        if state == "done" and not output:
            reason = "completed without output file"
        return BatchJob(
            id=self._word(job.get("name") or about.get("name"), "a name", what),
            state=state,
            provider_state=self._redacted(provider_state),
            reason=reason,
            error=error,
            rows_done=number(counts.get("successfulRequestCount")),
            rows_failed=number(counts.get("failedRequestCount")),
            output=output,
            input_file=_file(config.get("fileName") or config.get("file_name")),
            tag=name.rpartition(" ")[2] if name.startswith("memline ") else "",
        )

    def _content(self, name: str) -> Generator[bytes, None, None]:
        path, query = f"{remote.path_of('files', name)}:download", {"alt": "media"}
        return self._http.download(path, query=query, service="download", what=remote.CONTENT)

    def _values(self, row: dict[str, Any]) -> Values:
        response = as_dict(row.get("response"))
        if failure := row.get("error") or response.get("error"):
            raise self._error_of(None, failure)
        return values_of(response.get("embedding") or row.get("embedding"))


def _output(job: dict[str, Any], about: dict[str, Any]) -> str:
    """Return the file of the results."""
    for place in (job.get("response"), about.get("output"), about.get("outputConfig"), about.get("dest")):
        # An answer as a whole, or with the output in it.
        for holder in (as_dict(place), as_dict(as_dict(place).get("output"))):
            for name in _OUTPUT_FIELDS:
                if file := _file(holder.get(name)):
                    return file
    return ""


def _file(value: object) -> str:
    """`files/<id>`, also of an address: files are asked for at our own."""
    name = as_text(value)
    match = _FILE.search(name)
    return match[1] if match else f"files/{name}" if name else ""
