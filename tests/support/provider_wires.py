"""How each provider looks on the wire: its errors, vectors, and the jobs and rows of its Batch API.

Written after the providers' documentation, not after the clients: OpenAI's
platform.openai.com/docs/api-reference (embeddings, batch, files), Voyage's docs.voyageai.com (embeddings-api,
batch-inference), Google's ai.google.dev/api (embeddings, batch-api, files).
"""

import json
import re
from array import array
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is no list of vectors, or a whole one."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    retry_after: str = ""
    location: str = ""
    encoding: str = ""


def tokens_of(text):
    return -(-len(text) // 4)


def numbers_of(vector):
    """The numbers of a vector in base64."""
    return list(array("f", b64decode(vector)))


def line_of(row):
    return json.dumps(row).encode() + b"\n"


_OPENAI = {
    "bad_key": "Incorrect API key provided: {key}.",
    "quota": "You exceeded your current quota, please check your plan and billing details.",
    "plan": "Rate limit reached.",
    "model": "The model `{model}` does not exist.",
    "rate": "Rate limit reached. You can add a payment method at https://example.com/account/billing.",
    "server": "The server had an error.",
    "not_encoded": "failed to encode response: json: unsupported value: NaN",
    "text_quota": "Resource has been exhausted (e.g. check quota).",
    "rows": "Invalid 'input': array too long. Expected an array with maximum length {cap}, but got an array "
    "with length {count} instead.",
    "text_tokens": "This model's maximum context length is {cap} tokens. You requested {count} tokens.",
    "tokens": "Requested {count} tokens, max {cap} tokens per request",
    "no_base64": "Unrecognized request argument supplied: encoding_format",
    "refused": "This input cannot be processed.",
    "words": "{words}",
}

_OPENAI_CODES = {
    "bad_key": "invalid_api_key",
    "quota": "insufficient_quota",
    "model": "model_not_found",
    "rate": "rate_limit_exceeded",
    "rows": "array_above_max_length",
    "text_tokens": "context_length_exceeded",
}


#: What a row of a batch is told that failed with this code.
class OpenAIWire:
    """`/v1/embeddings`, `/v1/files` and `/v1/batches`."""

    base_path = "/v1"
    words = _OPENAI
    #: (method, pattern of the path, name of the call); a group is the id of a job or file.
    routes = (
        ("POST", "/v1/files", "upload"),
        ("GET", "/v1/files/([^/]+)/content", "content"),
        ("DELETE", "/v1/files/([^/]+)", "delete"),
        ("POST", "/v1/batches", "create"),
        ("GET", "/v1/batches", "list"),
        ("GET", "/v1/batches/([^/]+)", "look"),
        ("POST", "/v1/batches/([^/]+)/cancel", "cancel"),
    )
    #: Whether failed rows go into a file of their own.
    has_error_file = True
    window, upload_kind = "24h", "multipart/form-data"
    row_keys = frozenset({"custom_id", "method", "url", "body"})

    def serves(self, path):
        """Whether embedding requests are sent to this path."""
        return path == f"{self.base_path}/embeddings"

    def plain(self, body):
        """A request in OpenAI's words: `input`, and if given `model`, `dimensions`, `encoding_format`."""
        return body

    def admits(self, key, headers):
        return headers.get("authorization") == f"Bearer {key}"

    def complaint(self, path, headers, body):
        """What is wrong with a request that is not as documented."""
        return ""

    def error(self, status, code, *, retry_after="", **details):
        """An error with a key of `_OPENAI`; `details` are its numbers and words."""
        text, code = self.words[code].format(**details), _OPENAI_CODES.get(code, "invalid_request_error")
        body = {"error": {"message": text, "type": code, "code": code}}
        return Answer(status=status, body=json.dumps(body).encode(), retry_after=retry_after)

    def vectors(self, body, data, usage):
        """The answer with these rows, `index` and `embedding` as numbers or in base64."""
        whole = {"object": "list", "data": data, "model": body.get("model")}
        return json.dumps(whole | ({"usage": {"total_tokens": usage}} if usage else {})).encode()

    # The Batch API.

    def call_of(self, method, path):
        """Name and id of the call that is meant; None when it is none of the Batch API."""
        for verb, pattern, name in self.routes:
            if verb == method and (match := re.fullmatch(pattern, path)):
                return name, match[1] if match.groups() else ""
        return None

    def created(self, body):
        """Complaint, id of the file, tag and agent of a request for a job."""
        about = body["metadata"]
        is_right = body["endpoint"] == "/v1/embeddings" and body["completion_window"] == self.window
        return "" if is_right else "Invalid value.", body["input_file_id"], about["tag"], about["agent"]

    def text_of(self, row):
        """Key and text of a row, and the request that it makes. Raises ValueError."""
        if row.keys() != self.row_keys:
            raise ValueError("invalid_json_line: this line has other keys than it must")
        return row["custom_id"], row["body"]["input"], row["body"]

    def parameters(self, job, request):
        """Dimensions that a row asks for, and whether it wants base64."""
        return request.get("dimensions"), request.get("encoding_format") == "base64"

    def file(self, id_):
        return {"id": id_, "object": "file", "purpose": "batch", "status": "processed"}

    def job(self, job):
        reasons = [{"code": job.reason, "message": job.reason, "param": None, "line": None}]
        return {
            "id": job.id,
            "object": "batch",
            "errors": {"object": "list", "data": reasons} if job.reason else None,
            "input_file_id": job.input_file,
            "status": job.state,
            "output_file_id": job.output or None,
            "error_file_id": job.errors or None,
            "request_counts": {"total": job.rows, "completed": job.done, "failed": job.failed},
            "metadata": job.request.get("metadata"),
        }

    def page(self, jobs, query):
        ids = [job["id"] for job in jobs]
        start = ids.index(query["after"]) + 1 if query.get("after") in ids else 0
        end = start + int(query.get("limit", 20))
        return {"object": "list", "data": jobs[start:end], "has_more": end < len(jobs)}

    def row(self, key, embedding):
        """A good row; `embedding` is numbers or base64."""
        body = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": embedding}]}
        response = {"status_code": 200, "request_id": "r", "body": body}
        return line_of({"id": "batch_req", "custom_id": key, "response": response, "error": None})

    def bad_row(self, key, status, code):
        """A failed row; status 0: only the code tells."""
        error = {"code": code, "message": f"{code}: this input cannot be processed."}
        response = self.bad_response(status, error) if status else None
        return line_of({"custom_id": key, "response": response, "error": None if status else error})

    def bad_response(self, status, error):
        return {"status_code": status, "request_id": "r", "body": {"error": error}}


_VOYAGE = _OPENAI | {
    "bad_key": "Provided API key is invalid.",
    "quota": "Your free tokens and credits have been used up.",
    "plan": "You have not yet added your payment method in the billing page and will have reduced rate "
    "limits of 3 RPM and 10K TPM. To unlock our standard rate limits, please add a payment method.",
    "model": "Model {model} is not supported. Supported models are ['voyage-4-large'].",
    "rate": "You have exceeded the rate limit of your organization for this model.",
    "server": "Something went wrong on our end.",
    "rows": "The batch size limit is {cap}. Your batch size is {count}.",
    "text_tokens": "The example at index 0 in your batch has too many tokens and does not fit into the "
    "model's context window of {cap} tokens. Please lower the number of tokens in the listed example(s).",
    "tokens": "The max allowed tokens per submitted batch is {cap}. Your batch has {count} tokens after "
    "truncation. Please lower the number of tokens in the batch.",
}

_VOYAGE_FIELDS = frozenset(
    ["input", "model", "input_type", "truncation", "output_dimension", "encoding_format"]
)
_VOYAGE_DIMS = (256, 512, 1024, 2048)


class VoyageWire(OpenAIWire):
    """OpenAI's paths with Voyage's parameters; errors are `{"detail": …}` without a code."""

    words = _VOYAGE
    window = "12h"
    row_keys = frozenset({"custom_id", "body"})

    def plain(self, body):
        return {**body, "dimensions": body.get("output_dimension")}

    def complaint(self, path, headers, body):
        if unknown := body.keys() - _VOYAGE_FIELDS:
            return f"Argument '{min(unknown)}' is not supported by our API."
        if (dims := body.get("output_dimension")) not in (*_VOYAGE_DIMS, None):
            accepted = f"accepted values are {list(_VOYAGE_DIMS)}"
            return f"Value '{dims}' supplied for argument 'output_dimension' is not valid -- {accepted}."
        return ""

    def error(self, status, code, *, retry_after="", **details):
        body = json.dumps({"detail": self.words[code].format(**details)}).encode()
        return Answer(status=400 if code == "model" else status, body=body, retry_after=retry_after)

    def created(self, body):
        wrong, *rest = super().created(body)
        return wrong or ("" if body.get("request_params", {}).get("model") else "model is required."), *rest

    def parameters(self, job, request):
        of_job = job.request["request_params"]
        return of_job.get("output_dimension"), of_job.get("encoding_format") == "base64"

    def bad_response(self, status, error):
        return {"status_code": status, "message": error["message"]}


_METHOD = re.compile(r"/v1beta/models/([^/:?]+):(embedContent|batchEmbedContents)")
_MAX_REQUESTS = 100

_GEMINI = _OPENAI | {
    "bad_key": "API key not valid. Please pass a valid API key.",
    "model": "models/x is not found for API version v1beta, or is not supported for embedContent.",
    "server": "The model is overloaded. Please try again later.",
    "rows": "* BatchEmbedContentsRequest.requests: at most {cap} requests can be in one batch",
    "text_tokens": "The input token count exceeds the maximum number of tokens allowed ({cap}).",
    "tokens": "The input token count ({count}) exceeds the maximum of {cap} tokens.",
}
_GEMINI_STATES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
_GEMINI_JOBS = {
    "validating": "PENDING",
    "in_progress": "RUNNING",
    "cancelling": "RUNNING",
    "completed": "SUCCEEDED",
}
_RPC = "type.googleapis.com/google.rpc."

#: What shortened vectors are multiplied with: they do not have unit length.
_SHORTENED_LENGTH = 0.7


class GeminiWire(OpenAIWire):
    """`:batchEmbedContents`, `:embedContent`, the Files API, `:asyncBatchEmbedContent` and its operations."""

    base_path = "/v1beta"
    words = _GEMINI
    routes = (
        ("POST", "/upload/v1beta/files", "upload"),
        ("GET", "/download/v1beta/files/([^/:]+):download", "content"),
        ("DELETE", "/v1beta/files/([^/]+)", "delete"),
        ("POST", "/v1beta/models/[^/:]+:asyncBatchEmbedContent", "create"),
        ("GET", "/v1beta/batches", "list"),
        ("GET", "/v1beta/batches/([^/:]+)", "look"),
        ("POST", "/v1beta/batches/([^/:]+):cancel", "cancel"),
    )
    has_error_file, upload_kind = False, "multipart/related"

    def serves(self, path):
        return _METHOD.fullmatch(path) is not None

    def plain(self, body):
        requests = body.get("requests", [body])
        first = requests[0] if requests else {}
        return {
            "model": first.get("model", "").removeprefix("models/"),
            "input": [request["content"]["parts"][0]["text"] for request in requests if "content" in request],
            "dimensions": first.get("outputDimensionality"),
        }

    def admits(self, key, headers):
        return headers.get("x-goog-api-key") == key

    def complaint(self, path, headers, body):
        place, _, query = path.partition("?")
        model = f"models/{unquote(_METHOD.fullmatch(place)[1])}"
        if "key=" in query or not headers.get("x-goog-api-key"):
            return "Method doesn't allow unregistered callers. Please use API Key."
        if len(body.get("requests", ())) > _MAX_REQUESTS:
            return self.words["rows"].format(cap=_MAX_REQUESTS)
        for request in body.get("requests", [body]):
            if request.get("model", None if "requests" in body else model) != model:
                return "* BatchEmbedContentsRequest.requests[0].model: unexpected model name format"
            if unknown := request.keys() - {"model", "content", "taskType", "outputDimensionality"}:
                return f'Invalid JSON payload received. Unknown name "{min(unknown)}": Cannot find field.'
            if "gemini-embedding-2" in model and "taskType" in request:
                return "taskType is not supported by this model"
        return ""

    def error(self, status, code, *, retry_after="", **details):
        text, more, delay = self.words[code].format(**details), [], ""
        if code == "bad_key":
            status = 400
            more = [{"@type": _RPC + "ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        elif code == "quota" and status == 403:
            more, delay = [_quota("PerMinutePerProjectPerModel-FreeTier", 0)], "10s"
        elif code == "quota":
            more, delay = [_quota("PerDayPerUserPerProjectPerModel-FreeTier", 1000)], "31s"
        elif code == "rate":
            more = [_quota("PerMinutePerUserPerProjectPerModel-FreeTier", 100)]
            delay = f"{retry_after}s" if retry_after.isdigit() else ""
        elif code == "text_quota":
            more, delay = (
                [_quota("PerMinutePerProjectPerModel", details["cap"])] if details["cap"] else [],
                "1s",
            )
        if more and code not in ("bad_key", "text_quota"):
            status, text = 429, f"You exceeded your current quota.\n* Quota exceeded for metric: {_METRIC}"
        if delay:
            more.append({"@type": _RPC + "RetryInfo", "retryDelay": delay})
        error = {"code": status, "message": text, "status": _GEMINI_STATES.get(status, "UNAVAILABLE")}
        body = {"error": error | ({"details": more} if more else {})}
        return Answer(status=status, body=json.dumps(body, indent=2).encode())

    def vectors(self, body, data, usage):
        made = [{"values": self._shortened(body, row["embedding"])} for row in data]
        return json.dumps({"embeddings": made} if "requests" in body else {"embedding": made[0]}).encode()

    def _shortened(self, body, numbers):
        is_short = self.plain(body)["dimensions"]
        return [_SHORTENED_LENGTH * number for number in numbers] if is_short else numbers

    def created(self, body):
        batch = body.get("batch", {})
        file_id = batch.get("inputConfig", {}).get("file_name", "")
        agent, _, tag = batch.get("displayName", "").removeprefix("memline ").rpartition(" ")
        wrong = "" if file_id.startswith("files/") else "* batch.input_config.file_name: must be files/{file}"
        return wrong, file_id.removeprefix("files/"), tag, agent

    def text_of(self, row):
        if row.keys() != {"key", "request"}:
            raise ValueError("INVALID_ARGUMENT: a line has a key and a request")
        return row["key"], row["request"]["content"]["parts"][0]["text"], row["request"]

    def parameters(self, job, request):
        return request.get("outputDimensionality"), False

    def file(self, id_):
        return {"file": {"name": f"files/{id_}", "mimeType": "application/jsonl", "state": "ACTIVE"}}

    def job(self, job):
        about = {
            "displayName": job.request.get("batch", {}).get("displayName"),
            "createTime": datetime.fromtimestamp(0, UTC).isoformat().replace("+00:00", "Z"),
            "batchStats": {"successfulRequestCount": str(job.done)} if job.done else {},
            "state": f"BATCH_STATE_{_GEMINI_JOBS.get(job.state, job.state.upper())}",
            "name": f"batches/{job.id}",
        }
        if job.output:
            about["output"] = {"responsesFile": f"files/{job.output}"}
        shown = {"name": f"batches/{job.id}", "metadata": about}
        if job.state == "completed":
            return shown | {"done": True, "response": {"responsesFile": f"files/{job.output}"}}
        error = {"error": {"code": 3, "message": job.reason}} if job.reason else {}
        return shown | ({"done": True} | error if job.is_final else {})

    def page(self, jobs, query):
        start = int(query.get("pageToken", "0"))
        end = start + int(query.get("pageSize", 10))
        shown = {"operations": jobs[start:end]} if jobs else {}
        return shown | ({"nextPageToken": str(end)} if end < len(jobs) else {})

    def row(self, key, embedding):
        return line_of({"key": key, "response": {"embedding": {"values": embedding}}})

    def bad_row(self, key, status, code):
        return line_of({"key": key, "error": {"code": 3, "message": f"{code}: this input is not valid."}})


_METRIC = "generativelanguage.googleapis.com/embed_content_free_tier_requests"


def _quota(name, limit):
    quota = {"quotaMetric": _METRIC, "quotaId": f"EmbedContentRequests{name}", "quotaValue": str(limit)}
    return {"@type": _RPC + "QuotaFailure", "violations": [quota]}


def encoded(numbers):
    return b64encode(array("f", numbers).tobytes()).decode()
