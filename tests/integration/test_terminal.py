"""What a user sees of a search on a terminal, and what other programs get of it."""

import re
from pathlib import Path

import pytest

from tests.support.embedding_server import EmbeddingServer
from tests.support.pseudo_terminal import on_terminal, plain
from tests.support.workspace import note, remote, until

FILLER = "Nothing of interest was said about the weather, the lunch, and the plans for the summer."
NOTE = f"""---
title: Redis operations
---
# Caches

## Timeouts

{FILLER}

- {FILLER}
- the wombat timeout went from 200 ms to 500 ms, because the failover takes about 300 ms
- {FILLER}
- 記憶はとても長い一行で、端末の幅で折り返されなければならないので、まだまだ続きます、どこまでも。

{FILLER}
"""

pytestmark = pytest.mark.place(files={"memory/cache.md": NOTE}, is_indexed=True)


def test_a_hit_is_a_citation_and_the_lines_that_it_cites(place):
    with on_terminal(*place.arguments("search", "wombat", "timeout")) as terminal:
        assert terminal.end() == 0

    first, heading, *lines = plain(terminal.shown).rstrip().split("\n")
    assert first.endswith("memory/cache.md#L4-L15  (text 1.00)")
    assert heading == "    Redis operations"
    assert {line.strip() for line in lines} <= {line.strip() for line in NOTE.splitlines()}
    assert "the wombat timeout went from" in plain(terminal.shown)
    assert terminal.shown.count("\x1b[33m\x1b[1mwombat\x1b[0m") == 1
    assert "\x1b[33m\x1b[1mtimeout\x1b[0m" in terminal.shown


def test_scores_of_vectors_are_shown_where_there_are_vectors(place):
    with EmbeddingServer() as server:
        place.configure(**remote(server.url))
        place.index()

        assert "(vector " in place.call("search", "wombat").stdout


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"FORCE_COLOR": "0"}, False)],
    ids=str,
)
@pytest.mark.parametrize("command", ["search", "doctor"])
def test_colours_are_switched_off_by_the_environment(place, command, variables, is_coloured):
    args = (command, "wombat")[: 1 + (command == "search")]

    with on_terminal(*place.arguments(*args), env=variables) as terminal:
        assert terminal.end() == 0

    assert ("\x1b[" in terminal.shown) == is_coloured


@pytest.mark.parametrize("args", [("search", "wombat"), ("doctor",)], ids=" ".join)
def test_force_color_colours_a_pipe(place, args):
    assert "\x1b[" not in place.call(*args).stdout
    assert "\x1b[" in place.call(*args, env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[" not in place.call(*args, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_other_programs_get_json_paths_and_places(place):
    place.write("memory/b.md", "# Other\n\nA wombat.\n")
    file = place.workspace / "memory/cache.md"

    whole = place.call("search", "wombat", "--format", "json").json
    files = place.call("search", "wombat", "-n", "1", "--format", "files").stdout.splitlines()
    places = place.call("search", "wombat", "--format", "vimgrep").stdout.splitlines()

    assert len(places) == len(whole["results"]) == 2
    hit = next(each for each in whole["results"] if each["path"] == "memory/cache.md")
    assert (hit["heading"], hit["matched"]) == ("Redis operations", ["wombat"])
    assert (len(files), Path(files[0]).is_file()) == (1, True)
    (place_of_hit,) = (line for line in places if line.startswith(f"{file}:"))
    assert place_of_hit.startswith(f"{file}:11:7:- the wombat timeout went from 200 ms")
    assert place.call("search", "wombat", "--json", "--format", "files").status == 2


@pytest.mark.parametrize("mark", ["\f", "\v", "\u2028", "\x85", "\x1c"])
def test_a_place_counts_the_lines_that_editors_count(place, mark):
    file = place.write("memory/b.md", f"# Other\n\none{mark}two{mark}three\n\nsaid{mark}the numbat\n")

    (found,) = place.call("search", "numbat", "--format", "vimgrep").stdout.removesuffix("\n").split("\n")

    assert found.startswith(f"{file}:5:")
    assert place.call("get", "memory/b.md:5").stdout == f"said{mark}the numbat\n"


def test_nothing_found_is_nothing_for_other_programs(place):
    ran = place.call("search", "plughxyz", "--format", "files")

    assert (ran.status, ran.stdout) == (0, "")
    assert "nothing in the notes matches" in ran.stderr


def test_ctrl_c_ends_a_run_in_one_line_that_says_what_is_kept(place):
    with EmbeddingServer() as server:
        server.control({"fault": "hang"})
        place.configure(**remote(server.url))

        with on_terminal(*place.arguments("index")) as terminal:
            until(lambda: len(server.requests) > 0, "the request")
            terminal.interrupt()
            status = terminal.end()

    assert status == 130
    assert "Traceback" not in terminal.shown
    assert terminal.shown.endswith(
        "\r\nInterrupted: what is indexed is kept, memline index goes on from there.\r\n"
    )


def test_progress_fits_its_terminal(place):
    place.write("memory/more.md", note(1))
    with EmbeddingServer() as server:
        server.control({"fault": "429"})
        place.configure(**remote(server.url))

        with on_terminal(*place.arguments("index"), columns=30) as terminal:
            shown = terminal.until(
                lambda shown: "embeddings failed" in shown and "main: 1/1 files" in shown, "why it waits"
            )
            terminal.interrupt()
            assert terminal.end() == 130

    rows = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown))
    assert max(len(row) for row in rows if re.match(r"main: \d+/", row)) < 30
    assert any(re.search(r"main: 1/1 files, 0/\d+ vectors", row) for row in rows), rows


def test_watching_a_queue_goes_on_while_redis_is_away(place):
    away = {"MEMLINE_QUEUE_URL": "redis://127.0.0.1:9/0"}
    with on_terminal(*place.arguments("queue", "--watch"), env=away) as terminal:
        terminal.until(lambda shown: shown.count("cannot be reached") >= 2, "a second look")
        terminal.interrupt()

        assert terminal.end() == 130
