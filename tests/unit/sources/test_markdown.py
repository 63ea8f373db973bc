"""What counts as a heading, a fenced block and front matter, and which headings are in force."""

import pytest

from memline.shared.sources.markdown import outline


def trail_at_the_end(text):
    return (["", *outline(text.split("\n")).trails()[1]])[-1]


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
        ("- a\n\ntext\n\n  ```\n\n# in no list\n  ```\n## B\ntext", "B"),
        ("# A ``` b\ntext", "A ``` b"),
        ("# A\n`code` and ``` in a line\n## B\ntext", "A > B"),
        ('---\ntitle: "The Plan"\ntags: [x]\n---\n# Goals\ntext', "The Plan > Goals"),
        ("---\ntitle: 'Bob''s'\n---\ntext", "Bob's"),
        ('---\ntitle : "a # b"\n---\ntext', "a # b"),
        ("---\ntitle: [WIP\ntags: x\n---\ntext", "[WIP"),
        ("---\ntitle: >-\n  The\n  Plan\n---\n# Goals\ntext", "The Plan > Goals"),
        ("---\ntitle: Goals\n---\n# Goals\ntext", "Goals"),
        ("---\ntags:\n  - a\n---\ntext", ""),
        ("---\nA line of prose.\n\n# Real\n---\ntext", "Real"),
        ("---\ntitle: never closed\n# A\ntext", "A"),
    ],
)
def test_the_trail_names_the_headings_in_force(text, trail):
    assert trail_at_the_end(text) == trail


def test_a_heading_is_in_force_on_its_own_line():
    assert outline(["intro", "# A", "x", "## B"]).trails() == ([1, 3], ["A", "A > B"])


def test_an_endless_title_is_shortened():
    assert len(trail_at_the_end("# " + "x" * 5000)) == 160


def test_fences_have_their_first_and_last_line():
    shape = outline(["a", "```", "b", "```", "c", "~~~", "d"])

    assert shape.fences == ((1, 3), (5, 6))
