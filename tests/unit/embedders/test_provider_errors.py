"""Answers of real providers: the kind of error each is, the time to wait, and what of it is shown."""

import json
from email.utils import formatdate
from pathlib import Path

import pytest

from memline.shared.embedders.provider_errors import (
    MAX_WAIT_S,
    QuotaDetails,
    classify,
    is_of_account,
    parse_retry_after,
    quota_details,
    redact_line,
)

#: What providers answered: status and body, the kind of the error, and what else is known of it: its code,
#: and whether it is of all models of the account.
ANSWERS = json.loads((Path(__file__).parents[2] / "fixtures/provider_answers.json").read_text("utf-8"))

QUOTA = "You exceeded your current quota, please check your plan and billing details."


def classified(answer, provider="openai", **options):
    body = answer["body"]
    text = body if isinstance(body, str) else json.dumps(body)
    return classify(provider, answer["status"], answer.get("headers", {}), text, **options)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer['status']} {answer['body']}"[:60])
def test_what_an_answer_says(answer):
    error = classified(answer)

    seen = {
        "kind": error.kind,
        "code": error.code,
        "account": is_of_account(error),
    }
    assert answer == {**answer, **{name: seen[name] for name in seen if name in answer}}


def test_words_that_are_nested_without_end_are_not_read():
    deep = "[" * 5000 + '"too many tokens"' + "]" * 5000

    assert classify("openai", 400, {}, f'{{"error": {deep}}}').kind == "refused"


@pytest.mark.parametrize(("wait", "kind"), [({}, "stop"), ({"retry-after": "30"}, "later")])
def test_a_quota_in_prose_with_a_time_to_wait_is_a_rate_limit(wait, kind):
    body = {"error": {"message": QUOTA, "status": "RESOURCE_EXHAUSTED"}}

    assert classified({"status": 429, "body": body, "headers": wait}, "gemini").kind == kind


@pytest.mark.parametrize(
    ("provider", "status", "message", "words"),
    [
        ("openai", 401, "nope", "look in X"),
        ("openai", 429, QUOTA, "top up the openai account"),
        ("openai", 404, "The model `x` does not exist.", "memorySearch.model"),
        ("openai", 301, "moved", "https://new.example/v1"),
        ("openai", 404, "page not found", "ends in /v1;"),
        ("gemini", 404, "page not found", "ends in /v1beta"),
    ],
)
def test_hints_say_what_to_do(provider, status, message, words):
    headers = {"location": "https://new.example/v1?token=abcdef"}
    answer = {"status": status, "body": {"error": {"message": message}}, "headers": headers}

    error = classified(answer, provider, key_hint="look in X")

    assert words in error.hint and "abcdef" not in error.hint
    assert "{" not in error.message


def test_an_allowance_of_a_minute_cuts_only_requests_that_are_above_it():
    body = '{"detail":"you have reduced rate limits of 3 RPM and 10K TPM"}'

    small = classify("voyage", 429, {}, body, sent_bytes=8_000)
    large = classify("voyage", 429, {}, body, sent_bytes=80_000)
    unknown = classify("voyage", 429, {}, body)

    assert small.kind == "later"
    assert large.kind == "too_big"
    assert unknown.kind == "later"


NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("headers", "text", "expected"),
    [
        ({}, "", None),
        ({"retry-after": "60"}, "", 60),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"retry-after": "-3"}, "", 0),
        ({"retry-after": "1e12"}, "", MAX_WAIT_S),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, "", 90),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, "", 0),
        ({"retry-after-ms": "250", "retry-after": "60"}, "", 0.25),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        ({}, "Please try again in 20ms. Visit https://example.com", 0.02),
        ({}, "Please try again in 1h2m3.5s.", 3723.5),
        ({}, "Please retry after 8 seconds.", 8),
        ({}, "try again in 5 minutes", 300),
        ({}, "try again later", None),
        ({}, "reduced rate limits of 3 RPM and 10K TPM", 20),
        ({}, "rate limits of 0 RPM", None),
    ],
)
def test_the_time_to_wait_is_read_in_every_form(headers, text, expected):
    assert parse_retry_after(headers, text, now=NOW) == (
        None if expected is None else pytest.approx(expected)
    )


