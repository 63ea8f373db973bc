from datetime import UTC, datetime

import pytest

from memline.shared.errors import BadRequest
from tests.support.clock import ManualClock
from tests.unit.search.conftest import ask

ALL = ("MEMORY.md", "memory/2026-02-10.md", "memory/work/2026-01-05-plan.md", "sessions/a.jsonl")
NOW = datetime(2026, 2, 28, tzinfo=UTC).timestamp()


def passing(notes, index, **options):
    """The files of the notes that are searched: all say the same."""
    hits = ask(index, "x", clock=ManualClock(NOW), **options).hits
    return {path for hit in hits for path in (hit.path, *hit.also_in)}


@pytest.fixture
def filled(notes):
    feb_1 = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
    notes.add("MEMORY.md", "x", mtime=feb_1)
    notes.add("memory/2026-02-10.md", "x", mtime=0)
    notes.add("memory/work/2026-01-05-plan.md", "x", mtime=feb_1)
    notes.add("sessions/a.jsonl", "x", source="sessions", mtime=feb_1)
    return notes


@pytest.mark.parametrize(
    ("glob", "paths"),
    [
        ("memory/*.md", {"memory/2026-02-10.md"}),
        ("memory/**", {"memory/2026-02-10.md", "memory/work/2026-01-05-plan.md"}),
        ("memory/", {"memory/2026-02-10.md", "memory/work/2026-01-05-plan.md"}),
        ("**/*.md", {"MEMORY.md", "memory/2026-02-10.md", "memory/work/2026-01-05-plan.md"}),
        ("*-plan.md", {"memory/work/2026-01-05-plan.md"}),
        ("memory/2026-02-1?.md", {"memory/2026-02-10.md"}),
        ("./MEMORY.md", {"MEMORY.md"}),
        ("[", set()),
    ],
)
def test_a_path_stays_within_a_folder_unless_it_says_otherwise(filled, index, glob, paths):
    assert passing(filled, index, path=glob) == paths
    assert passing(filled, index, exclude=glob) == {*ALL} - paths
    assert passing(filled, index, exclude=glob, path=glob) == set()


@pytest.mark.parametrize("glob", ["caf\u00e9.md", "cafe\u0301.md", "memory/c*\u00e9.md"])
def test_a_glob_means_a_name_in_any_form_of_its_letters(filled, index, glob):
    filled.add("memory/cafe\u0301.md", "x", mtime=0)

    assert passing(filled, index, path=glob) == {"memory/cafe\u0301.md"}


@pytest.mark.parametrize("path", ["memory/br[a].md", "memory/cr{a,b}.md", "/memory/plan [v2].md"])
def test_the_path_of_a_hit_means_that_file_also_with_brackets(filled, index, path):
    filled.add(path, "x", mtime=0)

    for named in (path, path.rpartition("/")[2]):
        assert passing(filled, index, path=named) == {path}
        assert passing(filled, index, exclude=named) == {*ALL}


@pytest.mark.parametrize(
    ("tag", "paths"),
    [
        ("boat", {"a.md", "b.md"}),
        (("#Boat",), {"a.md", "b.md"}),
        ("boat/dinghy", {"a.md"}),
        (("boat", "sail"), {"b.md"}),
        (("boat", "none"), set()),
        # A name that Logseq or YAML gave in brackets or quotes may have a comma.
        ("red, white", {"d.md"}),
        ("12", set()),
    ],
)
def test_a_tag_is_also_those_below_it_and_of_several_all_are_wanted(notes, index, tag, paths):
    tagged = (("a.md", "boat/dinghy"), ("b.md", "boat\nsail"), ("c.md", "boathouse"), ("d.md", "red,-white"))
    for path, tags in tagged:
        notes.add(path, "x", tags=tags)

    assert passing(notes, index, tag=tag) == paths


def test_the_day_in_the_name_wins_over_the_time_of_the_file(filled, index):
    assert passing(filled, index, since="2026-02-02") == {"memory/2026-02-10.md"}
    assert passing(filled, index, until="2026-01-31") == {"memory/work/2026-01-05-plan.md"}
    assert passing(filled, index, since="4w", until="2026-02-01") == {"MEMORY.md", "sessions/a.jsonl"}


def test_limits_are_read_in_words_and_end_with_the_last_of_their_days(filled, index):
    january = {"memory/work/2026-01-05-plan.md"}

    assert passing(filled, index, since="2026-02", until="2026-02") == {*ALL} - january
    assert passing(filled, index, since="last month", until="January 2026") == january
    with pytest.raises(BadRequest, match="since, 2026-02-02, is after until, 2026-02-01"):
        passing(filled, index, since="2026-02-02", until="2026-02-01")


def test_without_private_files_long_term_notes_and_conversations_are_left_out(filled, index):
    filled.add("memory/projects/MEMORY.md", "x")
    filled.add("/elsewhere/memory.md", "x")
    filled.add("/elsewhere/notes.md", "x")
    # Of a folder of `extraPaths` inside of the workspace.
    filled.add("team/Memory.md", "x")

    filled.add("memory/imported/claude/a.md", "x")

    found = passing(filled, index, private=False, since="1970-01-01")

    assert not {"MEMORY.md", "/elsewhere/memory.md", "team/Memory.md", "memory/imported/claude/a.md"} & found
    assert "memory/imported/claude/a.md" in passing(filled, index, since="1970-01-01")
    assert {"memory/projects/MEMORY.md", "/elsewhere/notes.md", "memory/2026-02-10.md"} <= found
