"""When a session is flushed, and what of an entry is new in its note."""

import json

import pytest

from memline.shared.config.schema import Compaction
from memline.shared.flush.flush import new_lines, threshold_in, tokens_in


@pytest.mark.parametrize(("window", "threshold"), [(200_000, 176_000), (16_384, 4_000), (0, 0)])
def test_the_reserve_and_the_soft_threshold_leave_room_in_a_small_window(window, threshold):
    assert threshold_in(Compaction(), window) == threshold


def line(role, text, **more):
    return json.dumps({"type": "message", "message": {"role": role, "content": text, **more}}).encode()


USAGE = {"input": 900, "output": 60, "cacheRead": 40}


def test_the_last_count_of_the_provider_and_an_estimate_of_what_came_after_it():
    lines = [
        line("user", "u " * 9_000),
        line("assistant", "a" * 40, usage=USAGE, provider="openai", model="m"),
        line("toolResult", "r " * 2_000),
        line("assistant", [{"type": "thinking", "thinking": "t " * 2_000, "signature": "s" * 40_000}]),
    ]

    tokens, model = tokens_in(lines)

    assert 1_000 + 2_000 <= tokens <= 1_000 + 2_150 and model == "openai/m"
    # An answer that was broken off has no usable count.
    assert tokens_in([line("assistant", "a" * 40, usage=USAGE, stopReason="error")])[0] < 100


@pytest.mark.parametrize(
    ("note", "entry", "added"),
    [
        ("", "## S\n- Ada moves to Oslo\n- Tea", "## S\n- Ada moves to Oslo\n- Tea"),
        ("## S\n- Ada moves to Oslo\n", "## S\n* ada  moves to Oslo\n- Rent is due", "\n## S\n- Rent is due"),
        ("- Rent is due\n", "## S\n\n- Rent is due", ""),
        (
            "- Rent\n  - status: done\n",
            "- Rent\n  - status: done\n- Car\n  - status: done",
            "\n- Car\n  - status: done",
        ),
        ("ls\n", "- a\n```sh\nls\n\nls\n```\n- b", "\n- a\n```sh\nls\n\nls\n```\n- b"),
        *(("", entry, "") for entry in ("", "\n\n", "# Heading", "- \n* \n---", "```\n```")),
    ],
)
def test_of_an_entry_the_note_gets_the_items_that_it_does_not_have(note, entry, added):
    assert new_lines(note, entry) == added
