"""A real HTTP server that speaks Gemini's embedding methods and misbehaves on command.

    python -m tests.support.gemini_server --port 0 --key AIza… --fault 429:34

As `embedding_server`, with Gemini's paths, key header, request and answer, and its errors: a
`google.rpc.Status` with details. Of the faults, `429:34` is a quota of a minute with a `RetryInfo`,
`429-quota` a quota of the day (which comes with a `RetryInfo` as well), `403-quota` a key without any quota
for the model.
A request that is not as https://ai.google.dev/api/embeddings has it is answered with 400.
"""

import base64
import json
import re
from array import array
from urllib.parse import unquote

from tests.support.batch_wire_gemini import GeminiWire
from tests.support.embedding_faults import ErrorAnswer, error_answer, vectors_answer
from tests.support.embedding_server import EmbeddingServer, main

_METHOD = re.compile(r"/v1beta/models/([^/:?]+):(embedContent|batchEmbedContents)")

TASK_TYPES = (
    "RETRIEVAL_DOCUMENT",
    "RETRIEVAL_QUERY",
    "SEMANTIC_SIMILARITY",
    "CLASSIFICATION",
    "CLUSTERING",
    "QUESTION_ANSWERING",
    "FACT_VERIFICATION",
    "CODE_RETRIEVAL_QUERY",
)

MAX_REQUESTS = 100
FULL_DIMS = 3072

#: What shortened vectors are multiplied with: they do not have unit length.
SHORTENED_LENGTH = 0.7

#: Words of a fault that make no sense here: rows have no index, and numbers are always floats.
_SENSELESS = ("permuted", "duplicate-index", "no-index", "no-base64", "429-plan")

_RPC = "type.googleapis.com/google.rpc."


