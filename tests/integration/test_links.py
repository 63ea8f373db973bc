"""Notes that link to each other, on every face: what a note is linked with, and which links lead nowhere."""

import json
import shutil

import pytest

from memline.producers.api.calls import Caller, Calls
from memline.producers.memory import Memory

FILES = {
    "MEMORY.md": "# Long term\n\nThe [[deploy plan]] holds.\n",
    "memory/plan.md": "---\ntitle: Deploy plan\n---\n[[steps|Steps]] of [[people]]: [log](2026-02-10.md).\n",
    "memory/steps.md": "# Steps\n\nOf the [plan](plan.md). Not `[[code]]`.\n\n- but [[No such note#x]]\n",
    "memory/people.md": "---\naliases: [staff]\n---\n# People\n\nAsk for the plan.\n",
    "memory/2026-02-10.md": "We began.\n",
    "memory/2026-02-11.md": "Nobody links here. [Gone](../old/gone.md), [script](../deploy.sh.md)\n",
    "memory/lonely.md": "# Lonely\n",
    "deploy.sh.md": "It is there, and not a memory file.\n",
}

pytestmark = pytest.mark.place(files=FILES)

DEAD = ["memory/2026-02-11.md:1: dead link: ../old/gone.md", "memory/steps.md:5: dead link: No such note"]


def test_get_says_what_the_whole_note_links_to_and_what_links_to_it(place):
    place.index()

    ran = place.call("get", "memory/plan.md#L4", "--json")

    found = json.loads(ran.stdout)
    assert found["links"] == [
        {"path": "memory/steps.md", "title": "Steps"},
        {"path": "memory/people.md", "title": "People"},
        {"path": "memory/2026-02-10.md", "title": "2026-02-10"},
    ]
    assert found["backlinks"] == [
        {"path": "MEMORY.md", "title": "Long term"},
        {"path": "memory/steps.md", "title": "Steps"},
    ]
    assert (found["totalLinks"], found["totalBacklinks"]) == (3, 2)


def test_a_group_learns_nothing_of_the_long_term_note(place):
    place.index()
    tools = Calls(place.settings, (place.agent.agent,))
    owner = Caller(agent=place.agent.agent)
    group = Caller(agent=place.agent.agent, session_key=f"agent:{place.agent.agent}:discord:group:1")

    seen = [tools.get(each, path="memory/plan.md") for each in (owner, group)]
    tools.close()

    assert [each["totalBacklinks"] for each in seen] == [2, 1]
    assert [each["path"] for each in seen[1]["backlinks"]] == ["memory/steps.md"]


def test_a_note_keeps_its_links_when_it_moves_and_when_links_are_renamed_with_it(place):
    place.index()
    (place.workspace / "memory/work").mkdir()
    shutil.move(place.workspace / "memory/plan.md", place.workspace / "memory/work/plan.md")
    place.index()
    with Memory.of(place.settings, place.agent) as memory:
        moved = memory.get("memory/work/plan.md")

    shutil.move(place.workspace / "memory/work/plan.md", place.workspace / "memory/work/rollout.md")
    place.write("memory/steps.md", "# Steps\n\nOf the [plan](work/rollout.md).\n")
    place.index()
    with Memory.of(place.settings, place.agent) as memory:
        renamed = memory.get("rollout")

    linked = ["memory/steps.md", "memory/people.md", "memory/2026-02-10.md"]
    for excerpt in (moved, renamed):
        assert [each.path for each in excerpt.links] == linked
        assert [each.path for each in excerpt.backlinks] == ["MEMORY.md", "memory/steps.md"]


def test_lint_names_dead_links_and_ends_with_1(place, monkeypatch):
    """Without an index it makes one first, as a search does."""
    monkeypatch.chdir(place.workspace)

    ran = place.call("lint")
    as_json = json.loads(place.call("lint", "--json").stdout)

    assert (ran.status, ran.stdout.splitlines()) == (1, [*DEAD])
    assert as_json["deadLinks"] == [
        {"path": "memory/2026-02-11.md", "line": 1, "target": "../old/gone.md"},
        {"path": "memory/steps.md", "line": 5, "target": "No such note"},
    ]


def test_an_editor_finds_what_lint_names_from_another_folder(place):
    ran = place.run("lint")

    assert ran.stdout.splitlines() == [f"{place.workspace}/{line}" for line in DEAD]


def test_lint_says_nothing_and_ends_with_0_when_all_is_mended(place):
    place.index()
    place.write("memory/no such note.md", "Back to [[steps]].\n")
    place.write("memory/2026-02-11.md", "[[lonely]]\n")

    ran = place.call("lint")

    assert (ran.status, ran.stdout) == (0, "")
