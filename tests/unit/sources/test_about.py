"""What a note says of itself: title, aliases, day, tags and links, in the forms that people write."""

import time

import pytest

from memline.shared.sources.about import Link, about, asked_tags, tag_key
from memline.shared.sources.markdown import outline


def read(text):
    lines = text.split("\n")
    return about(lines, outline(lines))


@pytest.mark.parametrize(
    ("front", "names", "day"),
    [
        ("title: Deploy Plan\ndate: 2026-02-10", ("deploy-plan",), "2026-02-10"),
        ("title: 'A: b'\naliases: [One, \"Two Words\"]", ("a:-b", "one", "two-words"), ""),
        ("title: Foo: bar\naliases: [[A]]", ("foo:-bar", "a"), ""),
        ('aliases: ["Hello, world", b]', ("hello,-world", "b"), ""),
        ("title: 'Bob''s notes'\naliases: [don't, won't]", ("bob's-notes", "don't", "won't"), ""),
        ("title: >-\n  Folded\n  title\ndate: 2026-02-10", ("folded-title",), "2026-02-10"),
        ('title: "a # b"  # why\naliases: ["x # y", c]', ("a-#-b", "x-#-y", "c"), ""),
        ("title: Don't panic  # why", ("don't-panic",), ""),
        ("title: [WIP\ndate: 2026-02-10", ("[wip",), "2026-02-10"),
        ("aliases:\n  - One\n  - Two Words", ("one", "two-words"), ""),
        ("aliases:\n  - [One, 'Two [2]']\n  - # why\n  - - Three", ("one", "two-[2]", "three"), ""),
        ('title: "The plan,\n  all of it"', ("the-plan,-all-of-it",), ""),
        ("created: 2026-02-10T10:00:00Z", (), "2026-02-10"),
        ("alias: One\ncreated: 20260210", ("one",), "2026-02-10"),
        ("created: 2026-01-01\ndate: '2026-02-10'", (), "2026-02-10"),
        ("date: [[2026-02-10]]", (), "2026-02-10"),
        ("date: 2026-3-5 10:00", (), "2026-03-05"),
        ("created: 5.3.2026", (), "2026-03-05"),
        ("date: Thursday, 5 March 2026 at 10 o'clock", (), "2026-03-05"),
        ("date: 5 March\ncreated: 2026-02-10", (), "2026-02-10"),
        *(
            (f"date: {text}", (), "")
            for text in ("2026-13-45", "March 2026", "3 days ago", "31 February 2026")
        ),
    ],
)
def test_title_aliases_and_day_are_read(front, names, day):
    found = read(f"---\n{front}\n---\nx")

    assert (found.names, found.day) == (names, day)


@pytest.mark.parametrize(
    ("text", "names", "day"),
    [
        ("# A note\n\ntitle: no", (), ""),
        ("", (), ""),
    ],
)
def test_without_front_matter_there_is_nothing(text, names, day):
    assert (read(text).names, read(text).day) == (names, day)


@pytest.mark.parametrize(
    "front",
    [
        "tags: [boat, 'Two Words']  # why",
        'tags: ["#boat", "two_words"]',
        "Tags:\n- boat # the old one\n\n- 'Two Words'",
        "tags:\n  # these\n  - boat\n  - two words\ntitle: x",
        "tags: [\n  boat,\n  two words\n]",
        "tags: boat two-words",
        "tags: '#boat #two-words'",
        "tags: #boat, #two-words",
        "tag: boat\ntags: two-words",
        "tags:\n- [boat]\n-\n- - two words",
        "'tags': [boat, two words]",
    ],
)
def test_front_matter_lists_tags_in_all_the_ways_people_write_them(front):
    assert sorted(read(f"---\n{front}\n---\ntext").tags) == ["boat", "two-words"]


