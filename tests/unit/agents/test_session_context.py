"""What an agent reads when a session starts: which notes, in which order, within which budget."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memline.producers.agents.session_context import session_context
from memline.producers.chats import chat_of
from memline.shared.config.load import Options, load
from tests.support.clock import ManualClock

#: 2026-02-10, 23:30 in UTC: the next day in Berlin.
CLOCK = ManualClock(1_770_766_200.0)


@pytest.fixture
def workspace(tmp_path):
    workspace = tmp_path / "notes"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("# Facts\n\nWhole cents.\n")
    for day in ("2026-02-08", "2026-02-09", "2026-02-10", "2026-02-11"):
        (workspace / "memory" / f"{day}.md").write_text(f"- log of {day}\n")
    return workspace


def agent(workspace, **defaults):
    file = workspace.parent / "c.json5"
    defaults = {"workspace": str(workspace), "userTimezone": "UTC", **defaults}
    file.write_text(json.dumps({"agents": {"defaults": defaults}}))
    return load(Options(config=file)).agent()


def context(workspace, *, private=False, key="", max_chars=12_000, **defaults):
    return session_context(
        agent(workspace, **defaults), chat_of(key), is_private=private, clock=CLOCK, max_chars=max_chars
    )


def paths(found):
    return [part["path"] for part in found["parts"]]


def test_a_session_starts_with_the_logs_of_yesterday_and_today(workspace):
    found = context(workspace)

    assert paths(found) == ["memory/2026-02-09.md", "memory/2026-02-10.md"]
    assert found["text"] == (
        "<!-- memory/2026-02-09.md -->\n- log of 2026-02-09\n\n"
        "<!-- memory/2026-02-10.md -->\n- log of 2026-02-10"
    )
    assert (found["date"], found["truncated"]) == ("2026-02-10", False)


def test_the_long_term_note_is_for_private_sessions_alone(workspace):
    assert paths(context(workspace, private=True))[0] == "MEMORY.md"
    assert "MEMORY.md" not in paths(context(workspace))


@pytest.mark.parametrize(
    "key", ["agent:main:discord:group:1", "agent:main:slack:channel:1", "agent:main:subagent:7"]
)
def test_a_group_or_a_helper_of_one_is_never_private_whoever_says_so(workspace, key):
    found = context(workspace, private=True, key=key)

    assert (found["private"], "Whole cents" in found["text"]) == (False, False)


def test_the_day_is_the_one_of_the_users_time_zone(workspace):
    found = context(workspace, userTimezone="Europe/Berlin")

    assert paths(found) == ["memory/2026-02-10.md", "memory/2026-02-11.md"]


def test_of_a_long_log_the_end_is_kept_and_of_the_long_term_note_the_beginning(workspace):
    lines = [f"- entry {number}" for number in range(500)]
    (workspace / "MEMORY.md").write_text("\n".join(lines))
    (workspace / "memory" / "2026-02-10.md").write_text("\n".join(lines))

    found = context(workspace, private=True, max_chars=1_000)

    long_term, _, today = found["parts"]
    assert long_term["text"].startswith("- entry 0\n") and "[cut here: " in long_term["text"].splitlines()[-1]
    assert today["text"].endswith("- entry 499") and today["text"].startswith("[cut here: ")
    assert "memory_get memory/2026-02-10.md" in today["text"]
    assert (found["truncated"], long_term["truncated"], today["chars"]) == (True, True, len("\n".join(lines)))
    assert len(found["text"]) <= 1_000


def test_a_short_part_leaves_its_room_to_the_long_ones(workspace):
    (workspace / "memory" / "2026-02-10.md").write_text("x" * 5_000)

    found = context(workspace, max_chars=2_000)

    assert found["parts"][0]["truncated"] is False
    assert len(found["text"]) > 1_900


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes=st.tuples(*[st.integers(0, 400)] * 3), budget=st.integers(1, 1_500))
def test_the_budget_holds_whatever_the_notes_are(workspace, sizes, budget):
    for name, size in zip(("MEMORY.md", "memory/2026-02-09.md", "memory/2026-02-10.md"), sizes, strict=True):
        (workspace / name).write_text("word\n" * size)

    found = context(workspace, private=True, max_chars=budget)

    assert len(found["text"]) <= budget
