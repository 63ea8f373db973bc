"""What the embedding server can do wrong: the words for it, and the answers."""

import base64
import hashlib
import json
from array import array
from dataclasses import dataclass

FAULTS = {
    "ok": "no fault",
    "401": "bad key (the answer quotes the key)",
    "403-quota": "quota exhausted, as 403",
    "429-quota": "quota exhausted, as 429",
    "404-model": "unknown model",
    "429": "rate limit; `429:60` and `429:<HTTP date>` send Retry-After",
    "429-plan": "rate limit of an account without a payment method, with what it allows (Voyage)",
    "500": "server error",
    "503": "overloaded; `503:30` sends Retry-After",
    "504": "a gateway that gave up waiting",
    "html": "a 200 with a web page",
    "error-in-200": "a 200 that holds an error; `error-in-200:429` with that code",
    "words-in-200": "the same without a status: `words-in-200:rate limit reached` says so in words alone",
    "bad-gzip": "a 200 that says gzip and is none",
    "truncated": "a 200 with half of the JSON",
    "short": "one vector too few",
    "long": "one vector too many",
    "only-rows": "`only-rows:8` answers with vectors for the first 8 texts alone",
    "same-index": "every vector has the index 0",
    "permuted": "vectors in reverse order, with their index",
    "duplicate-index": "two vectors with the same index",
    "nan": "NaN in a vector; `nan:WORD` only in those of texts with WORD",
    "zero": "a zero vector; `zero:WORD` as above",
    "wrong-dims": "vectors one dimension short",
    "floats": "JSON numbers although base64 was asked for",
    "no-base64": "400 when `encoding_format` is given, JSON numbers otherwise",
    "no-index": "rows without `index`",
    "max-rows": "`max-rows:8` answers 400 to more texts",
    "max-tokens": "`max-tokens:1000` answers 400 to more tokens (characters / 4)",
    "500-rows": "`500-rows:8` answers 500 to more texts, as a server that has no memory for them",
    "500-text": "`500-text:WORD` answers 500 when a text holds WORD, as a model that breaks on it",
    "usage": "`usage:70` counts so many tokens in the answer",
    "close-rows": "`close-rows:8` closes the connection in the middle of the answer to more texts",
    "max-text-tokens": "`max-text-tokens:500` answers 400 when one text has more",
    "max-bytes": "`max-bytes:9000` answers 413, naming no cap, to a larger request",
    "refuse": "`refuse:WORD` answers 400 when a text holds WORD",
    "redirect": "307 to `redirect:URL`",
    "hang": "no answer while the server lives; `hang:WORD` only to texts with WORD",
    "slow": "`slow:500` waits so many milliseconds",
    "slow-text": "`slow-text:500` waits so many milliseconds for each text",
    "text-quota": "`text-quota:20` answers 429 to more texts: a quota of a minute that it names (Gemini)",
    "text-quota-unnamed": "the same, but the answer does not name the quota",
    "close": "closes the connection in the middle of the answer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """An answer that is no list of vectors."""

    status: int
    body: bytes
    kind: str = "application/json"
    retry_after: str = ""
    location: str = ""
    encoding: str = ""


def texts_of(body):
    given = body.get("input", [])
    return [given] if isinstance(given, str) else list(given)


def digest_of(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tokens_of(text):
    return -(-len(text) // 4)


def parsed(fault):
    """Fault word -> its argument. An HTTP date has a comma, so an unknown word belongs to the one before."""
    faults = {}
    last = ""
    for part in fault.split(",") if fault else []:
        word, _, argument = part.strip().partition(":")
        if word in FAULTS:
            faults[word] = argument
            last = word
        elif last and faults[last]:
            faults[last] += f",{part}"
        else:
            raise ValueError(f"unknown fault {word!r}; known are: {', '.join(FAULTS)}")
    return faults


def checked(fault):
    """`fault` itself. Raises ValueError when it is none."""
    parsed(fault)
    return fault


def error_answer(faults, body, headers):
    """The error that the faults want for this request, if any."""
    if "401" in faults:
        given = headers.get("authorization", "")
        return _error(401, f"Incorrect API key provided: {given}.", "invalid_api_key")
    if "403-quota" in faults or "429-quota" in faults:
        text = "You exceeded your current quota, please check your plan and billing details."
        return _error(403 if "403-quota" in faults else 429, text, "insufficient_quota")
    if "404-model" in faults:
        return _error(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
    if "429" in faults:
        text = "Rate limit reached. You can add a payment method at https://example.com/account/billing."
        return _error(429, text, "rate_limit_exceeded", retry_after=faults["429"])
    if broken := faults.keys() & {"500", "503", "504"}:
        status = int(min(broken))
        return _error(status, "The server had an error.", "server_error", retry_after=faults[str(status)])
    if "redirect" in faults:
        return ErrorAnswer(status=307, body=b"", kind="text/plain", location=faults["redirect"])
    if "html" in faults:
        return ErrorAnswer(status=200, body=b"<!doctype html><title>Sign in</title>", kind="text/html")
    if "bad-gzip" in faults:
        return ErrorAnswer(status=200, body=b"not gzip at all", encoding="gzip")
    if "error-in-200" in faults:
        inner = {"message": "Provider returned error", "code": int(faults["error-in-200"] or 0)}
        return ErrorAnswer(status=200, body=json.dumps({"error": inner}).encode())
    if "words-in-200" in faults:
        inner = {"message": faults["words-in-200"], "code": "error"}
        return ErrorAnswer(status=200, body=json.dumps({"data": None, "error": inner}).encode())
    if len(json.dumps(body)) > int(faults.get("max-bytes") or 1 << 60):
        return ErrorAnswer(status=413, body=b"")
    if "no-base64" in faults and "encoding_format" in body:
        return _error(400, "Unrecognized request argument supplied: encoding_format", "invalid_request")
    return _cap_error(faults, texts_of(body))


def _cap_error(faults, texts):
    caps = {name: int(faults.get(name) or 1 << 60) for name in ("max-rows", "max-tokens", "max-text-tokens")}
    tokens = [tokens_of(text) for text in texts]
    for name in ("text-quota", "text-quota-unnamed"):
        if len(texts) > int(faults.get(name) or 1 << 60):
            code = f"{name}:{faults[name] * (name == 'text-quota')}"
            return _error(429, "Resource has been exhausted (e.g. check quota).", code, retry_after="1")
    if len(texts) > int(faults.get("500-rows") or 1 << 60):
        return _error(500, "The server had an error.", "server_error")
    if faults.get("500-text") and any(faults["500-text"] in text for text in texts):
        return _error(500, "failed to encode response: json: unsupported value: NaN", "api_error")
    if len(texts) > caps["max-rows"]:
        text = (
            "Invalid 'input': array too long. Expected an array with maximum length "
            f"{caps['max-rows']}, but got an array with length {len(texts)} instead."
        )
        return _error(400, text, "array_above_max_length")
    if max(tokens, default=0) > caps["max-text-tokens"]:
        text = (
            f"This model's maximum context length is {caps['max-text-tokens']} tokens, however you "
            f"requested {max(tokens)} tokens. Please reduce your prompt."
        )
        return _error(400, text, "context_length_exceeded")
    if sum(tokens) > caps["max-tokens"]:
        text = f"Requested {sum(tokens)} tokens, max {caps['max-tokens']} tokens per request"
        return _error(400, text, "max_tokens_per_request")
    if faults.get("refuse") and any(faults["refuse"] in text for text in texts):
        return _error(400, "This input cannot be processed.", "invalid_request_error")
    return None


def vectors_answer(faults, body, vector):
    """The list of vectors, with what the faults do to it. `vector` makes one in base64."""
    texts = texts_of(body)
    in_base64 = body.get("encoding_format") == "base64" and not faults.keys() & {"floats", "no-base64"}
    data = []
    for index, text in enumerate(texts):
        embedding = _spoilt(faults, text, vector(text))
        shown = embedding if in_base64 else list(array("f", base64.b64decode(embedding)))
        data.append({"object": "embedding", "index": index, "embedding": shown})
    if "no-index" in faults:
        for row in data:
            del row["index"]
    if "permuted" in faults:
        data.reverse()
    if "duplicate-index" in faults:
        data[-1]["index"] = data[0]["index"]
    if "same-index" in faults:
        data = [{**row, "index": 0} for row in data]
    if "short" in faults:
        data.pop()
    data = data[: int(faults.get("only-rows") or len(data))]
    if "long" in faults:
        data.append({**data[-1], "index": len(texts)})
    whole = {"object": "list", "data": data, "model": body.get("model")}
    if "usage" in faults:
        whole["usage"] = {"total_tokens": int(faults["usage"])}
    answer = json.dumps(whole).encode()
    return answer[: len(answer) // 2] if "truncated" in faults else answer


def _spoilt(faults, text, embedding):
    if "wrong-dims" in faults:
        embedding = base64.b64encode(base64.b64decode(embedding)[:-4]).decode()
    for name, value in (("nan", float("nan")), ("zero", 0.0)):
        if name in faults and faults[name] in text:
            count = len(base64.b64decode(embedding)) // 4
            embedding = base64.b64encode(array("f", [value] * count).tobytes()).decode()
    return embedding


def _error(status, message, code, *, retry_after=""):
    body = {"error": {"message": message, "type": code, "code": code}}
    return ErrorAnswer(status=status, body=json.dumps(body).encode(), retry_after=retry_after)
