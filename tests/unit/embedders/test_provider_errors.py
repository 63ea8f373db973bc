"""Answers of real providers: the kind of error each is, the time to wait, and what of it is shown."""

import json
from email.utils import formatdate

import pytest

from memline.shared.embedders.provider_errors import (
    MAX_SHOWN_CHARS,
    MAX_WAIT_S,
    QuotaDetails,
    classify,
    is_of_account,
    parse_retry_after,
    quota_details,
    redact_line,
)
from memline.shared.errors import ProviderTooBig


def openai_error(message, code=""):
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}})


def google(message, status):
    return json.dumps({"error": {"code": 0, "message": message, "status": status}})


RATE = openai_error(
    "Rate limit reached for text-embedding-3-small in organization org-x on tokens per min (TPM): Limit "
    "1000000, Used 999000, Requested 20000. Please try again in 600ms. Visit https://platform.openai.com/"
    "account/rate-limits to learn more. You can increase your rate limit by adding a payment method to your "
    "account at https://platform.openai.com/account/billing.",
    "rate_limit_exceeded",
)
SPENT = "You exceeded your current quota, please check your plan and billing details."
QUOTA = openai_error(SPENT, "insufficient_quota")


#: It nests without end: only its status counts.
DEEP = "[" * 5000 + '"too many tokens"' + "]" * 5000
#: Google's for a limit of a minute, whatever its code is called.
MINUTE_QUOTA = [{"reason": "quota_exceeded"}, {"violations": [{"quotaId": "EmbedContentRequestsPerMinute"}]}]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        *((status, "", "later") for status in (408, 409, 424, 425, 429, 499, 529)),
        (429, RATE, "later"),
        (429, QUOTA, "stop"),
        (403, QUOTA, "stop"),
        (402, "Payment Required", "stop"),
        (
            429,
            '{"error":{"message":"Request too large for x on tokens per min: Limit 4, Requested 9"}}',
            "too_big",
        ),
        (400, '{"error":{"message":"litellm.RateLimitError: Rate limit exceeded"}}', "later"),
        (401, "nope", "stop"),
        (403, "<html>Forbidden</html>", "stop"),
        (400, '{"error":{"message":"API key not valid. Please pass a valid API key."}}', "stop"),
        (404, "404 page not found", "stop"),
        (404, '{"error":"model \\"x\\" not found, try pulling it first"}', "stop"),
        (400, openai_error("The model `x` does not exist or you do not have access to it."), "stop"),
        (400, openai_error("This model does not support specifying dimensions."), "stop"),
        (307, "", "stop"),
        (405, "", "stop"),
        (500, "oops", "later"),
        (503, "<html>cloudflare</html>", "later"),
        (400, openai_error("'$.input' is invalid."), "refused"),
        (422, '{"detail":"bad text"}', "refused"),
        (400, google("User location is not supported for the API use.", "FAILED_PRECONDITION"), "stop"),
        (400, google("API key expired. Please renew the API key.", "INVALID_ARGUMENT"), "stop"),
        (403, google("Your API key was reported as leaked.", "PERMISSION_DENIED"), "stop"),
        (404, google("models/x is not found for API version v1beta", "NOT_FOUND"), "stop"),
        (429, google("Resource has been exhausted (e.g. check quota).", "RESOURCE_EXHAUSTED"), "later"),
        (429, google("Your prepayment credits are depleted.", "RESOURCE_EXHAUSTED"), "stop"),
        (429, google("Your project has exceeded its monthly spending cap.", "RESOURCE_EXHAUSTED"), "stop"),
        (429, f"[{google('slow down', 'RESOURCE_EXHAUSTED')}]", "later"),
        (503, google("The model is overloaded.", "UNAVAILABLE"), "later"),
        (400, google("* EmbedContentRequest.content contains an empty Part.", "INVALID_ARGUMENT"), "refused"),
        (400, google("* Request.model: unexpected model name format", "INVALID_ARGUMENT"), "stop"),
        (400, google("Invalid value at 'output_dimensionality'", "INVALID_ARGUMENT"), "stop"),
        (400, google("Request payload size exceeds the limit: 36000 bytes.", "INVALID_ARGUMENT"), "too_big"),
        (401, '{"detail":"Provided API key is invalid."}', "stop"),
        (400, '{"detail":"Provided API key is invalid."}', "stop"),
        (400, '{"detail":"Model x is not supported. Supported models are [...]"}', "stop"),
        (400, '{"detail":"Input cannot contain empty strings or empty lists"}', "refused"),
        (413, "", "too_big"),
        (400, '{"error":"the input length exceeds the context length"}', "too_big"),
        (400, openai_error("the request exceeds the available context size, try increasing it"), "too_big"),
        (500, openai_error("the request exceeds the available context size, try increasing it"), "too_big"),
        (
            500,
            '{"error":{"message":"input is too large to process. increase the physical batch size"}}',
            "too_big",
        ),
        # A text that the answer quotes decides nothing.
        (
            422,
            json.dumps({"detail": [{"msg": "bad text", "input": "rate limit, too many tokens"}]}),
            "refused",
        ),
        (400, f'{{"error": {DEEP}}}', "refused"),
        (400, '{"error": [["too many tokens"]]}', "too_big"),
        (429, json.dumps({"error": {"message": "Quota exceeded", "details": MINUTE_QUOTA}}), "later"),
        (
            429,
            json.dumps({"error": {"message": "Quota exceeded", "details": MINUTE_QUOTA}}).replace(
                "Minute", "Day"
            ),
            "stop",
        ),
        (429, google(SPENT, "RESOURCE_EXHAUSTED"), "stop"),
    ],
)
def test_kind_of_an_answer(status, body, kind):
    assert classify("openai", status, {}, body).kind == kind