@pytest.mark.parametrize("front", ["tags:", "tags: []", "tags: null", "tags: ~", "meta:\n  tags: boat"])
def test_front_matter_may_list_no_tags(front):
    assert read(f"---\n{front}\n---\ntext").tags == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in the #Boat, and (#boat/Dinghy).", ["boat", "boat/dinghy"]),
        ("- [ ] paint it #to_do #2026-plan", ["to-do", "2026-plan"]),
        ("> said #boat\n\n1. item\n\n    #sail below an item", ["boat", "sail"]),
        ("#標籤，#été #🚤", ["標籤", "été", "🚤"]),
        (
            "**#boat** and _#sail_, *#two_words*, #[[Three words]]",
            ["boat", "sail", "two-words", "three-words"],
        ),
        ("# boat\n## #boat in a heading", ["boat"]),
        ("`#code` and ``a `#b` c`` and https://x.org/#part [a](#b) <x href='#y'>", []),
        ("```\n#fence\n```\n~~~sh\necho #no\n~~~\n", []),
        ("my_func_#define and [l](page_#sec), C# and a#b, #123, #, ##two, issue #12-3, &#39;", []),
        ('---\ntitle: "#no"\n---\n#yes', ["yes"]),
    ],
)
def test_tags_stand_in_the_text_and_not_in_code_or_addresses(text, found):
    assert list(read(text).tags) == found


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("engine tag:Boat/Dinghy", "engine Boat/Dinghy", ("boat/dinghy",)),
        ('tag:"two words" x', "two words x", ("two-words",)),
        ("tag:#a #b?", "a b?", ("a", "b")),
        ("C# or issue #12, a tag: x", "C# or issue #12, a tag: x", ()),
    ],
)
def test_a_question_names_tags(question, text, found):
    assert asked_tags(question) == (text, found)


def test_a_tag_is_compared_without_its_mark_and_case():
    assert {tag_key(each) for each in ("#Straße", "strasse", " [[STRASSE]] ", "#strasse/")} == {"strasse"}
    assert tag_key("#123") == tag_key("") == ""


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[[note|alias]], [[note#heading]] [[note#h|x]] [[note^block]]", ["note", "note^block"]),
        ("| [[note\\|in a table]] | ![[embedded]]", ["note", "embedded"]),
        ("[[folder/note.md]] [[../up]] [[Node.js]]", ["folder/note.md", "../up", "Node.js"]),
        ("[a](b.md) [c](../c%20d.md#part 'Title') [e](</f g.md>)", [("b.md",), ("../c d.md",), ("/f g.md",)]),
        ("[a](b_(1).MD) [see [1]](c.markdown)", [("b_(1).MD",), ("c.markdown",)]),
        ("[a](/guide/start#part) [b](../b/) [c](x.py) [d](..) ![e](f.svg)", [("/guide/start",), ("../b/",)]),
        ("![p](data:image/png;base64,AA/boat) [t](tel:123) [d](doi:10.1000/boat) [[picture.png]]", []),
        ("[Alice]: boat is sold\n[10:30]: boat sold\n[TODO]: <boat>\n[^1]: b.md", []),
        (f"[a]({'x' * 1001}) [b]({'x' * 1000})", [("x" * 1000,)]),
        ("[ref]: notes/a.md", [("notes/a.md",)]),
        ("[[https://x.org]] ![x](y.png) [home](https://x.org/a.md) [m](mailto:a@b.md) [[//x.org/c]]", []),
        ("#[[two words]] is a tag, \\[[not a link]], [[#a heading]], [[]] and [](#part)", []),
        ("`[[code]]` and ``[a](b.md)``\n\n```\n[[fenced]]\n```\n[[after]]", ["after"]),
    ],
)
def test_links_are_read_and_none_from_code(text, targets):
    assert [(each.target,) if each.is_path else each.target for each in read(text).links] == targets


def test_a_link_says_its_line_and_stands_once_in_it():
    assert read("---\ntitle: x\n---\n[[a]] [[a]]\n[[a]]").links == (
        Link(line=4, target="a"),
        Link(line=5, target="a"),
    )


def test_tags_and_links_are_limited():
    assert len(read(" ".join(f"#t{number}x" for number in range(600))).tags) == 256
    assert len(read("\n".join(f"[[{number}]] [[x{number}]]" for number in range(6_000))).links) == 10_000


@pytest.mark.parametrize(
    "unit",
    [
        *("[", "'[", '"[\\",', "&a ", "[a\n", "x: [\n", '\\"', " ", "' ", '[" ', "- ", "] #"),
        *('](a "', "[[a", "](a(", "](<a", "[a]: ", "`"),
        *("#", "#a", "deadbeef", "_", "é1", "漢字", "a://b ", "1-", "a."),
    ],
)
def test_a_long_text_of_marks_is_read_at_once(unit):
    """CPU time that grows with the square of the text would be minutes."""
    text, began = unit * (100_000 // len(unit)), time.process_time()

    read(f"---\ntitle: {text}\naliases: [{text}]\ntags:\n- {text}\n{text}\n---\nsee #data {text}")
    read(f"+++\n{text} = 1\n+++\n{text}")

    assert time.process_time() - began < 10
