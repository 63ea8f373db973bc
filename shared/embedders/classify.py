"""The one place that decides what kind of error a provider's answer is.

    status 429                      later, or stop when the quota is used up
    status 402, 401, 403, 404       stop
    status 413, or cap words        too big, with the caps the words name
    status 400, 422                 refused: some text in the request
    status 408, 409, 425, 5xx       later
    a redirect, any other status    stop

Only what the provider itself wrote is read (message, code, type): an answer may quote the texts.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared.embedders.masking import shown
from shared.embedders.waiting import wait_s
from shared.errors import ProviderError, ProviderLater, ProviderRefused, ProviderStop, ProviderTooBig

#: An answer without structure is read this far.
MAX_READ_CHARS = 4000

_QUOTA_CODES = re.compile(
    r"\b(insufficient_quota|quota_exceeded|billing_\w+|insufficient_(funds|credits|balance))"
)
#: OpenAI's ordinary rate limit advises to "add a payment method" and links to "billing": the bare words
#: say nothing.
_QUOTA_WORDS = re.compile(
    r"exceeded your current quota|quota (has been |is )?(exhausted|exceeded|used up)"
    r"|insufficient (quota|funds|credits?|balance)|out of credits?|credit balance"
    r"|billing (hard limit|details|account|is not|has not|not)|account is not active"
)
_RATE = re.compile(
    r"rate[ _]limit|too[ _]many[ _]requests|resource has been exhausted|(requests|tokens) per (min|day)"
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|missing)[ _]api[ _-]?key|api[ _]key (not valid|is invalid|expired)|api_key_invalid"
    r"|invalid[ _]authentication"
)
_BAD_MODEL = re.compile(
    r"model_not_found|invalid_model|(unknown|invalid|unsupported) model\b"
    r"|\bmodel\b.{0,80}(not found|does ?n[o']t exist|not exist|is not supported|not available)"
)
_BAD_DIMS = re.compile(
    r"\bdimensions?\b.{0,60}(not support|unsupported|invalid|not allowed)"
    r"|matryoshka|support\w* .{0,30}\bdimensions\b"
)

_N = r"(\d[\d,_]*)"
_ROW_CAPS = tuple(
    re.compile(pattern.replace("<N>", _N))
    for pattern in (
        r"\bmax(?:imum)? <N>, got \d",
        r"batch size is invalid, it should not be larger than <N>",
        r"input array max\w*(?: (?:length|size))?(?: is)?:? <N>",
        r"array.{0,60}maximum length:? <N>",
        r"(?:allowed|maximum|max) batch size(?: is| of)?:? <N>",
        r"batch size limit(?: is| of)?:? <N>",
        r"(?:at most|no more than|up to|limit of|maximum of|than the limit of) <N> "
        r"(?:requests|texts|inputs|input items|items|documents|rows|elements|strings|embeddings)",
        r"\b(?:max(?:imum)?|number of|maximum number of) "
        r"(?:requests|texts|inputs|items|documents|rows|strings)\D{0,40}<N>",
    )
)
_TOKEN_CAPS = tuple(
    re.compile(pattern.replace("<N>", _N))
    for pattern in (
        r"maximum context length (?:is|of) <N>",
        r"\bmax(?:imum)?(?: of)? <N> tokens",
        r"allowed tokens per (?:submitted )?(?:batch|request) is <N>",
        r"(?:less than|fewer than|at most|no more than|not exceed|limit(?: is| of)?:?|up to) <N> tokens",
        r"\bmax(?:imum)?[ _](?:input[ _]|total[ _])?tokens\D{0,40}<N>",
        r"\blimit:? <N>, requested",
        r"physical batch size \(current batch size: <N>",
    )
)
_CAP_WORDS = re.compile(
    r"too (large|long|big)\b|too many (inputs|texts|tokens|items|rows|documents|elements)"
    r"|(input|context|sequence) length|exceeds? the (context|maximum|max)|max input length is"
    r"|(reduce|lower) (your|the) (prompt|input|number|batch|length)|max_tokens_per_request"
    r"|(string|array)_above_max_length|context_length_exceeded"
    r"|batch size|payload size|request size|size limit"
)
#: Some local servers answer 500 to a text above their window (llama.cpp, older Ollama).
_CAP_WORDS_OF_500 = re.compile(r"too large to process|input length exceeds|exceeds the context")


def classify(
    provider: str,
    status: int,
    headers: Mapping[str, str],
    body: str | bytes,
    *,
    secrets: Iterable[str] = (),
    key_hint: str = "",
    now: float | None = None,
) -> ProviderError:
    """The error for an answer that is no success. `key_hint` says where the key is looked for."""
    raw = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    headers = {name.lower(): value for name, value in headers.items()}
    said = " ".join(_words(raw))
    words = said.lower()
    message = f"{provider} embeddings failed: {status} {shown(raw, secrets)}".rstrip()
    wait = wait_s(headers, said, now=time.time() if now is None else now)

    if _out_of_quota(status, words, wait):
        return ProviderStop(message, status=status, hint=_quota_hint(provider))
    if status == 429 and "request too large" in words:
        # Larger than a whole minute's allowance: waiting will not help.
        return _too_big(message, status, words)
    if status == 429 or (status in (400, 403, 422) and _RATE.search(words)):
        return ProviderLater(message, status=status, retry_after_s=wait)
    if status >= 500:
        if _CAP_WORDS_OF_500.search(words):
            return _too_big(message, status, words)
        return ProviderLater(message, status=status, retry_after_s=wait)
    if status in (408, 409, 425):
        return ProviderLater(message, status=status, retry_after_s=wait)
    if status in (401, 403) or (status in (400, 422) and _BAD_KEY.search(words)):
        return ProviderStop(message, status=status, hint=key_hint or f"check the {provider} API key")
    if status == 413:
        return _too_big(message, status, words)
    if status in (400, 422):
        return _bad_request(provider, message, status, words)
    return ProviderStop(message, status=status, hint=_stop_hint(status, words, headers, secrets))


def _bad_request(provider: str, message: str, status: int, words: str) -> ProviderError:
    if _BAD_DIMS.search(words):
        hint = f"remove memorySearch.outputDimensionality: this {provider} model cannot shorten its vectors"
        return ProviderStop(message, status=status, hint=hint)
    if _cap(_ROW_CAPS, words) or _cap(_TOKEN_CAPS, words) or _CAP_WORDS.search(words):
        return _too_big(message, status, words)
    if _BAD_MODEL.search(words):
        return ProviderStop(message, status=status, hint=_MODEL_HINT)
    return ProviderRefused(message, status=status)


_MODEL_HINT = "set memorySearch.model to a model that this provider serves"


def _stop_hint(status: int, words: str, headers: Mapping[str, str], secrets: Iterable[str]) -> str:
    if 300 <= status < 400:
        target = shown(headers.get("location", "").split("?")[0], secrets)
        return f"a key follows no redirect; set memorySearch.remote.baseUrl to the new place: {target}"
    if status == 404 and "model" in words:
        return _MODEL_HINT
    if status == 407:
        return "the proxy wants to know who you are: check HTTPS_PROXY"
    return "check memorySearch.remote.baseUrl (it usually ends in /v1) and memorySearch.model"


def _quota_hint(provider: str) -> str:
    return f"top up the {provider} account or switch memorySearch.provider, then run: memline index"


def _out_of_quota(status: int, words: str, wait: float | None) -> bool:
    """Used up for good. Prose beside a time to wait is a rate limit that calls itself a quota."""
    if status == 402:
        return True
    if not 400 <= status < 500:
        return False
    return bool(_QUOTA_CODES.search(words) or (wait is None and _QUOTA_WORDS.search(words)))


def _too_big(message: str, status: int, words: str) -> ProviderTooBig:
    rows, tokens = _cap(_ROW_CAPS, words), _cap(_TOKEN_CAPS, words)
    return ProviderTooBig(message, status=status, max_rows=rows, max_tokens=tokens)


def _cap(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(words)
        if found:
            return int(re.sub(r"\D", "", found.group(1))) or None
    return None


def _words(raw: str) -> Iterator[str]:
    """What the provider itself says: messages, codes and types, not the request it may quote."""
    try:
        answer = json.loads(raw)
    except ValueError:
        yield raw[:MAX_READ_CHARS]
        return
    yield from _said(answer)


#: Keys whose text is the provider's own.
_SPOKEN = (
    "message",
    "msg",
    "code",
    "type",
    "error_type",
    "status",
    "reason",
    "param",
    "error",
    "errors",
    "detail",
    "details",
)


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_READ_CHARS]
    elif isinstance(value, list):
        for item in value:
            yield from _said(item)
    elif isinstance(value, dict):
        for name in _SPOKEN:
            if name in value:
                yield from _said(value[name])
