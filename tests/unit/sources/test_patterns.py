"""Globs of `extraPaths`."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.sources.patterns import Pattern


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
        ("[&&a--b].md", "b.md", True),
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
def test_a_pattern_matches_like_a_shell(pattern: str, path: str, matches: bool) -> None:
    assert Pattern(pattern).matches(path) is matches


@pytest.mark.parametrize(
    ("pattern", "depth", "name", "enters"),
    [
        ("*.md", 0, "x", False),
        ("**/*.md", 5, "x", True),
        ("notes/*.md", 0, "notes", True),
        ("notes/*.md", 0, "other", False),
        ("notes/*.md", 1, "deeper", False),
        ("notes/**/*.md", 3, "deeper", True),
        ("{a,b}/*.md", 0, "b", True),
        ("{a,b}/*.md", 0, "c", False),
        ("**", 0, "x", True),
    ],
)
def test_folders_without_a_possible_match_are_not_entered(
    pattern: str, depth: int, name: str, enters: bool
) -> None:
    assert Pattern(pattern).enters(depth, name) is enters


def test_hostile_patterns_are_harmless() -> None:
    before = time.process_time()

    assert not Pattern("{" + ",".join("ab") * 50 + "}" * 50).matches("x.md")
    assert not Pattern("*" * 200 + "x").matches("a" * 200)
    assert not Pattern("**/" * 30 + "x").matches("a/" * 60 + "y")
    assert not Pattern("{a,b}" * 20).matches("x")
    assert not Pattern("?*" * 20 + "*z").matches("a" * 200)
    assert not Pattern("**/" + "*a" * 30).matches("a" * 200 + "b")

    assert time.process_time() - before < 1.0


@given(st.text("ab*?[]!-", min_size=1), st.text("ab]-!", min_size=1))
def test_within_a_folder_a_pattern_is_that_of_a_shell(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) is fnmatchcase(name, pattern)
