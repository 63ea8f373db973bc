"""Exports of ChatGPT and Claude become notes: masked, private, found, and continued by a further import."""

import json

import pytest

from memline.producers.bridges import import_chats
from memline.producers.bridges.import_chats import ExportRefused, take_in
from memline.shared.sources.writing import append
from tests.support.chat_exports import (
    T0,
    claude,
    claude_said,
    claude_zip,
    gpt,
    gpt_said,
    gpt_zip,
    node,
    zipped,
)
from tests.support.workspace import paths

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe attic is empty.\n"}, provider="none")

KEY = "sk-proj-" + "aB3" * 16
BOATS = gpt("c-1", ("user", "Which dinghy?"), ("assistant", f"The frobnitz, key {KEY}."), title="Boats")


def notes(place):
    return sorted(place.workspace.rglob("imported/**/*.md"))


def counts(taken):
    return taken.new, taken.grown, taken.known, taken.gone


def test_a_conversation_is_a_note_that_is_found_and_private(place, tmp_path):
    done = place.call("import", "chatgpt", str(gpt_zip(tmp_path / "e.zip", BOATS)), "--json")
    place.index()

    assert (done.json["new"], done.json["folder"]) == (1, "memory/imported/chatgpt")
    (note,) = notes(place)
    assert note.name.startswith("2026-10-01-boats-")
    text = note.read_text("utf-8")
    assert text.startswith("# Boats\n\n## 2026-10-01\n\nUser: Which dinghy?\n\nAssistant: The frobnitz, key ")
    assert KEY[12:40] not in text
    path = str(note.relative_to(place.workspace))
    assert paths(place.search("frobnitz")) == [path]
    assert paths(place.search("frobnitz", private=False)) == []


@pytest.mark.place(files={"tea.md": "Oolong.\n"}, provider="none")
def test_in_a_folder_that_is_read_as_a_whole_they_are_at_its_root(place, tmp_path):
    tea = claude("u-1", claude_said("human", "Ada drinks oolong."), title="")
    told = place.call("import", "claude", str(claude_zip(tmp_path / "e.zip", tea)))
    place.index()

    assert told.stdout.startswith("Imported into main: 1 new conversation\n")
    (note,) = notes(place)
    assert note.parent == place.workspace / "imported" / "claude"
    assert {*paths(place.search("oolong"))} == {"tea.md", str(note.relative_to(place.workspace))}


def test_to_import_again_adds_what_is_new_and_no_line_that_was_taken_out(place, tmp_path):
    other = gpt("c-2", ("user", "Which tea?"))
    first = gpt_zip(tmp_path / "1.zip", BOATS, other)
    grown = gpt(
        "c-1", ("user", "Which dinghy?"), ("assistant", "The frobnitz."), ("user", "Thanks."), title="X"
    )
    second = gpt_zip(tmp_path / "2.zip", grown, other, gpt("c-3", ("user", "Hm?")))
    assert counts(take_in(place.agent, "chatgpt", first)) == (2, 0, 0, 0)
    (boats,) = [each for each in notes(place) if "boats" in each.name]
    boats.write_text(boats.read_text("utf-8").replace("User: Which dinghy?\n", ""), "utf-8")

    assert counts(take_in(place.agent, "chatgpt", second)) == (1, 1, 1, 0)
    assert counts(take_in(place.agent, "chatgpt", first)) == (0, 0, 2, 0)
    assert counts(take_in(place.agent, "chatgpt", second)) == (0, 0, 3, 0)

    text = boats.read_text("utf-8")
    assert text.endswith(".\n\nUser: Thanks.\n") and "Which dinghy" not in text and text.count("Thanks") == 1


def test_a_note_that_was_deleted_or_forgotten_does_not_return(place, tmp_path):
    export = gpt_zip(tmp_path / "e.zip", BOATS, gpt("c-2", ("user", "Which tea?")))
    take_in(place.agent, "chatgpt", export)
    next(each for each in notes(place) if "boats" in each.name).unlink()

    assert counts(take_in(place.agent, "chatgpt", export)) == (0, 0, 1, 1)
    assert len(notes(place)) == 1