class GeminiServer(EmbeddingServer):
    """The server on a port of its own, running while the `with` block does."""

    base_path = "/v1beta"
    batch_wire = GeminiWire

    def control(self, changes):
        for fault in (changes.get("fault", ""), *changes.get("script", ())):
            if any(word in fault for word in _SENSELESS):
                raise ValueError(f"Gemini cannot do {fault!r}")
        super().control(changes)

    def serves(self, path):
        return _METHOD.fullmatch(path) is not None

    def plain(self, body):
        requests = body.get("requests", [body])
        first = requests[0] if requests else {}
        return {
            "model": first.get("model", "").removeprefix("models/"),
            "input": [_text(request) for request in requests],
            "dimensions": first.get("outputDimensionality"),
        }

    def admits(self, headers):
        return not self.key or headers.get("x-goog-api-key") == self.key

    def complaint(self, path, headers, body):
        wrong = _wrong(path, headers, body)
        return _status(400, wrong, "INVALID_ARGUMENT") if wrong else None

    def error(self, faults, body, headers):
        answer = error_answer(faults, self.plain(body), {})
        if answer is None or not answer.body.startswith(b'{"error": {"message"') or answer.status == 200:
            return answer
        said = json.loads(answer.body)["error"]
        return _reworded(answer, said["message"], said["code"])

    def plain_error(self, status, message, code):
        return _status(status, message, {400: "INVALID_ARGUMENT", 404: "NOT_FOUND"}.get(status, "UNKNOWN"))

    def answer(self, faults, body):
        plain = self.plain(body)
        dims = plain["dimensions"] or self.dims
        whole = {name: argument for name, argument in faults.items() if name != "truncated"}
        rows = json.loads(vectors_answer(whole, plain, lambda text: self.vector(text, dims)))["data"]
        embeddings = [{"values": row["embedding"]} for row in rows]
        if "requests" in body:
            answer = json.dumps({"embeddings": embeddings}).encode()
        else:
            answer = json.dumps({"embedding": embeddings[0]} if embeddings else {}).encode()
        return answer[: len(answer) // 2] if "truncated" in faults else answer

    def vector(self, text, dims):
        made = super().vector(text, dims)
        if dims == self.dims:
            return made
        shortened = array("f", [SHORTENED_LENGTH * x for x in array("f", base64.b64decode(made))])
        return base64.b64encode(shortened.tobytes()).decode()


def _text(request):
    content = request.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    return str(parts[0].get("text", "")) if parts else ""


def _wrong(path, headers, body):
    """What is not as documented; empty when all is."""
    place, _, query = path.partition("?")
    method = _METHOD.fullmatch(place)
    assert method
    if "key=" in query:
        return "the key does not belong into the address"
    if not headers.get("x-goog-api-key"):
        return "Method doesn't allow unregistered callers. Please use API Key."
    if not headers.get("content-type", "").startswith("application/json"):
        return "Content-Type must be application/json."
    model = f"models/{unquote(method[1])}"
    if method[2] == "embedContent":
        return _wrong_request(body, model, batch=False)
    if body.keys() != {"requests"} or not body["requests"]:
        return 'Invalid JSON payload received. Unknown name or no "requests".'
    if len(body["requests"]) > MAX_REQUESTS:
        return "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch\n"
    return next(
        filter(None, (_wrong_request(request, model, batch=True) for request in body["requests"])), ""
    )


def _wrong_request(request, model, *, batch):
    unknown = request.keys() - {"model", "content", "taskType", "title", "outputDimensionality"}
    if unknown:
        return f'Invalid JSON payload received. Unknown name "{min(unknown)}": Cannot find field.'
    if request.get("model", None if batch else model) != model:
        return "* BatchEmbedContentsRequest.requests[0].model: unexpected model name format"
    content = request.get("content")
    if not isinstance(content, dict) or list(content) != ["parts"] or len(content["parts"]) != 1:
        return "* EmbedContentRequest.content: must have one part"
    if list(content["parts"][0]) != ["text"] or not content["parts"][0]["text"]:
        return "* EmbedContentRequest.content contains an empty Part."
    if "gemini-embedding-2" in model and "taskType" in request:
        return "taskType is not supported by this model"
    if request.get("taskType", TASK_TYPES[0]) not in TASK_TYPES:
        return "Invalid value at 'requests[0].task_type'"
    dims = request.get("outputDimensionality", 1)
    if type(dims) is not int or not 1 <= dims <= FULL_DIMS:
        return f"* EmbedContentRequest.output_dimensionality: must be in range [1, {FULL_DIMS}]"
    return ""


def _reworded(answer, message, code):
    """An error of OpenAI's in the words and details of Google's."""
    if code == "invalid_api_key":
        reason = {"@type": _RPC + "ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        text = "API key not valid. Please pass a valid API key."
        return _status(400, text, "INVALID_ARGUMENT", reason)
    if code == "insufficient_quota":
        if answer.status == 403:
            return _quota("EmbedContentRequestsPerMinutePerProjectPerModel-FreeTier", limit=0, delay="10s")
        return _quota("EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier", limit=1000, delay="31s")
    if code == "rate_limit_exceeded":
        delay = f"{answer.retry_after}s" if answer.retry_after.isdigit() else ""
        return _quota(
            "EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier", limit=100, delay=delay
        )
    if code.startswith("text-quota"):
        value = code.partition(":")[2]
        if not value:
            retry = {"@type": _RPC + "RetryInfo", "retryDelay": f"{answer.retry_after}s"}
            return _status(429, message, "RESOURCE_EXHAUSTED", retry)
        return _quota(
            "EmbedContentRequestsPerMinutePerProjectPerModel",
            limit=int(value),
            delay=f"{answer.retry_after}s",
        )
    if code == "model_not_found":
        text = "models/x is not found for API version v1beta, or is not supported for embedContent."
        return _status(404, text, "NOT_FOUND")
    if code == "server_error":
        status = "INTERNAL" if answer.status == 500 else "UNAVAILABLE"
        return _status(answer.status, "The model is overloaded. Please try again later.", status)
    numbers = re.findall(r"\d+", message)
    if code == "array_above_max_length":
        message = f"* BatchEmbedContentsRequest.requests: at most {numbers[0]} requests can be in one batch"
    elif code == "context_length_exceeded":
        message = f"The input token count exceeds the maximum number of tokens allowed ({numbers[0]})."
    elif code == "max_tokens_per_request":
        message = f"The input token count ({numbers[0]}) exceeds the maximum of {numbers[1]} tokens."
    return _status(400, message, "INVALID_ARGUMENT")


def _quota(quota_id, *, limit, delay):
    metric = "generativelanguage.googleapis.com/embed_content_free_tier_requests"
    text = (
        "You exceeded your current quota, please check your plan and billing details. For more information "
        "on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for "
        f"metric: {metric}, limit: {limit}, model: gemini-embedding-1.0"
    )
    violation = {"quotaMetric": metric, "quotaId": quota_id, "quotaValue": str(limit)}
    details = [
        {"@type": _RPC + "QuotaFailure", "violations": [violation]},
        {"@type": _RPC + "Help", "links": [{"url": "https://ai.google.dev/gemini-api/docs/rate-limits"}]},
    ]
    if delay:
        text += f"\nPlease retry in {delay}."
        details.append({"@type": _RPC + "RetryInfo", "retryDelay": delay})
    return _status(429, text, "RESOURCE_EXHAUSTED", *details)


def _status(code, message, status, *details):
    error = {"code": code, "message": message, "status": status}
    if details:
        error["details"] = list(details)
    return ErrorAnswer(status=code, body=json.dumps({"error": error}, indent=2).encode())


if __name__ == "__main__":
    main(GeminiServer)
