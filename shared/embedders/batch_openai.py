"""OpenAI's Batch API, and that of servers which speak it: `/files` and `/batches`.

As documented at platform.openai.com/docs/api-reference/batch and /files (2026): a JSONL file of requests is
uploaded (`purpose=batch`, 50,000 rows and embedded texts, 200 MB), a job is made of it (`completion_window`
24h, `metadata` of at most 16 words), and its answers come as two files, `output_file_id` for rows that were
answered and `error_file_id` for those that were not, whatever the final state is.

The body of a row is that of `POST /v1/embeddings`, so base64 is as good there; servers of others are not
asked for it, as a row that is refused for it would look like a text that is.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from shared.embedders.batch import BatchApi, BatchLook, BatchRow, State
from shared.embedders.batch_fields import moment, number
from shared.embedders.batch_file import BatchFile, form
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
from shared.embedders.endpoint import Endpoint
from shared.embedders.masking import shown
from shared.embedders.openai import OpenAIEmbedder, request_body, values_of
from shared.embedders.protocol import Identity
from shared.embedders.vectors import Values
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderRefused, ProviderTooBig

#: The longest value in the metadata of a job.
MAX_METADATA_CHARS = 512

#: Errors of a job that are shown; a file that is wrong in one row is often wrong in all.
MAX_SHOWN_ERRORS = 3

#: Final states; all others (validating, in_progress, finalizing, cancelling …) are on their way.
_FINAL: Mapping[str, State] = {
    "completed": "done",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "canceled": "cancelled",
}

#: "Enqueued token limit reached for … Limit: 3,000,000 enqueued tokens."
_ENQUEUED = re.compile(r"limit:? *([\d,]+) enqueued tokens", re.IGNORECASE)


def build_batch(*, identity: Identity, endpoint: Endpoint, timeout_s: float, vector_dims: int) -> BatchApi:
    """The Batch API of an identity. No network is used yet."""
    return is_batch_api(
        OpenAIBatch(identity=identity, endpoint=endpoint, timeout_s=timeout_s, vector_dims=vector_dims)
    )


class OpenAIBatch(RemoteBatchApi):
    """Jobs at OpenAI or at a server that speaks its protocol."""

    known_dims = OpenAIEmbedder.known_dims
    cancel_suffix = "/cancel"
    window: ClassVar[str] = "24h"

    def _row(self, row: BatchRow) -> dict[str, object]:
        body = request_body(self._identity, row.text)
        if self._endpoint.public:
            body["encoding_format"] = "base64"
        return {"custom_id": row.key, "method": "POST", "url": "/v1/embeddings", "body": body}

    def _send(self, file: BatchFile, tag: str) -> object:
        content = form(file, name=file_name(tag), fields={"purpose": "batch"})
        answer = self._made(self._http.upload("/files", content, what=UPLOAD))
        return answer.get("id") if isinstance(answer, dict) else None

    def _files(self) -> Iterator[tuple[str, str]]:
        query: dict[str, str | int] = {"purpose": "batch", "limit": PAGE_ROWS}
        for file in self._pages("/files", query, rows="data", what=FIND_UPLOAD):
            if isinstance(file, dict) and isinstance(file.get("id"), str):
                yield file["id"], str(file.get("filename") or "")

    def _create(self, file_id: str, tag: str, agent: str) -> Any:
        body = {
            "input_file_id": file_id,
            "endpoint": "/v1/embeddings",
            "completion_window": self.window,
            "metadata": {"source": "memline", "agent": agent[:MAX_METADATA_CHARS], "tag": tag},
            **self._more(),
        }
        return self._made(self._http.post("/batches", body, what=CREATE, once=True))

    def _more(self) -> dict[str, object]:
        """What else a job is made of."""
        return {}

    def _jobs(self) -> Iterator[Any]:
        return self._pages("/batches", {"limit": PAGE_ROWS}, rows="data", what=FIND)

    def _next_page(self, page: dict[str, Any], entries: list[Any]) -> Mapping[str, str]:
        last = entries[-1] if entries else None
        cursor = page.get("last_id") or (last.get("id") if isinstance(last, dict) else None)
        # Voyage's own example has no `has_more`.
        more = page.get("has_more", len(entries) >= PAGE_ROWS)
        return {"after": cursor} if more and entries and isinstance(cursor, str) else {}

    def _look(self, job: Any, what: str) -> BatchLook:
        job = job if isinstance(job, dict) else {}
        said = self._text_of(job.get("status"), "a status", what)
        state = _FINAL.get(said.lower(), "running")
        counts = job.get("request_counts")
        counts = counts if isinstance(counts, dict) else {}
        metadata = job.get("metadata")
        reason, error = self._failure(job.get("errors")) if state == "failed" else ("", None)
        output, errors = _name(job.get("output_file_id")), _name(job.get("error_file_id"))
        if state == "done" and not output and not errors:
            reason = "completed without output file"
        return BatchLook(
            id=self._text_of(job.get("id"), "an id", what),
            state=state,
            said=shown(said, self._endpoint.secrets),
            reason=reason,
            error=error,
            rows_done=number(counts.get("completed")),
            rows_failed=number(counts.get("failed")),
            output=output,
            errors=errors,
            input_file=_name(job.get("input_file_id")),
            tag=str(metadata.get("tag") or "") if isinstance(metadata, dict) else "",
            created_at=moment(job.get("created_at")),
        )

    def _failure(self, errors: Any) -> tuple[str, ProviderError]:
        """Why a job failed, and what kind of failure that is."""
        said = errors.get("data", [errors]) if isinstance(errors, dict) else errors
        entries = [entry for entry in said if entry] if isinstance(said, list) else [said] if said else []
        texts = [_text(entry) for entry in entries[:MAX_SHOWN_ERRORS]]
        reason = shown("; ".join(filter(None, texts)), self._endpoint.secrets)
        limit = _ENQUEUED.search(" ".join(texts))
        text = self._said("batch", reason or "no reason was given")
        if limit:
            return reason, ProviderTooBig(text, max_tokens=int(limit[1].replace(",", "")) or None)
        if not entries:
            return reason, ProviderBrokenAnswer(text)
        error = self._reader.failure(None, entries[0], what="batch")
        return reason, ProviderBrokenAnswer(text) if isinstance(error, ProviderRefused) else error

    def _content(self, name: str) -> Generator[bytes, None, None]:
        return self._http.download(f"{self._file_path(name)}/content", what=CONTENT)

    def _job_path(self, batch_id: str) -> str:
        return f"/batches/{quote(batch_id, safe='')}"

    def _file_path(self, name: str) -> str:
        return f"/files/{quote(name, safe='')}"

    def _values(self, row: dict[str, Any]) -> Values:
        response = row.get("response")
        if row.get("error"):
            # Beside a response it is that of the request as a whole.
            status = response.get("status_code") if isinstance(response, dict) else None
            raise RowFailed(status if type(status) is int and status >= 400 else None, row["error"])
        if not isinstance(response, dict):
            raise ProviderBrokenAnswer("a row has neither a response nor an error")
        status = response.get("status_code")
        body = response.get("body")
        if type(status) is int and status >= 400:
            raise RowFailed(status, body or response.get("message") or "unknown error")
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, list):
            raise ProviderBrokenAnswer("a row has no list `data`")
        if len(data) != 1 or not isinstance(data[0], dict):
            raise ProviderBrokenAnswer(f"a row has {len(data)} vectors for one text")
        return values_of(data[0].get("embedding"))


def _name(value: object) -> str:
    """The name of a file; some servers write an empty one where there is none."""
    return value if isinstance(value, str) else ""


def _text(entry: Any) -> str:
    """One error of a job in words."""
    if not isinstance(entry, dict):
        return str(entry)
    words = str(entry.get("message") or entry.get("code") or "")
    line = entry.get("line")
    return f"{words} (line {line})" if line is not None else words
