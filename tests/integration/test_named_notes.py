"""Front matter counts: titles, aliases, tags and days are found, and a note is read by its title."""

import pytest

from memline.producers.api.calls import Caller, Calls
from memline.producers.memory import Memory
from memline.shared.errors import BadRequest, PathNotAllowed
from memline.shared.sources.reading import MAX_CHARS
from tests.support.workspace import paths

PLAN = """---
title: Deploy Plan
aliases: [rollout, Grosser Plan]
tags: [ops/k8s, quarterly]
date: 2026-02-10
---
# Steps

Ask [[Ada Lovelace|Ada]] before [[cutover_window]].
"""

FILES = {
    "projects/p1.md": PLAN,
    "journals/2026_03_02.md": "- Lunch with the auditors.\n",
    "20260415 retro.md": "We were late.\n",
    "old/untitled.md": "---\ncreated: 2019-05-06\n---\nThe auditors again.\n",
}

pytestmark = pytest.mark.place(files=FILES, is_indexed=True)


@pytest.mark.parametrize(
    "question",
    [
        *("rollout", "grosser plan", "quarterly", "k8s", "Deploy Plan", "ada lovelace", "cutover window"),
        "[[Ada Lovelace]]",
    ],
)
def test_what_a_note_says_of_itself_and_links_to_is_found(place, question):
    assert paths(place.search(question))[:1] == ["projects/p1.md"]


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        ("2026-02-10", "2026-02-10", ["projects/p1.md"]),
        ("2026-03-01", "2026-03-31", ["journals/2026_03_02.md"]),
        ("2026-04-15", "2026-04-15", ["20260415 retro.md"]),
        ("2019-01-01", "2019-12-31", ["old/untitled.md"]),
    ],
)
def test_days_of_names_and_of_front_matter_limit_a_search(place, since, until, found):
    answer = place.search("auditors late steps", since=since, until=until)

    assert paths(answer) == found


def test_a_day_of_the_front_matter_makes_a_note_fade(place):
    (before, *_) = [hit.score for hit in place.search("auditors").hits if hit.path == "old/untitled.md"]
    place.configure(query={"hybrid": {"temporalDecay": {"enabled": True}}})

    (after, *_) = [hit.score for hit in place.search("auditors").hits if hit.path == "old/untitled.md"]

    assert after < before


def test_a_note_that_was_just_saved_is_read_by_its_name(place):
    place.write("walk.md", "# Harbour walk\n\nAlong the pier.\n")

    ran = place.call("get", "harbour walk")
    beyond = place.call("get", "walk.md#L90")

    assert (ran.status, ran.stdout) == (0, "# Harbour walk\n\nAlong the pier.\n")
    assert (beyond.status, beyond.stdout.strip()) == (1, "")
    assert "no line 90" in beyond.stderr


def test_a_line_that_is_longer_than_an_answer_is_said_to_be_cut(place):
    place.write("walk.md", f"# Walk\n\n{'x' * MAX_CHARS}y\nend\n")

    said = place.call("get", "walk.md:3").stderr
    # The command works in any folder.
    assert said.startswith("[line 3 is longer, and cut here: memline --")
    assert said.endswith(f" get 'walk.md#L3C{MAX_CHARS + 1}']\n[more: --from 4]\n")
    beyond = place.call("get", "walk.md#L4C99")
    assert (beyond.status, beyond.stdout) == (1, "")
    assert beyond.stderr == "Error: line 4 of walk.md is shorter than that\n"
    assert place.call("get", "walk.md:4").stderr == ""
    cut = place.call("get", "walk.md:3", "--json").json
    assert cut["cut"] is cut["truncated"] is True
    rest = place.call("get", cut["rest"], "--json").json
    assert (rest["text"], rest["cut"], rest["truncated"]) == ("y", False, False)
    place.write("walk.md", f"{'x' * MAX_CHARS}\nend\n")
    assert place.call("get", "walk.md").stderr == "[more: --from 2]\n", "a line that just fits is whole"


def test_a_note_is_read_by_its_title(place):
    place.write("other.md", "---\ntitle: Twin\n---\n")
    place.write("another.md", "---\naliases: [twin]\n---\n")
    place.index()
    with Memory.of(place.settings, place.agent) as memory:
        for name in (
            "Deploy Plan",
            "rollout",
            "Deploy Plan#L8",
            "[[deploy plan#Steps|it]]",
            "[it](projects/p1.md)",
        ):
            assert memory.get(name).path == "projects/p1.md"
        assert memory.get("Deploy Plan#L9", lines=1).text.startswith("Ask [[Ada")
        assert memory.get("untitled").path == "old/untitled.md"
        assert memory.get("gone.md").status == "not_found"
        with pytest.raises(BadRequest, match=r"another\.md, other\.md"):
            memory.get("Twin")
        with pytest.raises(PathNotAllowed):
            memory.get("No Such Title")


@pytest.mark.parametrize(
    ("name", "path", "first"),
    [
        ("projects/p1.md", "projects/p1.md", 1),
        ("PROJECTS/P1.MD", "projects/p1.md", 1),
        ("projects/p1", "projects/p1.md", 1),
        ("projects/p1.md#l8-l9", "projects/p1.md", 8),
        ("projects/p1.md:8:5:text: of it", "projects/p1.md", 8),
        ("0.913 projects/p1.md#L8-L9  (text 1.00)", "projects/p1.md", 8),
        ("P1", "projects/p1.md", 1),
        ("deploy plan.md", "projects/p1.md", 1),
        ("breakfast", "Notes/At 10:30.md", 1),
        ("20260415 Retro", "20260415 retro.md", 1),
        ("notes/at 10:30", "Notes/At 10:30.md", 1),
    ],
)
def test_a_note_is_read_by_whatever_names_it_in_any_case(place, name, path, first):
    place.write("Notes/At 10:30.md", "# Breakfast\n\nWe met.\n")
    place.index()

    with Memory.of(place.settings, place.agent) as memory:
        excerpt = memory.get(name)
        answer = Calls(place.settings, (place.agent.agent,)).get(Caller(agent=place.agent.agent), path=name)

    assert (excerpt.path, excerpt.first, excerpt.status) == (path, first, "ok")
    assert answer == excerpt.to_json()


def test_a_name_of_several_notes_lists_them_and_a_path_chooses(place):
    for number in range(12):
        place.write(f"{number:02}/Twin.md", "x\n")
    place.index()
    tools = Calls(place.settings, (place.agent.agent,))
    group = Caller(agent=place.agent.agent, session_key=f"agent:{place.agent.agent}:discord:group:1")

    with Memory.of(place.settings, place.agent) as memory, pytest.raises(BadRequest) as caught:
        memory.get("twin")
    refused = tools.get(group, paths=["twin", "07/twin", "triplet"])["excerpts"]

    assert caught.value.message.startswith("several notes have this name: 00/Twin.md, 01/Twin.md, ")
    assert caught.value.message.endswith("09/Twin.md and 2 more")
    assert refused[0]["error"] == caught.value.message
    assert (refused[1]["path"], refused[1]["status"]) == ("07/Twin.md", "ok")
    assert refused[2]["status"] == "refused"
    tools.close()
