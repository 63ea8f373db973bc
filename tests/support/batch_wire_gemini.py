"""Gemini's Batch API on the wire, after ai.google.dev/api/batch-api and /api/files."""

import json
from datetime import UTC, datetime

from tests.support.batch_jobs import Row, as_line
from tests.support.batch_wires import Wire, message_of

_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main."

_BATCH_STATES = {
    "validating": "PENDING",
    "in_progress": "RUNNING",
    "cancelling": "RUNNING",
    "completed": "SUCCEEDED",
    "failed": "FAILED",
    "expired": "EXPIRED",
    "cancelled": "CANCELLED",
}

_RPC_CODES = {400: 3, 429: 8, 500: 13, 0: 3}


class GeminiWire(Wire):
    """The Files API, `:asyncBatchEmbedContent`, and operations below `batches/`."""

    routes = (
        ("POST", "/upload/v1beta/files", "upload"),
        ("GET", "/v1beta/files", "list-files"),
        ("GET", "/v1beta/files/([^/:]+)", "file"),
        ("GET", "/download/v1beta/files/([^/:]+):download", "content"),
        ("DELETE", "/v1beta/files/([^/]+)", "delete"),
        ("POST", "/v1beta/models/[^/:]+:asyncBatchEmbedContent", "create"),
        ("GET", "/v1beta/batches", "list"),
        ("GET", "/v1beta/batches/([^/:]+)", "look"),
        ("POST", "/v1beta/batches/([^/:]+):cancel", "cancel"),
    )
    has_error_file = False

    def upload(self, about):
        return "" if about.get("filename") else "file.displayName is missing"

    def creation(self, body):
        batch = body.get("batch", {})
        config = batch.get("inputConfig") or batch.get("input_config") or {}
        file_id = config.get("fileName") or config.get("file_name") or ""
        name = batch.get("displayName") or batch.get("display_name") or ""
        wrong = "" if name else "* batch.display_name: must not be empty"
        if not file_id.startswith("files/"):
            wrong = "* batch.input_config.file_name: must be files/{file}"
        agent, _, tag = name.removeprefix("memline ").rpartition(" ")
        return wrong, file_id.removeprefix("files/"), tag, agent

    def rows(self, job, lines):
        for number, line in enumerate(lines, 1):
            row = json.loads(line)
            if row.keys() != {"key", "request"}:
                raise ValueError(number, "INVALID_ARGUMENT: a line has a key and a request")
            request = row["request"]
            yield Row(key=row["key"], text=request["content"]["parts"][0]["text"], request=request)

    def file(self, file):
        return {
            "name": f"files/{file.id}",
            "displayName": file.name,
            "mimeType": "application/jsonl",
            "sizeBytes": str(file.size),
            "createTime": _zulu(file.created_at),
            "uri": f"https://generativelanguage.googleapis.com/v1beta/files/{file.id}",
            "state": "PROCESSING" if file.looks_left > 0 else "ACTIVE",
        }

    def made_file(self, file):
        return {"file": self.file(file)}

    def job(self, job):
        stats = {
            "requestCount": job.rows,
            "successfulRequestCount": job.done,
            "failedRequestCount": job.failed,
        }
        about = {
            "@type": f"{_TYPE}EmbedContentBatch",
            "model": "models/stub",
            "displayName": job.request.get("batch", {}).get("displayName"),
            "inputConfig": {"fileName": f"files/{job.input_file}"},
            "createTime": _zulu(job.created_at),
            "batchStats": {name: str(count) for name, count in stats.items() if count},
            "state": f"BATCH_STATE_{_BATCH_STATES[job.state]}",
            "name": f"batches/{job.id}",
        }
        shown = {"name": f"batches/{job.id}", "metadata": about}
        if job.output:
            about["output"] = {"responsesFile": f"files/{job.output}"}
        if job.is_final:
            shown["done"] = True
            if job.state == "completed":
                shown["response"] = {
                    "@type": f"{_TYPE}EmbedContentBatchOutput",
                    "responsesFile": f"files/{job.output}",
                }
            elif job.reasons:
                shown["error"] = {"code": 3, "message": job.reasons[0]["message"]}
        return shown

    def page(self, kind, entries, query, cap):
        start = int(query.get("pageToken", "0").removeprefix("page-"))
        size = min(int(query.get("pageSize", 10)), cap)
        shown = {}
        if entries:
            shown["files" if kind == "files" else "operations"] = list(entries[start : start + size])
        if start + size < len(entries):
            shown["nextPageToken"] = f"page-{start + size}"
        return shown

    def row(self, job, key, embedding):
        return f'{{"key":{json.dumps(key)},"response":{{"embedding":{{"values":{embedding}}}}}}}\n'.encode()

    def bad_row(self, job, key, status, code):
        return as_line({"key": key, "error": {"code": _RPC_CODES[status], "message": message_of(code)}})

    def dims(self, job, row):
        dims = row.request.get("outputDimensionality")
        return dims if isinstance(dims, int) else None


def _zulu(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
