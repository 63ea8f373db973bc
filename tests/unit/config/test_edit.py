"""A list of a JSON5 file is changed; every other character stays."""

import json

import pytest

from memline.shared.config import config_file, edit
from memline.shared.errors import ConfigError

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

    items = config_file.parse(added, where="f")["agents"]["defaults"]["extraPaths"]
    assert items[-1] == "/new folder"
    for line in text.splitlines():
        for comment in ("// mine", "// all of them", "// the first", "/* [more] */", "// bare", "// nothing"):
            assert comment not in line or comment in added
    again = edit.remove(added, PATH, len(items) - 1, where="f")
    assert config_file.parse(again, where="f")["agents"]["defaults"]["extraPaths"] == items[:-1]


def test_an_item_on_a_line_of_its_own_comes_and_goes_as_a_line() -> None:
    added = edit.add(COMMENTED, PATH, "/three", where="f")

    assert added == COMMENTED.replace("        '/two',\n", "        '/two',\n        \"/three\",\n")
    assert edit.remove(added, PATH, 2, where="f") == COMMENTED
    assert edit.remove(COMMENTED, PATH, 0, where="f") == COMMENTED.replace('"/one", ', "")


SERVERS = ("mcp", "servers", "memline", "args")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "// nothing\n",
        '{\n    "a": 1\n}\n',
        '{"a": 1, "mcp": {}}',
        "{ mcp: { servers: { other: { command: 'x' }, }, }, }",
        "{\n  mcp: { // mine\n    servers: {\n      memline: { args: ['y'] }, // why\n    },\n  },\n}",
        "{\n  a: 1, // one\n  b: 2 // two\n}",
        "{\n  a: [\n  ], /* one */ // two\n}",
        "{ // nothing yet\n}",
        "mcp: { x: 1 } // bare",
        COMMENTED,
    ],
)
def test_a_value_is_put_where_it_belongs_and_comments_stay(text: str) -> None:
    before = config_file.parse(text, where="f")

    changed = edit.put(text, SERVERS, ["--workspace", "/w"], where="f")

    assert config_file.parse(changed, where="f")["mcp"]["servers"]["memline"]["args"] == ["--workspace", "/w"]
    assert edit.put(changed, SERVERS, ["--workspace", "/w"], where="f") == changed
    for comment in ("// mine", "// why", "// one", "// two", "// nothing", "// bare", "/* one */ //"):
        assert comment not in text or comment in changed
    if (text.startswith("{") and text == json.dumps(before)) or '"a": 1\n' in text:
        json.loads(changed)
    assert {**config_file.parse(changed, where="f"), "mcp": 0} == {**before, "mcp": 0}


def test_a_new_member_has_the_indentation_of_the_others_and_leaves_their_comments() -> None:
    text = '{\n\t"a": 1, // one\n\t"b": 2 // two\n}\n'

    assert edit.put(text, ("c",), {"d": []}, where="f") == (
        '{\n\t"a": 1, // one\n\t"b": 2, // two\n\t"c": {\n\t  "d": []\n\t}\n}\n'
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{ mcp: 3 }", "f: mcp is not an object"),
        ("{ mcp: { servers: [] } }", "f: mcp.servers is not an object"),
        ("[]", "f: the file has to hold an object"),
    ],
)
def test_a_value_is_not_put_into_what_is_no_object(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}$"):
        edit.put(text, (*SERVERS, "x"), [], where="f")