@pytest.mark.parametrize(
    ("status", "body", "code", "is_of_all_models"),
    [
        (401, "nope", "bad_key", True),
        (400, google("API key not valid.", "INVALID_ARGUMENT"), "bad_key", True),
        (429, QUOTA, "no_quota", True),
        (429, RATE, "rate_limit", False),
        (404, openai_error("The model `x` does not exist."), "bad_model", False),
        (404, "404 page not found", "bad_address", False),
        (307, "", "redirect", False),
        (407, "", "proxy_unusable", True),
        (400, openai_error("This model does not support specifying dimensions."), "bad_dimensions", False),
        (400, google("User location is not supported for the API use.", "X"), "no_country", True),
        (403, google("Generative Language API: it is disabled", "SERVICE_DISABLED"), "api_disabled", True),
        (422, '{"detail":"bad text"}', "refused_text", False),
    ],
)
def test_an_error_has_a_code_that_says_whether_all_models_of_the_account_are_meant(
    status, body, code, is_of_all_models
):
    error = classify("openai", status, {}, body)

    assert (error.code, is_of_account(error)) == (code, is_of_all_models)


@pytest.mark.parametrize(
    ("message", "rows", "tokens"),
    [
        ("embeddings api input limit exceeded: max 100, got 256", 100, 0),
        ("batch size is invalid, it should not be larger than 10.", 10, 0),
        ("input array max 16", 16, 0),
        (
            "Invalid 'input': array too long. Expected an array with maximum length 2048, but got an array "
            "with length 3000 instead.",
            2048,
            0,
        ),
        ("batch size 64 > maximum allowed batch size 32", 32, 0),
        ("The batch size limit is 1,000. Your batch size is 1200.", 1000, 0),
        ("at most 100 requests can be in one batch", 100, 0),
        ("invalid request: total number of texts must be at most 96, received 200 texts", 96, 0),
        ("List should have at most 96 items after validation, not 128", 96, 0),
        (
            "This model's maximum context length is 8192 tokens, however you requested 10000 tokens (10000 "
            "in your prompt; 0 for the completion). Please reduce your prompt.",
            0,
            8192,
        ),
        (
            "Invalid 'input': maximum request size is 300,000 tokens; requested 312,440, max 300,000 tokens",
            0,
            300000,
        ),
        ("Requested 312440 tokens, max 300000 tokens per request", 0, 300000),
        ("The max allowed tokens per submitted batch is 120000. Your batch has 150000 tokens.", 0, 120000),
        ("Validation: `inputs` must have less than 512 tokens. Given: 600", 0, 512),
        ("Too many tokens in batch. Max is 16384 got 17555", 0, 16384),
        (
            "The example at index 0 in your batch has too many tokens and does not fit into the model's "
            "context window of 32000 tokens. Please lower the number of tokens in the listed example(s).",
            0,
            0,
        ),
        ("max input length is 2048", 0, 0),
        ("Payload too large", 0, 0),
    ],
)
def test_caps_are_read_from_the_words(message, rows, tokens):
    error = classify("openai", 400, {}, openai_error(message))

    assert isinstance(error, ProviderTooBig)
    assert (error.max_rows, error.max_tokens) == (rows, tokens)


