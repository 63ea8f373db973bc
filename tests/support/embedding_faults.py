"""What the embedding server can do wrong: the words for it, and the answers."""

import hashlib
import json

from tests.support.provider_wires import Answer, encoded, numbers_of, tokens_of

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
    "524": "the same, as Cloudflare says it",
    "html": "200 with a web page, as of a captive portal",
    "error-in-200": "200 with an error object, as of a gateway; `error-in-200:429` with a status",
    "words-in-200": "200 with an error object without a status, and these words in it",
    "bad-gzip": "200 with a body that cannot be unpacked",
    "truncated": "JSON cut in the middle",
    "short": "one vector too few",
    "long": "one vector too many",
    "only-rows": "no more than `only-rows:8` vectors, whatever is asked for",
    "same-index": "every row has the index 0",
    "permuted": "rows in reverse order, with right indices",
    "duplicate-index": "the last row has the index of the first",
    "nan": "NaN in the vectors; `nan:WORD` only in those of texts with that word",
    "zero": "vectors of zeros; `zero:WORD` only those of texts with that word",
    "wrong-dims": "vectors one dimension short; `wrong-dims:WORD` only those of texts with that word",
    "floats": "JSON numbers although base64 was asked for",
    "no-base64": "400 for `encoding_format`, and JSON numbers without it",
    "no-index": "rows without an index, in order",
    "max-rows": "400 above `max-rows:8` texts",
    "max-tokens": "400 above `max-tokens:100` tokens in a request",
    "500-rows": "500 above `500-rows:8` texts",
    "close-rows": "the connection closes above `close-rows:8` texts",
    "max-text-tokens": "400 above `max-text-tokens:50` tokens in a text",
    "max-bytes": "413 without words above `max-bytes:1000`",
    "refuse": "400 if any text contains `refuse:POISON`",
    "blocked": "403 with a web page, as of a filter, if any text contains `blocked:POISON`",
    "424-text": "424 if any text contains `424-text:POISON`",
    "redirect": "307 to `redirect:URL`",
    "hang": "no answer while the server lives; `hang:WORD` only for texts with that word",
    "slow": "`slow:500` waits so many milliseconds",
    "slow-text": "`slow-text:90` waits so many milliseconds for each text",
    "text-quota": "429 above `text-quota:8` texts, which its quota of a minute names (Gemini)",
    "usage": "`usage:70` counts so many tokens in the answer",
    "close": "the connection closes in the middle of the answer",
}


def texts_of(body):
    given = body.get("input", [])
    return [given] if isinstance(given, str) else list(given)


def digest_of(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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


def error_answer(wire, faults, body, headers):
    """The error that the faults want for this request (in OpenAI's words), if any."""
    given = headers.get("authorization", "")
    for word, status, code in (
        ("401", 401, "bad_key"),
        ("403-quota", 403, "quota"),
        ("429-quota", 429, "quota"),
        ("404-model", 404, "model"),
        ("429-plan", 429, "plan"),
        ("429", 429, "rate"),
        ("500", 500, "server"),
        ("503", 503, "server"),
        ("504", 504, "server"),
        ("524", 524, "server"),
    ):
        if word in faults:
            return wire.error(status, code, retry_after=faults[word], key=given, model=body.get("model"))
    if "redirect" in faults:
        return Answer(status=307, kind="text/plain", location=faults["redirect"])
    if "html" in faults:
        return Answer(body=b"<!doctype html><title>Sign in</title>", kind="text/html")
    if "bad-gzip" in faults:
        return Answer(body=b"not gzip at all", encoding="gzip")
    if "error-in-200" in faults:
        inner = {"message": "Provider returned error", "code": int(faults["error-in-200"] or 0)}
        return Answer(body=json.dumps({"error": inner}).encode())
    if "words-in-200" in faults:
        inner = {"message": faults["words-in-200"], "code": "error"}
        return Answer(body=json.dumps({"data": None, "error": inner}).encode())
    if len(json.dumps(body)) > int(faults.get("max-bytes") or 1 << 60):
        return Answer(status=413)
    if "no-base64" in faults and "encoding_format" in body:
        return wire.error(400, "no_base64")
    return _cap_error(wire, faults, texts_of(body))


def _cap_error(wire, faults, texts):
    def is_above(count, word):
        return count > int(faults.get(word) or 1 << 60)

    def has(word):
        return bool(faults.get(word)) and any(faults[word] in text for text in texts)

    rows, tokens = len(texts), [tokens_of(text) for text in texts]
    if is_above(rows, "text-quota"):
        return wire.error(429, "text_quota", retry_after="1", cap=int(faults["text-quota"]))
    if is_above(rows, "500-rows"):
        return wire.error(500, "server")
    if is_above(rows, "max-rows"):
        return wire.error(400, "rows", cap=faults["max-rows"], count=rows)
    if is_above(max(tokens, default=0), "max-text-tokens"):
        return wire.error(400, "text_tokens", cap=faults["max-text-tokens"], count=max(tokens))
    if is_above(sum(tokens), "max-tokens"):
        return wire.error(400, "tokens", cap=faults["max-tokens"], count=sum(tokens))
    if has("blocked"):
        return Answer(status=403, body=b"<html>This request was blocked.</html>", kind="text/html")
    if has("424-text"):
        return wire.error(424, "server")
    return wire.error(400, "refused") if has("refuse") else None


def vectors_answer(wire, faults, body, vector):
    """The list of vectors, with what the faults do to it. `vector` makes one in base64."""
    plain = wire.plain(body)
    texts = texts_of(plain)
    in_base64 = plain.get("encoding_format") == "base64" and not faults.keys() & {"floats", "no-base64"}
    data = []
    for index, text in enumerate(texts):
        embedding = _spoilt(faults, text, vector(text))
        shown = embedding if in_base64 else numbers_of(embedding)
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
    answer = wire.vectors(body, data, int(faults.get("usage") or 0))
    return answer[: len(answer) // 2] if "truncated" in faults else answer


def _spoilt(faults, text, embedding):
    if not faults:
        return embedding
    numbers = numbers_of(embedding)
    for name, value in (("nan", float("nan")), ("zero", 0.0)):
        if name in faults and faults[name] in text:
            return encoded([value] * len(numbers))
    return encoded(numbers[:-1]) if faults.get("wrong-dims", text + "-") in text else embedding
