from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.schema import Sessions
from shared.flush.threshold import flush_at, window_of


@pytest.mark.parametrize(
    ("window", "threshold"),
    [
        (200_000, 176_000),
        (128_000, 104_000),
        (32_768, 8_768),
        # The reserve of 20,000 would be more than the whole window; half of it, or 8,000, stays.
        (16_384, 4_000),
        (8_192, 2_048),
        (2, 1),
        (1, 0),
        (0, 0),
    ],
)
def test_a_session_is_flushed_before_the_reserve_of_its_window(window: int, threshold: int) -> None:
    assert flush_at(window, reserve_tokens=20_000, soft_tokens=4_000) == threshold


@given(st.integers(2, 2_000_000), st.integers(0, 2_000_000), st.integers(0, 2_000_000))
def test_the_threshold_lies_in_the_upper_part_of_what_the_reserve_leaves(
    window: int, reserve: int, soft: int
) -> None:
    threshold = flush_at(window, reserve_tokens=reserve, soft_tokens=soft)

    room = window - min(reserve, window - min(8_000, window // 2))
    assert room / 2 <= threshold <= room <= window


def test_the_window_is_that_of_the_model_then_of_the_session_then_the_default() -> None:
    sessions = Sessions(context_windows={"small": 16_384}, context_tokens=100_000)

    assert window_of(sessions, model="small", told=32_000) == 16_384
    assert window_of(sessions, model="other", told=32_000) == 32_000
    assert window_of(sessions, model="other", told=0) == 100_000


def test_the_same_model_may_have_another_window_at_another_provider() -> None:
    sessions = Sessions(context_windows={"qwen": 32_000, "here/qwen": 32_000, "there/qwen": 8_000})

    assert window_of(sessions, model="there/qwen", told=0) == 8_000
    assert window_of(sessions, model="elsewhere/qwen", told=0) == 32_000