def test_an_import_that_was_killed_goes_on(place, tmp_path, monkeypatch):
    export = gpt_zip(tmp_path / "e.zip", BOATS, gpt("c-2", ("user", "Which tea?")))

    def killed(root, relative, make):
        if not relative.endswith(".md"):
            raise KeyboardInterrupt
        return append(root, relative, make)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(import_chats, "append", killed)
        take_in(place.agent, "chatgpt", export)
    before = notes(place)[0].read_text("utf-8")

    assert counts(take_in(place.agent, "chatgpt", export)) == (1, 0, 1, 0)
    assert before in [each.read_text("utf-8") for each in notes(place)] and len(notes(place)) == 2


def test_of_chatgpt_the_thread_that_is_shown_is_read(place, tmp_path):
    hidden = {"is_visually_hidden_from_conversation": True}
    said = {
        "a": gpt_said("user", "asked", metadata={"attachments": [{"name": "boats.pdf"}]}),
        "left": gpt_said("assistant", "left behind"),
        "tool": gpt_said("assistant", "search()", recipient="browser"),
        "thought": gpt_said("assistant", "hm", channel="analysis"),
        "code": gpt_said("assistant", "print()", kind="code"),
        "hidden": gpt_said("user", "secretly", metadata=hidden),
        "b": gpt_said(
            "assistant", {"content_type": "audio_transcription", "text": "spoken"}, kind="multimodal_text"
        ),
    }
    order = ["a", "tool", "thought", "code", "hidden", "b"]
    mapping = {
        name: node(name, above, said[name]) for above, name in zip([None, *order], order, strict=False)
    }
    mapping["left"] = node("left", "a", said["left"])
    # A loop ends nowhere else.
    mapping["a"]["parent"] = "b"
    record = {**gpt("c"), "mapping": mapping, "current_node": "b"}

    take_in(place.agent, "chatgpt", gpt_zip(tmp_path / "e.zip", record))

    assert notes(place)[0].read_text("utf-8").endswith("\n\nUser: asked\n\nAssistant: spoken\n")


def test_of_claude_blocks_of_text_are_read_in_the_thread_that_ends_last(place, tmp_path):
    above = "parent_message_uuid"
    record = claude(
        "u-1",
        claude_said("human", "asked", uuid="1", **{above: "0"}),
        claude_said("assistant", "replaced", uuid="2", **{above: "1"}),
        claude_said(
            "assistant", {"type": "thinking", "thinking": "hm"}, "answered", uuid="3", **{above: "1"}
        ),
    )
    old = claude("u-2", {**claude_said("human"), "content": [], "text": "an old one\n```\ncode"})

    take_in(place.agent, "claude", claude_zip(tmp_path / "e.zip", record, old))

    first, second = sorted(each.read_text("utf-8").partition("\n\nUser: ")[2] for each in notes(place))
    assert (first, second) == ("an old one\n```\ncode\n```\n", "asked\n\nAssistant: answered\n")


def test_large_accounts_have_several_files_and_odd_records_are_left_out(place, tmp_path):
    odd = json.dumps([gpt("../../x\0\ud800", ("user", "3"))]).encode()
    members = {
        "mine/conversations-000.json": [BOATS, 5, {"id": "x"}, gpt("c-4", ("system", "nothing"))],
        "mine/conversations-001.json": b"\xef\xbb\xbf" + odd,
        "../../conversations.txt": b"never opened",
    }

    taken = take_in(place.agent, "chatgpt", zipped(tmp_path / "e.zip", members))

    assert taken.new == 2 and len(taken.left_out) == 2
    assert all(each.parent.name == "chatgpt" for each in notes(place))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" + json.dumps(BOATS).encode()[:-9], "cannot be read"),
        (b"{}", "is no export of chatgpt"),
        (b" ", "cannot be read"),
        (json.dumps([claude("u-1")]).encode(), "is no export of chatgpt"),
        (b" " * 5_000_000, "would have 5000000 bytes"),
    ],
)
def test_what_is_no_export_is_refused(place, tmp_path, content, words):
    with pytest.raises(ExportRefused, match=words):
        take_in(place.agent, "chatgpt", zipped(tmp_path / "e.zip", {"conversations.json": content}))

    assert notes(place) == []


def test_a_link_in_the_way_is_not_followed(place, tmp_path):
    (place.workspace / "memory").mkdir(exist_ok=True)
    (place.workspace / "memory" / "imported").symlink_to(tmp_path)

    taken = take_in(place.agent, "chatgpt", gpt_zip(tmp_path / "e.zip", BOATS))

    assert len(taken.left_out) == 1 and not (tmp_path / "chatgpt").exists()
    assert T0 and taken.new == 0
