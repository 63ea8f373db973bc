"""How each provider's Batch API looks on the wire: paths, jobs, lists, rows, errors of rows.

Written after the providers' documentation, not after the clients: OpenAI's
platform.openai.com/docs/api-reference/batch and /files, Voyage's docs.voyageai.com/docs/batch-inference.
Gemini's is in `batch_wire_gemini`.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.support.batch_jobs import Row, as_line

MAX_ROWS = 50_000


class Wire(ABC):
    """One provider's formats."""

    #: (method, pattern of the path, name of the call); a group is the id of a job or file.
    routes: Sequence[tuple[str, str, str]]

    #: Whether failed rows go into a file of their own.
    has_error_file = True

    def route(self, method, path):
        """Name and id of the call that is meant; None when it is none of the Batch API."""
        for verb, pattern, name in self.routes:
            found = re.fullmatch(pattern, path)
            if found and verb == method:
                return name, found[1] if found.groups() else ""
        return None

    @abstractmethod
    def upload(self, about):
        """What is wrong with the fields of an upload; empty when nothing is."""

    @abstractmethod
    def creation(self, body):
        """Complaint, id of the file, tag and agent of a request for a job."""

    @abstractmethod
    def rows(self, job, lines):
        """The rows of an uploaded file. Raises ValueError(line, reason)."""

    @abstractmethod
    def file(self, file): ...

    @abstractmethod
    def made_file(self, file):
        """The answer to an upload."""

    @abstractmethod
    def job(self, job): ...

    @abstractmethod
    def page(self, kind, entries, query, cap):
        """A page of a list of files or jobs."""

    @abstractmethod
    def row(self, job, key, embedding):
        """A good row; `embedding` is JSON, numbers or a text of base64."""

    @abstractmethod
    def bad_row(self, job, key, status, code):
        """A failed row; status 0: only the code tells."""

    def dims(self, job, row):
        """Dimensions that were asked for."""
        dims = row.request.get("dimensions")
        return dims if isinstance(dims, int) else None

    def in_base64(self, job, row):
        return row.request.get("encoding_format") == "base64"


class OpenAIWire(Wire):
    """`/v1/files` and `/v1/batches`."""

    routes = (
        ("POST", "/v1/files", "upload"),
        ("GET", "/v1/files", "list-files"),
        ("GET", "/v1/files/([^/]+)", "file"),
        ("GET", "/v1/files/([^/]+)/content", "content"),
        ("DELETE", "/v1/files/([^/]+)", "delete"),
        ("POST", "/v1/batches", "create"),
        ("GET", "/v1/batches", "list"),
        ("GET", "/v1/batches/([^/]+)", "look"),
        ("POST", "/v1/batches/([^/]+)/cancel", "cancel"),
    )
    window = "24h"
    row_keys = frozenset({"custom_id", "method", "url", "body"})

    def upload(self, about):
        if about.get("purpose") != "batch":
            return "'purpose' is a required property"
        return "" if about.get("filename", "").endswith(".jsonl") else "Invalid file format for Batch API."

    def creation(self, body):
        wrong = ""
        if body.get("endpoint") != "/v1/embeddings":
            wrong = "Invalid value for 'endpoint'."
        elif body.get("completion_window") != self.window:
            wrong = f"Invalid value: the only completion window is '{self.window}'."
        metadata = body.get("metadata", {})
        if len(metadata) > 16 or not all(isinstance(v, str) and len(v) <= 512 for v in metadata.values()):
            wrong = "Invalid 'metadata'."
        return wrong, body.get("input_file_id", ""), metadata.get("tag", ""), metadata.get("agent", "")

    def rows(self, job, lines):
        for number, line in enumerate(lines, 1):
            if number > MAX_ROWS:
                raise ValueError(number, f"too_many_tasks: max {MAX_ROWS} requests in a batch")
            row = json.loads(line)
            if row.keys() != self.row_keys:
                raise ValueError(number, "invalid_json_line: this line has other keys than it must")
            yield Row(key=row["custom_id"], text=self._text(row["body"]), request=row["body"])

    def _text(self, body):
        given = body["input"]
        return given if isinstance(given, str) else given[0]

    def time(self, seconds):
        return int(seconds)

    def file(self, file):
        return {
            "id": file.id,
            "object": "file",
            "bytes": file.size,
            "created_at": self.time(file.created_at),
            "filename": file.name,
            "purpose": file.purpose,
            "status": "uploaded" if file.looks_left > 0 else "processed",
        }

    made_file = file

    def job(self, job):
        return {
            "id": job.id,
            "object": "batch",
            "endpoint": "/v1/embeddings",
            "errors": {"object": "list", "data": job.reasons} if job.reasons else None,
            "input_file_id": job.input_file,
            "completion_window": self.window,
            "status": job.state,
            "output_file_id": job.output or None,
            "error_file_id": job.errors or None,
            "created_at": self.time(job.created_at),
            "request_counts": {"total": job.rows, "completed": job.done, "failed": job.failed},
            "metadata": job.request.get("metadata"),
        }

    def page(self, kind, entries, query, cap):
        ids = [entry["id"] for entry in entries]
        start = ids.index(query["after"]) + 1 if query.get("after") in ids else 0
        size = min(int(query.get("limit", 20)), cap)
        shown = entries[start : start + size]
        return {
            "object": "list",
            "data": list(shown),
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": start + size < len(entries),
        }

    def row(self, job, key, embedding):
        body = (
            f'{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":{embedding}}}],'
            '"model":"stub","usage":{"prompt_tokens":1,"total_tokens":1}}'
        )
        return (
            f'{{"id":"batch_req_{key[:8]}","custom_id":{json.dumps(key)},"response":{{"status_code":200,'
            f'"request_id":"r","body":{body}}},"error":null}}\n'
        ).encode()

    def bad_row(self, job, key, status, code):
        error = {"code": code, "message": message_of(code)}
        body = {"error": {**error, "type": code}}
        response = {"status_code": status, "request_id": "r", "body": body} if status else None
        return as_line(
            {"id": "batch_req", "custom_id": key, "response": response, "error": None if status else error}
        )


class VoyageWire(OpenAIWire):
    """OpenAI's paths; parameters stand in the job, and times are RFC 3339."""

    window = "12h"
    row_keys = frozenset({"custom_id", "body"})

    def creation(self, body):
        wrong, file_id, tag, agent = super().creation(body)
        if not body.get("request_params", {}).get("model"):
            wrong = "request_params.model is required."
        return wrong, file_id, tag, agent

    def rows(self, job, lines):
        for number, row in enumerate(super().rows(job, lines), 1):
            if row.request.keys() != {"input"}:
                raise ValueError(number, "invalid_json_line: body takes the input alone")
            yield row

    def dims(self, job, row):
        dims = job.request["request_params"].get("output_dimension")
        return dims if isinstance(dims, int) else None

    def in_base64(self, job, row):
        return job.request["request_params"].get("encoding_format") == "base64"

    def time(self, seconds):
        return datetime.fromtimestamp(seconds, UTC).isoformat()

    def bad_row(self, job, key, status, code):
        if not status:
            return super().bad_row(job, key, status, code)
        response = {"status_code": status, "message": message_of(code)}
        return as_line({"batch_id": job.id, "custom_id": key, "response": response, "error": None})


def message_of(code):
    """What a provider says of a row that failed with this code."""
    return {
        "batch_expired": "This request could not be executed before the completion window expired.",
        "batch_cancelled": "This request was not executed because the batch was cancelled.",
        "rate_limit_exceeded": "Rate limit reached.",
        "server_error": "The server had an error.",
    }.get(code, "This input cannot be processed.")