@pytest.mark.parametrize(
    ("provider", "status", "body", "words"),
    [
        ("openai", 401, "", "look in X"),
        ("openai", 429, QUOTA, "top up the openai account"),
        (
            "openai",
            404,
            openai_error("The model `x` does not exist.", "model_not_found"),
            "memorySearch.model",
        ),
        ("openai", 301, "", "https://new.example/v1"),
        ("openai", 404, "page not found", "ends in /v1;"),
        ("gemini", 404, "page not found", "ends in /v1beta"),
        (
            "gemini",
            403,
            google("Generative Language API has not been used in project 1 or it is disabled.", "DENIED"),
            "allow the gemini API",
        ),
    ],
)
def test_hints_say_what_to_do(provider, status, body, words):
    headers = {"location": "https://new.example/v1?token=abcdef"}

    hint = classify(provider, status, headers, body, key_hint="look in X").hint

    assert words in hint and "abcdef" not in hint


def test_the_message_has_the_words_of_the_provider_and_not_its_json():
    body = json.dumps({"error": {"message": "Incorrect API key", "type": "invalid_api_key"}})

    message = classify("openai", 401, {}, body).message

    assert message.startswith("openai embeddings failed: 401 Incorrect API key")
    assert "{" not in message


def test_an_allowance_of_a_minute_cuts_only_requests_that_are_above_it():
    body = '{"detail":"you have reduced rate limits of 3 RPM and 10K TPM"}'

    small = classify("voyage", 429, {}, body, sent_bytes=8_000)
    large = classify("voyage", 429, {}, body, sent_bytes=80_000)
    unknown = classify("voyage", 429, {}, body)

    assert (small.kind, small.retry_after_s) == ("later", 20)
    assert isinstance(large, ProviderTooBig)
    assert large.max_tokens == 5000
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
        ({}, "a rate of 120 requests per minute", 0.5),
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
        (status(violated(DAY), RETRY), QuotaDetails(wait_s=34.074824224, is_daily=True)),
        (status(violated(MINUTE, DAY)), QuotaDetails(wait_s=60, is_daily=True)),
        (status(violated(MINUTE, value="0")), QuotaDetails(wait_s=60, is_none=True)),
        (status({"violations": [{"description": "limit per day"}]}), QuotaDetails(is_daily=True)),
        (status(RETRY), QuotaDetails(wait_s=34.074824224)),
        (status({"retryDelay": "soon"}), QuotaDetails()),
        (status(error_info(MINUTE)), QuotaDetails(wait_s=60, is_short=True, max_requests=150)),
        (status(error_info(DAY)), QuotaDetails(is_daily=True)),
        (status(error_info(MINUTE, value="0")), QuotaDetails(wait_s=60, is_none=True)),
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


def test_a_secret_at_the_cut_does_not_survive_in_part():
    secret = "0123456789abcdef"
    text = "x" * (MAX_SHOWN_CHARS - 5) + secret

    assert "0123" not in redact_line(text, [secret])


@pytest.mark.parametrize(("quota", "kind", "wait_s"), [(MINUTE, "later", 60), (DAY, "stop", None)])
def test_a_quota_of_a_minute_in_an_error_info_is_a_rate_limit(quota, kind, wait_s):
    body = status(error_info(quota))
    body["error"]["message"] = SPENT

    error = classify("gemini", 429, {}, json.dumps(body))

    assert (error.kind, error.retry_after_s) == (kind, wait_s)
