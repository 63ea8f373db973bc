"""Which names are memory: notes, globs of `extraPaths`, transcripts."""

import os
import time
from pathlib import Path

import pytest

from memline.shared.config.schema import ExtraPath
from memline.shared.sources.paths import (
    MemoryPaths,
    Pattern,
    is_transcript_name,
    source_of,
)

SCOPE = MemoryPaths(
    Path("/ws"),
    [
        ExtraPath(path="docs"),
        ExtraPath(path="/vault", pattern="notes/**/*.{md,markdown}"),
        ExtraPath(path="~/log.md"),
        ExtraPath(path="../other/.hidden"),
    ],
)


MEMORY = """
MEMORY.md memory.md MEMORY.MD memory/a.md memory/x/y/a.md memory/.private.md memory/日本.md memory/README.MD
memory/a.mdx docs/a.md docs/report.Qmd docs/x/old.mkd /vault/notes/x/a.markdown /other/.hidden/a.md
"""


@pytest.mark.parametrize("path", MEMORY.split())
def test_memory_files_are_located_by_their_path(path):
    located = SCOPE.locate(path)

    assert located is not None
    assert located.path == path
    assert located.absolute == os.path.join("/ws", path)


@pytest.mark.parametrize(
    ("path", "known_as"),
    [
        ("./memory/a.md", "memory/a.md"),
        ("memory//x/../a.md", "memory/a.md"),
        ("/ws/memory/a.md", "memory/a.md"),
        ("../vault/notes/a.md", "/vault/notes/a.md"),
    ],
)
def test_other_spellings_lead_to_the_same_file(path, known_as):
    located = SCOPE.locate(path)

    assert located is not None
    assert located.path == known_as


ELSE = """
README.md memory memory/a.txt memory/a.markdown.txt memory/../secret.md ../ws2/memory/a.md /etc/passwd
memory/.git/a.md memory/node_modules/p/README.md memory/._a.md memory/.#a.md /vault/a.md
/vault/notes/.obsidian/a.md docs-private/a.md /other/a.md
"""


@pytest.mark.parametrize("path", ["", "memory/a.md\0.txt", "memory/\udcff.md", *ELSE.split()])
def test_everything_else_is_not_memory(path):
    assert SCOPE.locate(path) is None


@pytest.mark.parametrize(
    ("path", "anchor"),
    [
        ("memory/a.md", "/ws"),
        ("docs/a.md", "/ws"),
        ("/vault/notes/a.md", "/"),
        ("/other/.hidden/a.md", "/other"),
    ],
)
def test_the_trusted_folder_is_the_one_above_what_is_named(path, anchor):
    located = SCOPE.locate(path)

    assert located is not None
    assert located.anchor == anchor


@pytest.mark.parametrize(
    ("folder", "concerns"),
    [
        ("/ws", True),
        ("/ws/memory", True),
        ("/ws/memory/x", True),
        ("/ws/memory/.git", False),
        ("/ws/memory/.git/objects", False),
        ("/ws/src", False),
        ("/vault", True),
        ("/", True),
        ("/other", True),
        ("/other/.hidden/x", True),
    ],
)
def test_folders_that_can_change_the_memory(folder, concerns):
    assert SCOPE.concerns_folder(folder) is concerns


TRANSCRIPTS = """
083d379f-f105-59a4-a278-e9c0ac7b7f85.jsonl abc-topic-12.jsonl a.b.jsonl réunion.jsonl
abc.jsonl.reset.2026-02-10T10-00-00.000Z abc.jsonl.deleted.2026-02-10T10-00-00.000Z
"""


@pytest.mark.parametrize("name", TRANSCRIPTS.split())
def test_transcripts_and_their_archives_are_known_by_name(name):
    assert is_transcript_name(name)
    assert source_of(f"sessions/{name}") == "sessions"


NO_TRANSCRIPTS = """
sessions.json abc.jsonl.bak abc.jsonl.reset.2026-02-10T10-00-00.000Z.bak.1 abc.jsonl.bak-123-456
abc.jsonl.bak.2026-02-10T10-00-00.000Z abc.jsonl.lock abc.jsonl.tmp abc.jsonl.reset.2026-02-10.md
abc.jsonl.reset.2026-02-10T10-00-00.000Z.gz abc.jsonl.reset. abc.trajectory.jsonl abc.bak.jsonl .abc.jsonl
abc.checkpoint.083d379f-f105-59a4-a278-e9c0ac7b7f85.jsonl .jsonl abc.JSONL abc.jsonl.resets.1 notes.md
"""


@pytest.mark.parametrize("name", ["", *NO_TRANSCRIPTS.split()])
def test_backups_checkpoints_locks_and_other_files_are_not_transcripts(name):
    assert not is_transcript_name(name)
    assert source_of(f"sessions/{name}") == "memory"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("**/*.md", "a.txt", False),
        ("*.md", "a.md", True),
        ("*.md", "x/a.md", False),
        ("./notes/*.md", "notes/a.md", True),
        ("/notes/*.md", "notes/a.md", True),
        ("notes/**", "notes/x/a.md", True),
        ("notes/**", "notes", False),
        ("notes/", "notes/x/a.md", True),
        ("**/decisions/**/*.md", "a/decisions/b/c.md", True),
        ("**/decisions/**/*.md", "decisions/c.md", True),
        ("**/**/**/*.md", "c.md", True),
        ("202?-*.md", "2026-02-10.md", True),
        ("202?-*.md", "2026/02-10.md", False),
        ("[ab]*.md", "b1.md", True),
        ("[!ab]*.md", "b1.md", False),
        ("[!ab]*.md", "c1.md", True),
        ("[.md", "[.md", True),
        ("[z-a].md", "a.md", False),
        ("[.-0]x", "/x", False),
        ("*.{md,markdown}", "a.markdown", True),
        ("{a,b}/{c,d}.md", "b/d.md", True),
        ("{a,b}/{c,d}.md", "b/e.md", False),
        ("a+b(1).md", "a+b(1).md", True),
        ("a.md", "aXmd", False),
        ("**", "a/b.md", True),
        ("日本/*.md", "日本/会議.md", True),
        ("*.md", "new\nline.md", True),
    ],
)
def test_a_pattern_matches_like_a_shell(pattern, path, matches):
    assert Pattern(pattern).matches(path) is matches


def test_hostile_patterns_are_harmless():
    before = time.process_time()

    assert not Pattern("{" + ",".join("ab") * 50 + "}" * 50).matches("x.md")
    assert not Pattern("*" * 200 + "x").matches("a" * 200)
    assert not Pattern("**/" * 30 + "x").matches("a/" * 60 + "y")
    assert not Pattern("{a,b}" * 20).matches("x")
    assert not Pattern("?*" * 20 + "*z").matches("a" * 200)
    assert not Pattern("**/" + "*a" * 30).matches("a" * 200 + "b")

    # Alone 0.01 s; one that tries every way takes hours.
    assert time.process_time() - before < 10