def test_a_field_of_the_body_counts_before_its_words_and_behind_the_headers():
    assert parse_retry_after({}, "try again in 5 s", now=NOW, body_s=34) == 34
    assert parse_retry_after({"retry-after": "7"}, "", now=NOW, body_s=34) == 7


def test_a_date_is_measured_by_the_clock_of_the_server():
    headers = {
        "date": formatdate(NOW - 3600, usegmt=True),
        "retry-after": formatdate(NOW - 3600 + 45, usegmt=True),
    }

    assert parse_retry_after(headers, "", now=NOW) == 45


RPC = "type.googleapis.com/google.rpc."
MINUTE = "EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier"
TOKENS = "EmbedContentInputTokensPerModelPerMinute-FreeTier"
DAY = "EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier"


def violated(*quotas, value="100"):
    return {
        "@type": RPC + "QuotaFailure",
        "violations": [{"quotaId": quota, "quotaValue": value} for quota in quotas],
    }


def status(*details):
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": list(details)}}


RETRY = {"@type": RPC + "RetryInfo", "retryDelay": "34.074824224s"}


def error_info(quota, value="150"):
    """The details that Google's gateway gives in place of a `QuotaFailure`."""
    return {
        "@type": RPC + "ErrorInfo",
        "reason": "RATE_LIMIT_EXCEEDED",
        "domain": "googleapis.com",
        "metadata": {"quota_limit": quota, "quota_limit_value": value},
    }


@pytest.mark.parametrize(
    ("answer", "details"),
    [
        (status(violated(MINUTE), RETRY), QuotaDetails(wait_s=34.074824224, is_short=True, max_requests=100)),
        (status(violated(MINUTE)), QuotaDetails(wait_s=60, is_short=True, max_requests=100)),
        ([status(violated(MINUTE))], QuotaDetails(wait_s=60, is_short=True, max_requests=100)),
        (status(violated(TOKENS)), QuotaDetails(wait_s=60, is_short=True, max_tokens=100)),
        (status(violated(MINUTE, value="many")), QuotaDetails(wait_s=60, is_short=True)),
        (status(violated(DAY), RETRY), QuotaDetails(wait_s=34.074824224, is_used_up=True)),
        (status(violated(MINUTE, DAY)), QuotaDetails(wait_s=60, is_used_up=True)),
        (status(violated(MINUTE, value="0")), QuotaDetails(wait_s=60, is_used_up=True)),
        (status({"violations": [{"description": "limit per day"}]}), QuotaDetails(is_used_up=True)),
        (status(RETRY), QuotaDetails(wait_s=34.074824224)),
        (status({"retryDelay": "soon"}), QuotaDetails()),
        (status(error_info(MINUTE)), QuotaDetails(wait_s=60, is_short=True, max_requests=150)),
        (status(error_info(DAY)), QuotaDetails(is_used_up=True)),
        (status(error_info(MINUTE, value="0")), QuotaDetails(wait_s=60, is_used_up=True)),
        (status({"metadata": "x"}), QuotaDetails()),
        # Of any other shape.
        *((answer, QuotaDetails()) for answer in (None, "x", [], [1], {}, {"error": "x"})),
        *(
            (answer, QuotaDetails())
            for answer in ({"error": {"details": "x"}}, status("x"), status({"violations": 1}))
        ),
    ],
)
def test_details_name_the_quota(answer, details):
    assert quota_details(answer) == details


@pytest.mark.parametrize(
    "text",
    [
        "key my-own-secret-value",
        "Incorrect API key provided: sk-proj-ab12*****wxyz.",
        "Authorization: Bearer abcdef123456",
        "https://example.com/v1?key=abcdef123456&x=1",
        "AIzaSyA1234567890abcdef",
        "AQ.SyA1234567890abcdef",
        "pa-SyA1234567890abcdef",
    ],
)
def test_keys_are_redacted(text):
    text_shown = redact_line(text, ["my-own-secret-value"])

    assert "***" in text_shown
    for part in ("my-own", "wxyz", "abcdef", "SyA123"):
        assert part not in text_shown
