"""What is a tag of a note or of a question, and what only looks like one."""

import time

import pytest

from memline.shared.sources.front_matter import _MAX_TAGS, about
from memline.shared.sources.markdown import front_matter_end
from memline.shared.sources.tags import asked_tags, tag_key


def tags(text: str) -> list[str]:
    lines = text.split("\n")
    return list(about(lines, front_matter_end(lines)).tags)


@pytest.mark.parametrize(
    "front",
    [
        "tags: [boat, Two Words]",
        "tags: [boat, 'Two Words']  # why",
        'tags: ["#boat", "two_words"]',
        "tags:\n  - boat\n  - two words",
        "Tags:\n- boat # the old one\n\n- 'Two Words'",
        "tags:\n  # these\n  - boat\n  - two words\ntitle: x",
        "tags: [\n  boat,\n  two words\n]",
        "tags: [boat,\n  two words]\ndate: 2026-01-01",
        "tags: boat two-words",
        "tags: boat, two-words",
        'tags: "boat, two-words"',
        "tags: '#boat #two-words'",
        "tags: #boat #two-words",
        "tag: boat\ntags: two-words",
        "tags: # these\n- boat\n- two words",
        "tags:\n  #these\n- boat\n  #those\n- two words",
        "tags:\n  boat,\n  two-words",
        "tags:\n  [boat,\n  two words]",
        "tags: &mine [boat, two words]",
        "tags: !!seq # these\n- !!str boat\n- &b two words",
        "tags: [boat, [two words]]",
        "tags:\n- [boat]\n-\n- - two words",
        "tags: !!str boat two-words",
        "'tags': [boat, two words]",
    ],
)
def test_front_matter_lists_tags_in_all_the_ways_people_write_them(front: str) -> None:
    assert sorted(tags(f"---\n{front}\n---\ntext")) == ["boat", "two-words"]


def test_front_matter_in_toml_has_tags() -> None:
    assert tags("+++\ntags = ['boat', \"#Two Words\"] # why #no\n\n[params]\ntags = ['no']\n+++\ntext") == [
        "boat",
        "two-words",
    ]


@pytest.mark.parametrize("front", ["tags:", "tags: []", "tags: null", "tags: ~", "meta:\n  tags: boat"])
def test_front_matter_may_list_none(front: str) -> None:
    assert tags(f"---\n{front}\n---\ntext") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#boat at the start", ["boat"]),
        ("in the #Boat, and (#boat/Dinghy).", ["boat", "boat/dinghy"]),
        ("- [ ] paint it #to_do #2026-plan", ["to-do", "2026-plan"]),
        ("> said #boat\n\n1. item\n\n    #sail below an item", ["boat", "sail"]),
        ("#標籤，#été #🚤", ["標籤", "été", "🚤"]),
        ("Logseq's #[[two words]]", ["two-words"]),
        ("**#boat** and _#sail_, *#two_words*", ["boat", "sail", "two-words"]),
        ("tags:: boat, [[two words]], #sail\n- x", ["boat", "two-words", "sail"]),
        ("- x\n  tags:: boat, [[two words]]\n- tag:: sail", ["boat", "two-words", "sail"]),
        ("- `tags:: no` and tags:: no", []),
        ("```\ntags:: no\n```\n    tags:: no", []),
        ("# boat\n## #boat in a heading", ["boat"]),
        ("`#code` and ``a `#b` c`` and https://x.org/#part [a](#b) <x href='#y'> <code>a #b</code>", []),
        ("```\n#fence\n```\n~~~sh\necho #no\n~~~", []),
        ("text\n\n    #indented\n\n    #still\n\t#tab", []),
        ("~~~\nx\n~~~\n    #behind a fence\n## Heading\n    #behind\n#boat", ["boat"]),
        ("my_func_#define and [l](page_#sec), https://x.org/z_#part, a*#b", []),
        ("C# and a#b, #123, #, ##two, issue #12-3, &#39;", []),
        ("---\ntitle: \"#no\"\n---\n#yes", ["yes"]),
    ],
)  # fmt: skip
def test_tags_stand_in_the_text_and_not_in_code_or_addresses(text: str, found: list[str]) -> None:
    assert tags(text) == found


def test_the_tags_of_a_note_are_counted() -> None:
    assert len(tags(" ".join(f"#t{n}x" for n in range(2 * _MAX_TAGS)))) == _MAX_TAGS


def test_many_marks_take_no_time() -> None:
    assert tags("x" + "`" * 100_000 + " #a") == ["a"]
    assert tags("#" * 100_000 + "\n" + "[[" * 50_000) == []


@pytest.mark.parametrize("piece", ["a", "deadbeef", "_", "é1", "漢字", "a://b ", "1-"])
def test_a_long_line_with_a_tag_is_read_at_once(piece: str) -> None:
    """CPU time that grows with the square of the line would be minutes."""
    began = time.process_time()

    assert tags("see #data " + piece * (400_000 // len(piece))) == ["data"]
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("#boat engine", "boat engine", ("boat",)),
        ("engine tag:Boat/Dinghy", "engine Boat/Dinghy", ("boat/dinghy",)),
        ('tag:"two words" x', "two words x", ("two-words",)),
        ("tag:#a #b?", "a b?", ("a", "b")),
        ("C# or issue #12, a tag: x", "C# or issue #12, a tag: x", ()),
        ("https://x.org/#part", "https://x.org/#part", ()),
    ],
)
def test_a_question_names_tags(question: str, text: str, found: tuple[str, ...]) -> None:
    assert asked_tags(question) == (text, found)


def test_a_tag_is_compared_without_its_mark_and_case() -> None:
    assert {tag_key(each) for each in ("#Straße", "strasse", " [[STRASSE]] ", "#strasse/")} == {"strasse"}
    assert tag_key("#123") == tag_key("") == ""
