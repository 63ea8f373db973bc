"""Decide what kind of error a provider's answer is, how long it asks to wait, and what of it may be shown.

    status 429                      later, or stop when the quota is used up (Gemini: of the day),
                                    or too big when a minute's allowance is less than the request
    status 402, 401, 403, 404       stop
    status 413, or cap words        too big
    status 400, 422                 stop for key, model, dimensions; else refused: some text in it
    408, 409, 424, 425, 499, 5xx    later
    a redirect, any other status    stop

Only what the provider itself wrote is read (message, code, type): an answer may quote the texts. OpenAI
and servers like it say `{"error": {"message", "code"}}`, Voyage `{"detail"}`, Gemini a `google.rpc.Status`.

Codes of errors, beside those of `shared.embedders.http` (proxy_unusable, untrusted_certificate, no_tls,
host_unknown, bad_address, unreachable) and of local models (engine_missing):

    bad_key  no_quota  bad_model  bad_dimensions  redirect  rate_limit  refused_text
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import msgspec

from memline.shared.errors import ProviderError, ProviderLater, ProviderRefused, ProviderStop, ProviderTooBig
from memline.shared.providers import PROVIDERS
from memline.shared.values import as_dict, as_list, read_table

#: An answer without structure is read this far.
MAX_READ_CHARS = 4000

#: Beside 5xx: timeout, conflict, failed dependency, too early, rate limit, and what gateways answer when the
#: service behind them hangs up (499). None of them is about the request.
_LATER_STATUSES = (408, 409, 424, 425, 429, 499)


@cache
def _patterns() -> Mapping[str, list[str]]:
    """Read the patterns, for the first error: compiled at import they cost every search with vectors 6 ms."""
    return read_table(__file__, "error_words.toml")


def _search(kind: str, words: str) -> re.Match[str] | None:
    """Find the first pattern of a kind in words."""
    matches = (re.search(pattern, words) for pattern in _patterns()[kind])
    return next(filter(None, matches), None)


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
    """Make the error for an answer that is not a success.

    `what` is the word in the message for what failed; `key_hint` says where the key is looked for;
    `sent_bytes` is the size of the request, 0 when unknown.
    """
    raw = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    headers = {name.lower(): value for name, value in headers.items()}
    try:
        answer = json.loads(raw)
        text = " ".join(_provider_texts(answer))
    except (ValueError, RecursionError):
        answer, text = None, raw[:MAX_READ_CHARS]
    words = text.lower()
    # The provider's own words: its JSON is for programs.
    said = "; ".join(dict.fromkeys(_provider_texts(answer))) if answer is not None and text.strip() else raw
    message = f"{provider} {what} failed: {status} {redact_line(said, secrets)}".rstrip()
    quota = quota_details(answer)
    wait_s = parse_retry_after(headers, text, now=time.time() if now is None else now, body_s=quota.wait_s)

    def stop(hint: str, code: str) -> ProviderStop:
        return ProviderStop(message, status=status, hint=hint, code=code)

    is_about_request = status in (400, 422)
    if _is_out_of_quota(status, words, wait_s, quota):
        way = "wait for the next day, " if quota.is_used_up else ""
        hint = (
            f"top up the {provider} account, {way}or set another memorySearch.model or memorySearch.provider"
        )
        return stop(f"{hint}, then run: memline index", "no_quota")
    allowance = quota.max_tokens
    if status == 429 and (match := _search("tokens_a_minute", words)):
        allowance = int(match[1]) * (1000 if match[2] else 1)
    # More than a minute's allowance, of tokens that may be twice as many as ours: waiting will not help.
    is_too_big = status == 429 and ("request too large" in words or sent_bytes / 4 > allowance / 2 > 0)
    if is_too_big or status == 413 or (status >= 500 and _search("cap_words_of_500", words)):
        return ProviderTooBig(message, status=status)
    is_rate_limit = (is_about_request or status == 403) and _search("rate", words)
    if status >= 500 or status in _LATER_STATUSES or is_rate_limit:
        # Half of what a minute allows: what else uses the key takes of it too.
        rows = max(quota.max_requests // 2, 1) if quota.max_requests else 0
        code = "rate_limit" if status == 429 or is_rate_limit else ""
        return ProviderLater(message, status=status, retry_after_s=wait_s, max_rows=rows, code=code)
    if status in (401, 403) or (is_about_request and _search("bad_key", words)):
        return stop(key_hint or f"check the {provider} API key", "bad_key")
    if not is_about_request:
        return stop(*_other_stop(provider, status, words, headers, secrets))
    if _search("bad_dims", words):
        hint = "change or remove memorySearch.outputDimensionality: the model does not support it"
        return stop(hint, "bad_dimensions")
    if _search("cap_words", words):
        return ProviderTooBig(message, status=status)
    if _search("bad_model", words):
        return stop(_MODEL_HINT, "bad_model")
    return ProviderRefused(message, status=status, code="refused_text")


def url_hint(provider: str) -> str:
    """Say what to do about an address where nothing speaks the protocol of this provider."""
    row = PROVIDERS.get(provider)
    ending = urlsplit(row.public_url).path if row else ""
    return f"check memorySearch.remote.baseUrl: it usually ends in {ending or '/v1'}"


#: Codes of stops that hold for every model of an account: its key, its credit, the way to it.
_OF_THE_ACCOUNT = ("bad_key", "no_quota", "proxy_unusable")


def is_of_account(error: ProviderError) -> bool:
    """Tell whether a stop holds for every model of an account."""
    # Without a status the provider was not asked: these settings lead to none.
    return error.status is None or error.code in _OF_THE_ACCOUNT


_MODEL_HINT = "set memorySearch.model to a model that this provider serves"


def _other_stop(
    provider: str, status: int, words: str, headers: Mapping[str, str], secrets: Iterable[str]
) -> tuple[str, str]:
    """Return what to do about a status that says no for good, and its code."""
    if 300 <= status < 400:
        target = redact_line(headers.get("location", "").split("?")[0], secrets)
        hint = f"redirects are not followed; set memorySearch.remote.baseUrl to the new address: {target}"
        return hint, "redirect"
    if status == 404 and "model" in words:
        return _MODEL_HINT, "bad_model"
    if status == 407:
        return "the proxy asks for a user and password: check HTTPS_PROXY", "proxy_unusable"
    return f"{url_hint(provider)}; check memorySearch.model too", "bad_address"


def _is_out_of_quota(status: int, words: str, wait_s: float | None, quota: QuotaDetails) -> bool:
    """Tell whether it is used up for good. Prose with a time to wait is a rate limit called a quota."""
    if status == 402:
        return True
    if not 400 <= status < 500 or quota.is_short:
        return False
    if quota.is_used_up or _search("quota_codes", words):
        return True
    return wait_s is None and _search("quota_words", words) is not None


#: A provider's words are near the top; below may be anything, and as deep as it likes.
MAX_DEPTH = 8


def _provider_texts(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value[:MAX_READ_CHARS]
    elif isinstance(value, list):
        for item in value:
            yield from _provider_texts(item, depth + 1)
    elif isinstance(value, dict):
        for name in _patterns()["text_keys"]:
            if name in value:
                yield from _provider_texts(value[name], depth + 1)


#: A week; a longer wait is nonsense in the answer, not a plan.
MAX_WAIT_S = 7 * 24 * 3600.0

_UNIT_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "milli": 0.001}

#: One part of "6m0s", "1.5s", "20 ms", "8 seconds".
_PART = r"(\d+(?:\.\d+)?)\s*(ms|milli|[dhms])(?:seconds?|ays?|ours?|in(?:ute)?s?|ec(?:ond)?s?)?(?![a-z])"
_IN_WORDS = rf"(?i)(?:try again|retry)\s+(?:in|after)\s+((?:{_PART}\s*)+)"

#: Voyage says no more to an account without a payment method: "reduced rate limits of 3 RPM and 10K TPM".
_REQUESTS_A_MINUTE = r"(?i)(?:limits?|rate) of ([1-9]\d*) (?:RPM|requests per minute)"

#: Pairs of headers: what is left, and when it is full again.
_BUCKETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)


def parse_retry_after(
    headers: Mapping[str, str], text: str, *, now: float, body_s: float | None = None
) -> float | None:
    """Return the seconds to wait, or None when the answer does not say. Names in `headers` are lower case.

    Tried in order: `retry-after-ms`, `retry-after` (seconds or an HTTP date), an exhausted
    `x-ratelimit-*` bucket, `body_s` (a field of the body), "try again in 6ms" or "3 RPM" in `text`.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    header = headers.get("retry-after", "").strip()
    date = _timestamp(header)
    resets = [
        seconds
        for remaining, reset in _BUCKETS
        if headers.get(remaining, "").strip() == "0" and (seconds := parse_duration(headers.get(reset, "")))
    ]
    words, rate = re.search(_IN_WORDS, text), re.search(_REQUESTS_A_MINUTE, text)
    waits = (
        None if milliseconds is None else milliseconds / 1000,
        _number(header),
        # By the clock of the server, when it tells its time.
        None if date is None else date - (_timestamp(headers.get("date", "")) or now),
        max(resets, default=None),
        body_s,
        parse_duration(words[1]) if words else None,
        60 / int(rate[1]) if rate else None,
    )
    wait_s = next((seconds for seconds in waits if seconds is not None), None)
    return None if wait_s is None else min(max(wait_s, 0.0), MAX_WAIT_S)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def parse_duration(text: str) -> float | None:
    """Return the seconds of "6m0s", "34.07s" or "20"; None when it is not a duration."""
    parts = re.findall(f"(?i){_PART}", text)
    if not parts:
        return _number(text)
    return float(sum(float(number) * _UNIT_S[unit.lower()] for number, unit in parts))


