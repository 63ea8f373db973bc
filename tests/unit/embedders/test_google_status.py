"""Quotas of a minute, of a day, and of nothing: told apart by the details alone."""

from __future__ import annotations

from typing import Any

import pytest

from shared.embedders.google_status import QuotaDetails, quota_details

RPC = "type.googleapis.com/google.rpc."
MINUTE = "EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier"
DAY = "EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier"


def violated(*quotas: str, value: str = "100") -> dict[str, Any]:
    return {
        "@type": RPC + "QuotaFailure",
        "violations": [{"quotaId": quota, "quotaValue": value} for quota in quotas],
    }


def status(*details: Any) -> dict[str, Any]:
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": list(details)}}


RETRY = {"@type": RPC + "RetryInfo", "retryDelay": "34.074824224s"}


@pytest.mark.parametrize(
    ("answer", "details"),
    [
        (status(violated(MINUTE), RETRY), QuotaDetails(wait_s=34.074824224, is_short=True)),
        (status(violated(MINUTE)), QuotaDetails(wait_s=60, is_short=True)),
        ([status(violated(MINUTE))], QuotaDetails(wait_s=60, is_short=True)),
        (status(violated(DAY), RETRY), QuotaDetails(wait_s=34.074824224, is_daily=True)),
        (status(violated(MINUTE, DAY)), QuotaDetails(wait_s=60, is_daily=True)),
        (status(violated(MINUTE, value="0")), QuotaDetails(wait_s=60, is_none=True)),
        (status({"violations": [{"description": "limit per day"}]}), QuotaDetails(is_daily=True)),
        (status(RETRY), QuotaDetails(wait_s=34.074824224)),
        (status({"retryDelay": "soon"}), QuotaDetails()),
    ],
)
def test_details_say_which_quota_it_was(answer: Any, details: QuotaDetails) -> None:
    assert quota_details(answer) == details


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "x",
        [],
        [1],
        {},
        {"error": "x"},
        {"error": {"details": "x"}},
        status("x"),
        status({"violations": 1}),
    ],
)
def test_an_answer_of_any_other_shape_says_nothing(answer: Any) -> None:
    assert quota_details(answer) == QuotaDetails()
