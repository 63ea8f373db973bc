"""The one place that decides what kind of error a provider's answer is.

    status 429                      later, or stop when the quota is used up (Gemini: of the day),
                                    or too big when a minute's allowance is less than the request
    status 402, 401, 403, 404       stop
    status 413, or cap words        too big, with the caps the words name
    status 400, 422                 stop for key, model, dimensions, country; else refused: some text in it
    status 408, 409, 425, 5xx       later
    a redirect, any other status    stop

Only what the provider itself wrote is read (message, code, type): an answer may quote the texts. OpenAI
and servers like it say `{"error": {"message", "code"}}`, Voyage `{"detail"}`, Gemini a `google.rpc.Status`
(see `google_status`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared.embedders.catalog import url_hint
from shared.embedders.google_status import QuotaDetails, quota_details
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
    r"|credits? (is|are|has been|have been) (depleted|exhausted|used up)|spend(ing)? (cap|limit)"
)
_RATE = re.compile(
    r"rate[ _]limit|too[ _]many[ _]requests|resource has been exhausted|(requests|tokens) per (min|day)"
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|missing)[ _]api[ _-]?key|api[ _]key (not valid|is invalid|expired)|api_key_invalid"
    r"|invalid[ _]authentication|api key is invalid"
)
_BAD_MODEL = re.compile(
    r"model_not_found|invalid_model|(unknown|invalid|unsupported|unexpected) model\b"
    r"|\bmodel\b.{0,80}(not found|does ?n[o']t exist|not exist|is not supported|not available)"
)
_BAD_DIMS = re.compile(
    r"\bdimensions?\b.{0,60}(not support|unsupported|invalid|not allowed)"
    r"|matryoshka|support\w* .{0,30}\bdimensions\b"
    r"|output_?dimension\w*\b.{0,60}(not valid|invalid|must be|not support|out of range)"
    r"|invalid value at .{0,60}dimension"
)
#: Gemini does not serve every country; no text is at fault.
_BAD_PLACE = re.compile(r"location is not supported|not available in your (country|region|location)")
_DISABLED = re.compile(r"service_disabled|it is disabled\b|api_key_service_blocked")
#: Voyage to accounts without a payment method: "reduced rate limits of 3 RPM and 10K TPM".
_TOKENS_A_MINUTE = re.compile(r"\b(\d+)(k?) tpm\b")

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
        r"too many tokens in batch\. max is <N>",
        r"physical batch size \(current batch size: <N>",
    )
)
_CAP_WORDS = re.compile(
    r"too (large|long|big)\b|too many (inputs|texts|tokens|items|rows|documents|elements)"
    r"|(input|context|sequence) length|exceeds? the (context|maximum|max)|max input length is"
    r"|(reduce|lower) (your|the) (prompt|input|number|batch|length)|max_tokens_per_request"
    r"|(string|array)_above_max_length|context_length_exceeded"
    r"|batch size|payload size|request size|size limit|input token count"
)
#: Some local servers answer 500 to a text above their window (llama.cpp, older Ollama).
_CAP_WORDS_OF_500 = re.compile(r"too large to process|input length exceeds|exceeds the context")


def classify(
    provider: str,
    status: int,
    headers: Mapping[str, str],
    body: str | bytes,
    *,
    what: str = "embeddings",
    secrets: Iterable[str] = (),
    key_hint: str = "",
    sent_bytes: int = 0,
    now: float | None = None,
) -> ProviderError:
    """The error for an answer that is no success.

    `what` is the word in the message for what failed; `key_hint` says where the key is looked for;
    `sent_bytes` is the size of the request, 0 when unknown.
    """
    raw = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    headers = {name.lower(): value for name, value in headers.items()}
    answer = _parsed(raw)
    said = raw[:MAX_READ_CHARS] if answer is None else " ".join(_said(answer))
    words = said.lower()
    message = f"{provider} {what} failed: {status} {shown(raw, secrets)}".rstrip()
    quota = quota_details(answer)
    wait = wait_s(headers, said, now=time.time() if now is None else now, told_s=quota.wait_s)

    if _out_of_quota(status, words, wait, quota):
        return ProviderStop(message, status=status, hint=_quota_hint(provider, quota))
    if status == 429 and "request too large" in words:
        # Larger than a whole minute's allowance: waiting will not help.
        return _too_big(message, status, words)
    if status == 429 and (allowance := _allowance(words)) and sent_bytes / 4 > allowance / 2:
        # The same, of a provider that says what it allows and not what was asked for. Its tokens may be
        # twice as many as ours.
        return ProviderTooBig(message, status=status, max_tokens=allowance // 2)
    if status == 429 or (status in (400, 403, 422) and _RATE.search(words)):
        return ProviderLater(message, status=status, retry_after_s=wait)
    if status >= 500:
        if _CAP_WORDS_OF_500.search(words):
            return _too_big(message, status, words)
        return ProviderLater(message, status=status, retry_after_s=wait)
    if status in (408, 409, 425):
        return ProviderLater(message, status=status, retry_after_s=wait)
    if status in (401, 403) or (status in (400, 422) and _BAD_KEY.search(words)):
        return ProviderStop(message, status=status, hint=_key_hint(provider, words, key_hint))
    if status == 413:
        return _too_big(message, status, words)
    if status in (400, 422):
        return _bad_request(provider, message, status, words)
    return ProviderStop(message, status=status, hint=_stop_hint(provider, status, words, headers, secrets))


def is_bad_key(error: ProviderError) -> bool:
    """Whether an error says that the key itself is bad, whatever it was used for."""
    return error.status == 401 or (error.kind == "stop" and bool(_BAD_KEY.search(error.message.lower())))


def _bad_request(provider: str, message: str, status: int, words: str) -> ProviderError:
    if _BAD_DIMS.search(words):
        hint = (
            f"change or remove memorySearch.outputDimensionality: this {provider} model has no such vectors"
        )
        return ProviderStop(message, status=status, hint=hint)
    if _BAD_PLACE.search(words):
        hint = f"{provider} does not serve this place: set memorySearch.provider to another"
        return ProviderStop(message, status=status, hint=hint)
    if _cap(_ROW_CAPS, words) or _cap(_TOKEN_CAPS, words) or _CAP_WORDS.search(words):
        return _too_big(message, status, words)
    if _BAD_MODEL.search(words):
        return ProviderStop(message, status=status, hint=_MODEL_HINT)
    return ProviderRefused(message, status=status)


_MODEL_HINT = "set memorySearch.model to a model that this provider serves"


def _key_hint(provider: str, words: str, key_hint: str) -> str:
    if _DISABLED.search(words):
        return f"allow the {provider} API for the project of this key, then run: memline index"
    return key_hint or f"check the {provider} API key"


def _stop_hint(
    provider: str, status: int, words: str, headers: Mapping[str, str], secrets: Iterable[str]
) -> str:
    if 300 <= status < 400:
        target = shown(headers.get("location", "").split("?")[0], secrets)
        return f"a key follows no redirect; set memorySearch.remote.baseUrl to the new place: {target}"
    if status == 404 and "model" in words:
        return _MODEL_HINT
    if status == 407:
        return "the proxy wants to know who you are: check HTTPS_PROXY"
    return f"{url_hint(provider)}; check memorySearch.model too"


def _quota_hint(provider: str, quota: QuotaDetails) -> str:
    if quota.is_none:
        return (
            f"this {provider} key has no quota for the model: enable billing for its project or set "
            "memorySearch.model to another, then run: memline index"
        )
    if quota.is_daily:
        return (
            f"the day's quota of this {provider} key is used up: wait for the next day, raise the quota "
            "or switch memorySearch.provider, then run: memline index"
        )
    return f"top up the {provider} account or switch memorySearch.provider, then run: memline index"


def _out_of_quota(status: int, words: str, wait: float | None, quota: QuotaDetails) -> bool:
    """Used up for good. Prose beside a time to wait is a rate limit that calls itself a quota."""
    if status == 402:
        return True
    if not 400 <= status < 500 or quota.is_short:
        return False
    if quota.is_daily or quota.is_none:
        return True
    return bool(_QUOTA_CODES.search(words) or (wait is None and _QUOTA_WORDS.search(words)))


def _allowance(words: str) -> int:
    """Tokens a minute that the plan allows, when the words say so; else 0."""
    found = _TOKENS_A_MINUTE.search(words)
    return int(found.group(1)) * (1000 if found.group(2) else 1) if found else 0


def _too_big(message: str, status: int, words: str) -> ProviderTooBig:
    rows, tokens = _cap(_ROW_CAPS, words), _cap(_TOKEN_CAPS, words)
    return ProviderTooBig(message, status=status, max_rows=rows, max_tokens=tokens)


def _cap(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(words)
        if found:
            return int(re.sub(r"\D", "", found.group(1))) or None
    return None


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


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


#: What a provider says stands near the top; below may be anything, and as deep as it likes.
MAX_DEPTH = 8


def _said(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value[:MAX_READ_CHARS]
    elif isinstance(value, list):
        for item in value:
            yield from _said(item, depth + 1)
    elif isinstance(value, dict):
        for name in _SPOKEN:
            if name in value:
                yield from _said(value[name], depth + 1)