#: Seconds to wait for a quota of a minute when the answer does not say.
MINUTE_S = 60.0

_PER_DAY = r"(?i)per[ _]?day|daily"
_PER_MINUTE = r"(?i)per[ _]?(?:minute|second)"


#: What names a quota in the violations of a `QuotaFailure`, and in the metadata of an `ErrorInfo`.
_QUOTA_NAMES = ("quotaId", "quotaMetric", "description", "quota_limit", "quota_metric")


class QuotaDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a `google.rpc.Status` on a quota; the defaults are those of an answer without details.

    The message of a Gemini answer is the same for a quota of a minute and for one of a day, and a day's comes
    with a `retryDelay` of seconds all the same; only the name of the quota tells them apart.
    """

    #: `RetryInfo.retryDelay`, or a minute for a quota of a minute.
    wait_s: float | None = None
    #: The quota is one of a minute: it is full again by itself.
    is_short: bool = False
    #: The quota of the day is used up, or the key has none at all for this model (a limit of 0).
    is_used_up: bool = False
    #: Requests (each text is one) and tokens that a quota of a minute allows; 0: it does not say.
    max_requests: int = 0
    max_tokens: int = 0


def quota_details(answer: Any) -> QuotaDetails:
    """Read the details of an answer that may be a `google.rpc.Status`, alone or in a list."""
    wait_s: float | None = None
    is_short = is_used_up = False
    allowed = {"requests": 0, "tokens": 0}
    status = answer[0] if isinstance(answer, list) and answer else answer
    for detail in _maps(as_dict(as_dict(status).get("error")).get("details")):
        if "retryDelay" in detail:
            wait_s = parse_duration(str(detail["retryDelay"]))
        for violation in _maps([*_maps(detail.get("violations")), detail.get("metadata")]):
            words = " ".join(str(violation.get(name, "")) for name in _QUOTA_NAMES)
            limit = str(violation.get("quotaValue", violation.get("quota_limit_value")))
            is_used_up = is_used_up or limit == "0" or bool(re.search(_PER_DAY, words))
            if re.search(_PER_MINUTE, words):
                is_short = True
                if re.fullmatch(r"\d{1,9}", limit):
                    allowed["tokens" if "token" in words.lower() else "requests"] = int(limit)
    if is_short and wait_s is None:
        wait_s = MINUTE_S
    if is_used_up or not is_short:
        return QuotaDetails(wait_s=wait_s, is_used_up=is_used_up)
    most, tokens = allowed["requests"], allowed["tokens"]
    return QuotaDetails(wait_s=wait_s, is_short=True, max_requests=most, max_tokens=tokens)


def _maps(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in as_list(value) if isinstance(item, dict))


#: Longest piece of a provider's own words in one of our messages.
MAX_SHOWN_CHARS = 300

MASK = "***"

#: Shorter secrets are left: replacing every "key" or "1" would only garble the message.
MIN_SECRET_CHARS = 4

#: Keys as providers write them, also half masked as in "Incorrect API key provided: sk-ab***yz".
_KEY_SHAPES = (
    r"\b(?:sk|pk|rk|pa|gsk|hf|jina|key)[-_][\w*.-]{6,}"
    r"|\bAIza[\w-]{10,}|\bAQ\.[\w-]{10,}"
    r"|(?i:\b(?:bearer|basic)\s+)[\w.~+/=*-]{6,}"
    r"|(?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key=)|(?<=token=))[^&\s\"']+"
)


def redact_line(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask `secrets` and what looks like a key, make one line of it, then cut: no secret survives in part."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, MASK)
    line = " ".join(re.sub(_KEY_SHAPES, MASK, text).split())
    return line if len(line) <= MAX_SHOWN_CHARS else line[:MAX_SHOWN_CHARS].rstrip() + "…"
