"""Answers of real providers, and the kind of error each of them is."""

from __future__ import annotations

import json

import pytest

from shared.embedders.classify import classify
from shared.errors import ProviderTooBig


def openai_error(message: str, code: str = "") -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}})


RATE = openai_error(
    "Rate limit reached for text-embedding-3-small in organization org-x on tokens per min (TPM): Limit "
    "1000000, Used 999000, Requested 20000. Please try again in 600ms. Visit https://platform.openai.com/"
    "account/rate-limits to learn more. You can increase your rate limit by adding a payment method to your "
    "account at https://platform.openai.com/account/billing.",
    "rate_limit_exceeded",
)
QUOTA = openai_error(
    "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"
)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, "", "later"),
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
        (408, "", "later"),
        (409, "", "later"),
        (425, "", "later"),
        (500, "oops", "later"),
        (503, "<html>cloudflare</html>", "later"),
        (529, "", "later"),
        (400, openai_error("'$.input' is invalid."), "refused"),
        (422, '{"detail":"bad text"}', "refused"),
        (413, "", "too_big"),
        (400, '{"error":"the input length exceeds the context length"}', "too_big"),
        (
            500,
            '{"error":{"message":"input is too large to process. increase the physical batch size"}}',
            "too_big",
        ),
    ],
)
def test_kind_of_an_answer(status: int, body: str, kind: str) -> None:
    assert classify("openai", status, {}, body).kind == kind


@pytest.mark.parametrize(
    ("message", "rows", "tokens"),
    [
        ("embeddings api input limit exceeded: max 100, got 256", 100, None),
        ("batch size is invalid, it should not be larger than 10.", 10, None),
        ("input array max 16", 16, None),
        (
            "Invalid 'input': array too long. Expected an array with maximum length 2048, but got an array "
            "with length 3000 instead.",
            2048,
            None,
        ),
        ("batch size 64 > maximum allowed batch size 32", 32, None),
        ("The batch size limit is 1,000. Your batch size is 1200.", 1000, None),
        ("at most 100 requests can be in one batch", 100, None),
        ("invalid request: total number of texts must be at most 96, received 200 texts", 96, None),
        ("List should have at most 96 items after validation, not 128", 96, None),
        (
            "This model's maximum context length is 8192 tokens, however you requested 10000 tokens (10000 "
            "in your prompt; 0 for the completion). Please reduce your prompt.",
            None,
            8192,
        ),
        (
            "Invalid 'input': maximum request size is 300,000 tokens; requested 312,440, max 300,000 tokens",
            None,
            300000,
        ),
        ("Requested 312440 tokens, max 300000 tokens per request", None, 300000),
        ("The max allowed tokens per submitted batch is 120000. Your batch has 150000 tokens.", None, 120000),
        ("Validation: `inputs` must have less than 512 tokens. Given: 600", None, 512),
        ("max input length is 2048", None, None),
        ("Payload too large", None, None),
    ],
)
def test_caps_are_read_from_the_words(message: str, rows: int | None, tokens: int | None) -> None:
    error = classify("openai", 400, {}, openai_error(message))

    assert isinstance(error, ProviderTooBig)
    assert (error.max_rows, error.max_tokens) == (rows, tokens)


def test_a_rate_limit_carries_the_time_to_wait() -> None:
    told = classify("openai", 429, {"Retry-After": "60"}, RATE)
    in_words = classify("openai", 429, {}, RATE)

    assert told.retry_after_s == 60
    assert in_words.retry_after_s == pytest.approx(0.6)


def test_a_quota_in_prose_with_a_time_to_wait_is_a_rate_limit() -> None:
    body = '{"error":{"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED"}}'

    assert classify("gemini", 429, {"retry-after": "30"}, body).kind == "later"
    assert classify("gemini", 429, {}, body).kind == "stop"


def test_a_text_quoted_by_the_answer_decides_nothing() -> None:
    body = json.dumps(
        {"detail": [{"msg": "bad text", "loc": ["body"], "input": "rate limit, too many tokens"}]}
    )

    assert classify("openai", 422, {}, body).kind == "refused"


def test_the_message_names_provider_status_and_body() -> None:
    error = classify("openai", 500, {}, "  it\n broke ")

    assert error.message == "openai embeddings failed: 500 it broke"
    assert error.status == 500


def test_hints_say_what_to_do() -> None:
    key = classify("openai", 401, {}, "", key_hint="look in X")
    quota = classify("openai", 429, {}, QUOTA)
    model = classify("openai", 404, {}, openai_error("The model `x` does not exist.", "model_not_found"))
    moved = classify("openai", 301, {"location": "https://new.example/v1?token=abcdef"}, "")

    assert key.hint == "look in X"
    assert "top up the openai account" in quota.hint
    assert "memorySearch.model" in model.hint
    assert "https://new.example/v1" in moved.hint
    assert "abcdef" not in moved.hint
