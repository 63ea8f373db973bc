"""What a note says of itself: title, aliases and day, in the forms that people write."""

import pytest

from memline.shared.sources.folding import name_key
from memline.shared.sources.front_matter import about
from memline.shared.sources.markdown import front_matter_end


def said(text: str) -> tuple[tuple[str, ...], str]:
    lines = text.split("\n")
    read = about(lines, front_matter_end(lines))
    return read.names, read.day


@pytest.mark.parametrize(
    ("text", "names", "day"),
    [
        ("---\ntitle: Deploy Plan\ndate: 2026-02-10\n---\nx", ("deploy-plan",), "2026-02-10"),
        ("---\ntitle: 'A: b'\naliases: [One, \"Two Words\"]\n---", ("a:-b", "one", "two-words"), ""),
        ('---\naliases: ["Hello, world", b]\n---', ("hello,-world", "b"), ""),
        ("---\ntitle: 'Bob''s notes'\naliases: [don't, won't]\n---", ("bob's-notes", "don't", "won't"), ""),
        ('---\ntitle: "Caf\\u00e9 \\"x\\""\n---', ('café-"x"',), ""),
        ("---\ntitle: >-\n  Folded\n  title\ndate: 2026-02-10\n---", ("folded-title",), "2026-02-10"),
        ("---\ntitle: |\n\n  As it stands\n---", ("as-it-stands",), ""),
        ('---\ntitle: "a # b"  # why\naliases: ["x # y", c]\n---', ("a-#-b", "x-#-y", "c"), ""),
        ('---\ntitle: "a\\ud800\\n\\u0000b"\n---', ("a-b",), ""),
        ("---\ntitle: Don't panic  # why\n---", ("don't-panic",), ""),
        ("---\ntitle: [WIP\ndate: 2026-02-10\n---", ("[wip",), "2026-02-10"),
        ("---\naliases:\n  - One\n  - Two Words\n---", ("one", "two-words"), ""),
        ("---\naliases:\n  - [One, 'Two [2]']\n  - # why\n  - - Three\n---", ("one", "two-[2]", "three"), ""),
        ("---\naliases: [\n  [One, # why\n  Two],\n]\ndate: 2026-02-10\n---", ("one", "two"), "2026-02-10"),
        ("---\n'title': &t !!str\n  One,\n  two\ndate: 2026-02-10\n---", ("one,-two",), "2026-02-10"),
        ('---\ntitle: "The plan,\n  all of it"\n---', ("the-plan,-all-of-it",), ""),
        ("---\nmeta:\n  title: no\ntitle: # why\n  Yes\n  created: 2026-02-10\n---", ("yes",), ""),
        ("---\ncreated: 2026-02-10T10:00:00Z\n---", (), "2026-02-10"),
        ("---\nalias: One\ncreated: 20260210\n---", ("one",), "2026-02-10"),
        ("---\ncreated: 2026-01-01\ndate: '2026-02-10'\n---", (), "2026-02-10"),
        ("---\ndate: [[2026-02-10]]\n---", (), "2026-02-10"),
        ("---\ndate: 2026-13-45\n---", (), ""),
        ("---\ndate: 2026/03/05\n---", (), "2026-03-05"),
        ("---\ndate: 2026-3-5 10:00\n---", (), "2026-03-05"),
        ("---\ncreated: 2026_03_05\n---", (), "2026-03-05"),
        ("---\ncreated: 5.3.2026\n---", (), "2026-03-05"),
        ("---\ndate: March 5, 2026\n---", (), "2026-03-05"),
        ("---\ndate: Thursday, 5 March 2026 at 10 o'clock\n---", (), "2026-03-05"),
        ("date:: [[Mar 5th, 2026]]\n\n- x", (), "2026-03-05"),
        ("---\ndate: 5 March\ncreated: 2026-02-10\n---", (), "2026-02-10"),
        ("---\ndate: March 2026\n---", (), ""),
        ("---\ndate: 3 days ago\n---", (), ""),
        ("---\ndate: 31 February 2026\n---", (), ""),
        ("---\ndate: soon\nmeta:\n  title: no\n---", (), ""),
        ("+++\ntitle = 'Deploy Plan'\ndate = 2026-02-10T10:00:00Z\n+++\nx", ("deploy-plan",), "2026-02-10"),
        ('+++\n# x\nAliases = ["One", "Two\\nWords"]\n+++', ("one", "two-words"), ""),
        ('+++\ndraft = false\ncreated = "5 March 2026"\n+++', (), "2026-03-05"),
        ("+++\ntitle = no TOML\n+++\ntitle: no", (), ""),
        ("+++\nx = " + "[" * 5_000 + "\n+++", (), ""),
        ("title:: Deploy Plan\nalias:: One, Two Words\n\n- x", ("deploy-plan", "one", "two-words"), ""),
        ("- created:: 2026-02-10\n- text", (), "2026-02-10"),
        ("# A note\n\ntitle: no", (), ""),
        ("Note: this is prose, see std::vector\n", (), ""),
        ("", (), ""),
    ],
)  # fmt: skip
def test_title_aliases_and_day_are_read(text: str, names: tuple[str, ...], day: str) -> None:
    assert said(text) == (names, day)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "'[" * 50_000,
        '"[\\",' * 30_000 + "]",
        "&a " * 50_000,
        "[a\n" * 50_000,
        "x: [\n" * 50_000,
    ],
)
def test_many_brackets_take_no_time(text: str) -> None:
    said(f"---\ntitle: {text}\naliases: [{text}]\ntags:\n- {text}\n{text}\n---\nx")


@pytest.mark.parametrize("text", ['"' + '\\"' * 50_000, " " * 100_000 + "x", "' " * 50_001, '[" ' * 40_000])
def test_many_marks_take_no_time(text: str) -> None:
    block = "  x\n" * 100_000

    said(f"---\ntitle: {text}\naliases: [{text}]\ndate: >\n{block}---\nx")


def test_a_long_key_of_toml_takes_no_time() -> None:
    assert said("+++\n" + "a." * 100_000 + "a = 1\n+++\nx") == ((), "")


def test_names_are_compared_without_case_and_blanks() -> None:
    assert name_key(" Straße_1 ") == "strasse-1"
