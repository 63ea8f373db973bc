"""What counts as a heading, a fenced block and front matter, and which headings are in force."""

import time

import pytest

from memline.shared.sources.markdown import Trail, outline


def trail_at_the_end(text: str) -> str:
    lines = text.split("\n")
    return Trail(outline(lines).headings).at(len(lines) - 1)


@pytest.mark.parametrize(
    ("text", "trail"),
    [
        ("# A\n## B\ntext", "A > B"),
        ("# A\n## B\n# C\ntext", "C"),
        ("# A\n### B\n## C\ntext", "A > C"),
        ("  ## B ##  \ntext", "B"),
        ("# C# is a language\ntext", "C# is a language"),
        (
            "# Setup { #setup }\n## On a Mac {: #mac .wide }\n### Keys {#k data=x} ##\ntext",
            "Setup > On a Mac > Keys",
        ),
        ("Big {#b}\n===\n\n## Small {/* #small */}\ntext", "Big > Small"),
        ("# {#alone}\n## Sets {1, 2}\n### {{ name }}\ntext", "{#alone} > Sets {1, 2} > {{ name }}"),
        ("#tag is no heading\ntext", ""),
        ("    # indented code\ntext", ""),
        ("####### seven\ntext", ""),
        ("#\ntext", ""),
        ("Big\n===\n\nSmall\n---\ntext", "Big > Small"),
        ("above\n\n---\n\ntext", ""),
        ("- item\n---\ntext", ""),
        ("# A\n```\n# comment\n```\ntext", "A"),
        ("# A\n~~~\n# comment\n```\n# more\n~~~\n## B\ntext", "A > B"),
        ("# A\n- ```sh\n  # comment\n  ```\n## B\ntext", "A > B"),
        ("# A\n````\n```\n# comment\n````\ntext", "A"),
        ("# A\n```\n# never closed", "A"),
        ("> ```sh\n> # comment\n> ```\n\n## B\ntext", "B"),
        ("> [!tip]\n>```\n>\n># comment\n>```\n## B\ntext", "B"),
        ("> - > ```\n>   > # comment\n>   > ```\n## B\ntext", "B"),
        ("1. ```sh\n   # comment\n   ```\n2. next\n\n## B\ntext", "B"),
        ("- a\n\n  10) b\n\n\t  ```\n      # comment\n      ```\n## B\ntext", "B"),
        ("- ```\n# comment\n```\n## B\ntext", "B"),
        ("> ```\n> # never closed\n\n## B\ntext", "B"),
        ("> ```\n> # never closed\nB\n=\n> ```\n> # comment\n> ```\ntext", "B"),
        ("- ```sh\n  # never closed\n\n## B\n1. ~~~\n\n   # comment\n## C\ntext", "C"),
        ("- a\n\n  ```\n  # never closed\n\n## B\ntext", "B"),
        ("text\n\n    ```\n    # never closed\n\n## B\ntext", "B"),
        ("  ```\n# in a fence that is indented\n  ```\n## B\ntext", "B"),
        ("- a\n\ntext\n\n  ```\n\n# in no list\n  ```\n## B\ntext", "B"),
        ("# A ``` b\ntext", "A ``` b"),
        ("# A\n`code` and ``` in a line\n## B\ntext", "A > B"),
        ('---\ntitle: "The Plan"\ntags: [x]\n---\n# Goals\ntext', "The Plan > Goals"),
        ("---\ntitle: 'Bob''s'\n---\ntext", "Bob's"),
        ('---\ntitle : "a # b"\n---\ntext', "a # b"),
        ("---\ntitle: [WIP\ntags: x\n---\ntext", "[WIP"),
        ("---\ntitle: >-\n  The\n  Plan\n---\n# Goals\ntext", "The Plan > Goals"),
        ("+++\ntitle = 'The Plan'\n# comment\n+++\n# Goals\ntext", "The Plan > Goals"),
        ("+++\nA line of prose.\n\n# Real\n+++\ntext", "Real"),
        ("---\ntitle: Goals\n---\n# Goals\ntext", "Goals"),
        ("---\ntags:\n  - a\n---\ntext", ""),
        ("---\nA line of prose.\n\n# Real\n---\ntext", "Real"),
        ("---\ntitle: never closed\n# A\ntext", "A"),
    ],
)
def test_the_trail_names_the_headings_in_force(text: str, trail: str) -> None:
    assert trail_at_the_end(text) == trail


def test_a_heading_is_in_force_on_its_own_line() -> None:
    trail = Trail(outline(["intro", "# A", "x", "## B"]).headings)

    assert [trail.at(line) for line in range(4)] == ["", "A", "A", "A > B"]


def test_an_endless_title_is_shortened() -> None:
    assert len(trail_at_the_end("# " + "x" * 5000)) == 160


@pytest.mark.parametrize(
    ("text", "fences"),
    [
        ("> ```\n> a\n\n```\nb\n```", [(0, 1), (3, 5)]),
        ("- ```\n  a\n\n  b\n\n\n- c\n  ~~~\n  d\n  ~~~", [(0, 3), (7, 9)]),
        ("- a\n  - b\n    ```\n    c\n  - d\n    ```\n    e", [(2, 3), (5, 6)]),
        ("<Step>\n    ```\ncode\n```\n</Step>", [(1, 3)]),
        ("1. ```\n   a\n\n```\nb\n```", [(0, 1), (3, 5)]),
    ],
)
def test_a_fence_ends_with_the_quote_or_item_that_it_stands_in(
    text: str, fences: list[tuple[int, int]]
) -> None:
    assert list(outline(text.split("\n")).fences) == fences


@pytest.mark.parametrize(
    "text",
    [
        "- " * 50_000 + "```" + "\n" * 100_000,
        "> " + "- " * 50_000 + "```" + "\n>" * 100_000,
        "> " * 50_000 + "```" + "\n> > >" * 50_000,
        "1. " * 50_000 + "``` `",
        "    ```\n    x\n" * 100_000,
        "  - x\n    ```\nx\n" * 50_000,
        "- ```\n- ~~~\nx\n" * 50_000,
        "  x\n" * 100_000 + "  ```\n  ```\n" * 50_000,
    ],
)
def test_many_containers_take_no_time(text: str) -> None:
    """CPU time that grows with the square of the text would be minutes."""
    began = time.process_time()
    outline(text.split("\n"))

    assert time.process_time() - began < 5


def test_fences_have_their_first_and_last_line() -> None:
    shape = outline(["a", "```", "b", "```", "c", "~~~", "d"])

    assert shape.fences == ((1, 3), (5, 6))
