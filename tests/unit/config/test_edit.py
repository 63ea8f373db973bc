"""A list of a JSON5 file is changed; every other character stays."""

from __future__ import annotations

import pytest

from memline.shared.config import edit, files

PATH = ("agents", "defaults", "extraPaths")

COMMENTED = """\
// mine
{
  agents: { // all of them
    defaults: {
      workspace: "/w", // a "quoted" word, and a brace }
      /* [more] */
      "extraPaths": [
        "/one", // the first
        '/two',
      ],
    },
  },
}
"""


@pytest.mark.parametrize(
    "text",
    [
        COMMENTED,
        COMMENTED.replace("        \"/one\", // the first\n        '/two',\n", ""),
        "{ agents: { defaults: { extraPaths: ['a'] } } }",
        "{ agents: { defaults: { extraPaths: [{ path: 'a', pattern: '*.md' }], x: 1 } } }",
        "{ agents: { defaults: {} } }",
        "{ agents: { list: [1, { id: 'a', },], } }",
        "{}",
        "",
        "// nothing\n",
        "agents: { defaults: { x: -1.5e3 } } // bare",
        '{"agents": {"defaults": {"extraPaths": []}}}',
    ],
)
def test_an_item_is_added_and_taken_away_and_comments_stay(text: str) -> None:
    added = edit.add(text, PATH, "/new folder", where="f")

    items = files.parse(added, where="f")["agents"]["defaults"]["extraPaths"]
    assert items[-1] == "/new folder"
    for line in text.splitlines():
        for comment in ("// mine", "// all of them", "// the first", "/* [more] */", "// bare", "// nothing"):
            assert comment not in line or comment in added
    again = edit.remove(added, PATH, len(items) - 1, where="f")
    assert files.parse(again, where="f")["agents"]["defaults"]["extraPaths"] == items[:-1]


def test_an_item_on_a_line_of_its_own_comes_and_goes_as_a_line() -> None:
    added = edit.add(COMMENTED, PATH, "/three", where="f")

    assert added == COMMENTED.replace("        '/two',\n", "        '/two',\n        \"/three\",\n")
    assert edit.remove(added, PATH, 2, where="f") == COMMENTED
    assert edit.remove(COMMENTED, PATH, 0, where="f") == COMMENTED.replace('"/one", ', "")
