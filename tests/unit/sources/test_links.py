"""Links of a note: the forms that people write, and what only looks like one."""

import time

import pytest

from memline.shared.sources.front_matter import about
from memline.shared.sources.links import Link
from memline.shared.sources.markdown import front_matter_end


def links_in(text: str) -> list[str | tuple[str]]:
    """The targets of its links; that of a Markdown link in a tuple."""
    lines = text.split("\n")
    found = about(lines, front_matter_end(lines)).links
    return [(each.target,) if each.is_path else each.target for each in found]


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("see [[Deploy plan]] and [[b]]", ["Deploy plan", "b"]),
        ("[[note|alias]], [[note#heading]] [[note#h|x]] [[note^block]]", ["note", "note^block"]),
        ("| [[note\\|in a table]] |", ["note"]),
        ("![[embedded]]", ["embedded"]),
        ("[[folder/note.md]] [[../up]]", ["folder/note.md", "../up"]),
        ("---\nrelated: '[[note]]'\n---\n[[Node.js]]", ["note", "Node.js"]),
        ("[a](b.md) [c](../c%20d.md#part 'Title') [e](</f g.md>)", [("b.md",), ("../c d.md",), ("/f g.md",)]),
        ("[a](b_(1).MD) [see [1]](c.markdown)", [("b_(1).MD",), ("c.markdown",)]),
        ("[a](/guide/start#part) [b](../b/) [c](x.py) [d](..) ![e](f.svg)", [("/guide/start",), ("../b/",)]),
        ("![p](data:image/png;base64,AA/boat) [t](tel:123) [j](javascript:void) [d](doi:10.1000/boat)", []),
        ("[Alice]: boat is sold\n[10:30]: boat sold\n[TODO]: <boat>", []),
        (
            "<Card title='A [b] c' href='/a/b' icon='c'> <Link class=\"c\" href=\"d.md#e\">",
            [("/a/b",), ("d.md",)],
        ),
        (
            "<Card\n  title='a'\n  href='../up'\n/> <a href='https://x.org/a.md'> <a href='c.html'>",
            [("../up",)],
        ),
        (
            "<a href=\"/o'brien\"> <a href='/a\"> \\<a href='/b'> set href='/c' <link href='/d'>",
            [("/o'brien",)],
        ),
        ("`<Card href='/a'>` <a href={url} data-href='/b'> <!-- <a href='/c'> --> <a href= '/d'>", []),
        ("{/* <Card href='/a'> [[b]]\n*/} [[c]] {/* [[d]]", ["c", "d"]),
        (f"[a]({'x' * 1001}) [b]({'x' * 1000})", [("x" * 1000,)]),
        ("[ref]: notes/a.md\n[^1]: b.md", [("notes/a.md",)]),
        ("[[https://x.org]] [[mailto:a@b.c]] <!-- [[gone]] --> [[there]] <!-- [a](b.md) -->", ["there"]),
        ("[[a]] <!-- [[b]]\n[[c]]\n[[d]] --> [[e]] <!-- [[f]]\n--> [[g]]", ["a", "e", "g"]),
        ("<!-- [[a]]\n[[b]]", ["a", "b"]),
        ("```\n<!--\n```\n[[a]]\n-->", ["a"]),
        ("`<!--` [[a]] `-->`", ["a"]),
        ("[[picture.png]] [[paper.PDF]] ![x](y.png) [home](https://x.org/a.md) [m](mailto:a@b.md)", []),
        ("#[[two words]] is a tag, \\[[not a link]], [[#a heading]], [[]] and [](#part)", []),
        ("`[[code]]` and ``[a](b.md)``\n\n    [[indented]]\n\n```\n[[fenced]]\n```\n[[after]]", ["after"]),
        ("[u](//x.org/a.md) [r](<//x.org/b.md>) [[//x.org/c]]\n[d]: //x.org/d.md", []),
        ("<code>[[a]]</code> <PRE class='x'><code>[b](b.md)</code> [[c]]</PRE > [[after]]", ["after"]),
        ("`<code>` [[a]] </code> <code [[b]] <code>[[c]] <coder>[[d]]</coder>", ["a", "b", "c", "d"]),
        ("- item\n    [[in a list]]", ["in a list"]),
        ("```\nx\n```\n    [[a]]\n\t[[b]]\n[[after]]", ["after"]),
        ("# Heading\n    [[a]]\n\nTitle\n-----\n    [[b]]\n\n* * *\n    [[c]]\n[[after]]", ["after"]),
        ("- item\n  ```\n  x\n  ```\n    [[in a list]]\n\ntext\n    [[goes on]]", ["in a list", "goes on"]),
    ],
)
def test_links_are_read_and_none_from_code(text: str, targets: list[str | tuple[str]]) -> None:
    assert links_in(text) == targets


def test_a_link_says_its_line_and_stands_once_in_it() -> None:
    lines = ["---", "title: x", "---", "[[a]] [[a]]", "[[a]]"]

    assert about(lines, 3).links == (Link(line=4, target="a"), Link(line=5, target="a"))


def test_a_note_has_ten_thousand_links_at_most() -> None:
    assert len(links_in("\n".join(f"[[{number}]] [[x{number}]]" for number in range(6_000)))) == 10_000


@pytest.mark.parametrize(
    "piece",
    [
        '](a "',
        "[[a",
        "](a(",
        "](<a",
        "<A href='a",
        "<a href='a' ",
        " href='/z' [[",
        "{/* ",
        "[a]: ",
        "](" + "a" * 50,
        "<!--",
        "<!-- [[a]] -->",
        "[[<code",
        "[[a]]<code>",
        "<code></pre>]]",
    ],
)
def test_a_long_line_of_beginnings_is_read_at_once(piece: str) -> None:
    """CPU time that grows with the square of the line would be minutes."""
    began = time.process_time()
    links_in(piece * (200_000 // len(piece)))
    links_in(f" href='/z' {piece}" + "a" * 200_000)

    assert time.process_time() - began < 20
