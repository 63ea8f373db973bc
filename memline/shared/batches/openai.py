"""OpenAI's Batch API, and that of servers which speak it: `/files` and `/batches`.

As documented at platform.openai.com/docs/api-reference/batch and /files (2026): a JSONL file of requests is
uploaded (`purpose=batch`, 50,000 rows and embedded texts, 200 MB), a job is made of it (`completion_window`
24h, `metadata` of at most 16 words), and its answers come as two files, `output_file_id` for rows that were
answered and `error_file_id` for those that were not, whatever the final state is.

The body of a row is that of `POST /v1/embeddings`, so base64 is as good there; servers of others are not
asked for it, as a row that is refused for it would look like a text that is.

Voyage's is the same with model and parameters given once for the whole job, as documented at
docs.voyageai.com/docs/batch-inference and /reference/create-batch (2026): rows hold `custom_id` and
`body.input` alone, a job has `request_params` and 12 hours. A list may come without `has_more`, and a failed
row has `response.message` in place of a body. Above 100 jobs or 1,000 million tokens an account gets 429.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import IO, Any, ClassVar

from memline.shared.batches import remote
from memline.shared.batches.job_rows import BatchRow, multipart, number
from memline.shared.batches.remote import PAGE_ROWS, BatchApi, BatchJob, State, file_name
from memline.shared.embedders.openai import request_body, values_of, voyage_parameters
from memline.shared.embedders.provider_client import Reply
from memline.shared.embedders.vector_checks import Values
from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.tables import as_dict, as_text

#: The longest value in the metadata of a job.
MAX_METADATA_CHARS = 512

#: Final states; all others (validating, in_progress, finalizing, cancelling …) are on their way.
_FINAL: Mapping[str, State] = {
    "completed": "done",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "canceled": "cancelled",
}


class OpenAIBatch(BatchApi):
    """Jobs at OpenAI or at a server that speaks its protocol."""

    cancel_suffix = "/cancel"
    file_field = "id"
    jobs_list = ("/batches", {"limit": PAGE_ROWS}, "data")
    window: ClassVar[str] = "24h"

    def _row(self, row: BatchRow) -> dict[str, object]:
        body = request_body(self._identity, row.text)
        if self._endpoint.public:
            body["encoding_format"] = "base64"
        return {"custom_id": row.key, "method": "POST", "url": "/v1/embeddings", "body": body}

    def _send(self, file: IO[bytes], tag: str) -> Reply:
        purpose = 'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch'
        name = f'Content-Disposition: form-data; name="file"; filename="{file_name(tag)}"\r\n'
        return self._http.upload("/files", multipart("form-data", purpose, file, name), what=remote.UPLOAD)

    def _new_job(self, file_id: str, tag: str, agent: str) -> tuple[str, dict[str, object]]:
        return "/batches", {
            "input_file_id": file_id,
            "endpoint": "/v1/embeddings",
            "completion_window": self.window,
            "metadata": {"source": "memline", "agent": agent[:MAX_METADATA_CHARS], "tag": tag},
        }

    def _next_page(self, page: dict[str, Any], entries: list[Any]) -> dict[str, str]:
        cursor = page.get("last_id") or (as_dict(entries[-1]).get("id") if entries else None)
        # Voyage's own example has no `has_more`.
        more = page.get("has_more", len(entries) >= PAGE_ROWS)
        return {"after": cursor} if more and entries and isinstance(cursor, str) else {}

    def _read_job(self, job: dict[str, Any], what: str) -> BatchJob:
        provider_state = self._word(job.get("status"), "a status", what)
        state = _FINAL.get(provider_state.lower(), "running")
        counts = as_dict(job.get("request_counts"))
        reason, error = "", None
        if state == "failed":
            errors = job.get("errors")
            errors = errors.get("data", [errors]) if isinstance(errors, dict) else errors
            reason, error = self._failure(
                [each for each in (errors if isinstance(errors, list) else [errors]) if each]
            )
        output, failed_rows = as_text(job.get("output_file_id")), as_text(job.get("error_file_id"))
        if state == "done" and not output and not failed_rows:
            reason = "completed without output file"
        return BatchJob(
            id=self._word(job.get("id"), "an id", what),
            state=state,
            provider_state=self._redacted(provider_state),
            reason=reason,
            error=error,
            rows_done=number(counts.get("completed")),
            rows_failed=number(counts.get("failed")),
            output=output,
            errors=failed_rows,
            input_file=as_text(job.get("input_file_id")),
            tag=str(as_dict(job.get("metadata")).get("tag") or ""),
        )

    def _content(self, name: str) -> Generator[bytes, None, None]:
        return self._http.download(f"{remote.path_of('files', name)}/content", what=remote.CONTENT)

    def _values(self, row: dict[str, Any]) -> Values:
        response = as_dict(row.get("response"))
        status, body = response.get("status_code"), response.get("body")
        status = status if type(status) is int and status >= 400 else None
        # Beside a response it is that of the request as a whole.
        if failure := row.get("error"):
            raise self._error_of(status, failure)
        if status:
            raise self._error_of(status, body or response.get("message") or "unknown error")
        data = as_dict(body).get("data")
        if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
            raise ProviderBrokenAnswer("a row has neither an error nor a response with one vector")
        return values_of(data[0].get("embedding"))


class VoyageBatch(OpenAIBatch):
    """Jobs at Voyage."""

    window = "12h"

    def _row(self, row: BatchRow) -> dict[str, object]:
        return {"custom_id": row.key, "body": {"input": row.text}}

    def _new_job(self, file_id: str, tag: str, agent: str) -> tuple[str, dict[str, object]]:
        path, body = super()._new_job(file_id, tag, agent)
        return path, {**body, "request_params": voyage_parameters(self._identity, as_query=False)}
