"""An export is read whole before anything is written, and what could harm is refused."""

import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from memline.producers.bridges import import_chats
from memline.producers.bridges.import_chats import TakenChats, take_in
from memline.shared.index.archive import ArchiveRefused
from tests.support.chat_exports import T0, claude, claude_said, claude_zip, gpt, gpt_zip, zipped
from tests.support.workspace import Place

BOATS = gpt("c-1", ("user", "Which dinghy?"), ("assistant", "The red one."), title="Boats")


def folder(place: Place) -> Path:
    return place.home / "memory" / "main.imports"


def kept(place: Place) -> dict[str, list[dict[str, Any]]]:
    return {
        str(file.relative_to(folder(place))): [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder(place).rglob("*"))
        if file.is_file()
    }


def counts(taken: TakenChats) -> tuple[int, int, int, int, int]:
    return taken.new, taken.grown, taken.known, taken.forgotten, taken.messages


def test_each_conversation_is_a_private_file_with_a_head_and_a_line_a_message(
    place: Place, tmp_path: Path
) -> None:
    taken = take_in(place.agent, "chatgpt", gpt_zip(tmp_path / "e.zip", BOATS))

    assert counts(taken) == (1, 0, 0, 0, 2)
    assert kept(place) == {
        "chatgpt/c-1.jsonl": [
            {"title": "Boats", "time": T0, "updated": T0 + 2},
            {"role": "user", "time": T0, "text": "Which dinghy?"},
            {"role": "assistant", "time": T0, "text": "The red one."},
        ]
    }
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (folder(place), *sorted(folder(place).rglob("*")))]
    assert modes == [0o700, 0o700, 0o600]


def test_secrets_are_masked_before_anything_is_kept(place: Place, tmp_path: Path) -> None:
    key = "sk-proj-" + "aB3" * 16
    hidden = f"{key[:12]}\u200b{key[12:]}"
    export = gpt_zip(
        tmp_path / "e.zip", gpt("c", ("user", f"my key {key} and {hidden}"), title=f"About {key}")
    )

    take_in(place.agent, "chatgpt", export)

    (file,) = [each for each in folder(place).rglob("*") if each.is_file()]
    assert key not in file.read_text()
    assert key[20:40] not in file.read_text()


def test_to_import_again_adds_only_what_is_new(place: Place, tmp_path: Path) -> None:
    other = gpt("c-2", ("user", "Which tea?"))
    take_in(place.agent, "chatgpt", gpt_zip(tmp_path / "1.zip", BOATS, other))
    file = folder(place) / "chatgpt" / "c-2.jsonl"
    before = file.stat()
    grown = gpt("c-1", ("user", "Which dinghy?"), ("assistant", "The red one."), ("user", "Thanks."))

    again = take_in(
        place.agent, "chatgpt", gpt_zip(tmp_path / "2.zip", grown, other, gpt("c-3", ("user", "Hm?")))
    )
    older = take_in(place.agent, "chatgpt", tmp_path / "1.zip")

    assert counts(again) == (1, 1, 1, 0, 4)
    assert counts(older) == (0, 0, 2, 0, 0)
    assert len(kept(place)["chatgpt/c-1.jsonl"]) == 4
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_was_forgotten_and_what_has_no_text_is_not_kept(place: Place, tmp_path: Path) -> None:
    export = gpt_zip(tmp_path / "e.zip", BOATS, gpt("c-2", ("system", "nothing was said")))
    take_in(place.agent, "chatgpt", export)
    (folder(place) / "chatgpt" / "c-1.jsonl").write_bytes(b"")

    taken = take_in(place.agent, "chatgpt", export)

    assert (taken.forgotten, taken.empty) == (1, 1)
    assert kept(place) == {"chatgpt/c-1.jsonl": []}


def test_a_large_export_has_several_files_perhaps_in_a_folder(place: Place, tmp_path: Path) -> None:
    export = zipped(
        tmp_path / "e.zip",
        {
            "mine/conversations-000.json": [BOATS, gpt("c-2", ("user", "two"))],
            "mine/conversations-001.json": [gpt("c-3", ("user", "three"))],
            "mine/conversations-002.json": [],
            "mine/shared_conversations.json": [{"id": "other"}],
        },
    )

    assert take_in(place.agent, "chatgpt", export).new == 3


def test_claudes_export_is_read_too_and_a_strange_id_is_a_safe_name(place: Place, tmp_path: Path) -> None:
    export = claude_zip(tmp_path / "e.zip", claude("../../u 1", claude_said("human", "Which tea?")))

    taken = take_in(place.agent, "claude", export)

    (name,) = kept(place)
    assert taken.program == "Claude"
    assert name.startswith("claude-ai/") and len(name) == len("claude-ai/") + 64 + len(".jsonl")


def test_conversations_longer_than_a_block_and_any_json_between_them_are_read(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_chats, "_BLOCK", 7)
    texts = ["é" * 5, 'a "]}, {" b', "\\u202e", "x" * 40]
    export = tmp_path / "e.zip"
    body = " ,\n ".join(json.dumps(gpt(f"c-{n}", ("user", text))) for n, text in enumerate(texts))
    zipped(export, {"conversations.json": f"\ufeff \n[ {body}\n]\n ".encode()})

    take_in(place.agent, "chatgpt", export)

    assert [lines[1]["text"] for lines in kept(place).values()] == texts


WRONG_JSON = {
    "{}": "is not an array",
    "": "is not an array",
    "[": "is cut short",
    '[{"id": "c", "mapping": {}}': "is cut short",
    '[{"id": "c", "map': "is not valid JSON, or cut short",
    '[{"id": "c", "mapping": {}}, {"id": nonsense}]': "is not valid JSON",
    '[{"id": "c", "mapping": {}}] more': "has something behind its array",
    "[" + "".join(f'{{"k{n}":' for n in range(2_000)): "is not valid JSON",
    "[7, {}]": "number 1 of conversations.json is not a conversation of ChatGPT",
    '[{"uuid": "c", "chat_messages": []}]': "number 1 of conversations.json is not a conversation of ChatGPT",
}


@pytest.mark.parametrize("text", WRONG_JSON, ids=lambda text: text[:40])
def test_what_is_no_export_changes_nothing(place: Place, tmp_path: Path, text: str) -> None:
    export = zipped(tmp_path / "e.zip", {"conversations.json": text.encode()})

    with pytest.raises(ArchiveRefused, match="cannot be imported") as error:
        take_in(place.agent, "chatgpt", export)

    assert WRONG_JSON[text] in error.value.message
    assert "nothing was changed" in error.value.message
    assert not folder(place).exists()


def test_an_error_in_the_last_file_keeps_the_first_from_being_written(place: Place, tmp_path: Path) -> None:
    export = zipped(
        tmp_path / "e.zip", {"conversations-000.json": [BOATS], "conversations-001.json": b"[{nonsense}]"}
    )

    with pytest.raises(ArchiveRefused, match=r"conversations-001\.json is not valid JSON"):
        take_in(place.agent, "chatgpt", export)

    assert not folder(place).exists()


def test_a_record_that_is_not_a_conversation_is_left_out_and_said(place: Place, tmp_path: Path) -> None:
    odd = [
        7,
        None,
        [],
        {"id": "broken"},
        {"mapping": {}},
        {"id": "c", "mapping": {"n": 1, "m": {"message": 2}}},
    ]
    export = zipped(
        tmp_path / "e.zip", {"conversations.json": [odd[0], BOATS, *odd[1:], gpt("c-2", ("user", "hm"))]}
    )

    ran = place.run("import", "chatgpt", str(export))
    taken = take_in(place.agent, "chatgpt", export)

    assert ran.status == 0, ran.stderr
    assert "left out: number 1 of conversations.json is not a conversation of ChatGPT" in ran.stdout
    assert (taken.known, taken.empty, len(taken.left_out)) == (2, 1, 5)
    assert sorted(kept(place)) == ["chatgpt/c-1.jsonl", "chatgpt/c-2.jsonl"]


def test_an_export_of_the_other_program_names_the_command(place: Place, tmp_path: Path) -> None:
    export = claude_zip(tmp_path / "e.zip", claude("c", claude_said("human", "hm")))

    with pytest.raises(ArchiveRefused) as error:
        take_in(place.agent, "chatgpt", export)

    assert error.value.hint == f"memline import claude {export}"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", "c:x"])
def test_a_path_that_leaves_the_archive_is_refused(place: Place, tmp_path: Path, name: str) -> None:
    export = zipped(tmp_path / "e.zip", {"conversations.json": [BOATS], name: b"x"})

    with pytest.raises(ArchiveRefused, match="leads out of it"):
        take_in(place.agent, "chatgpt", export)

    assert not folder(place).exists()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("file-1.dat", "it is read when that is taken out: zip -d e.zip 'file-1.dat'"),
        ("conversations.json", "download the export again, and name the zip as it is"),
        ("export/conversations-001.json", "download the export again, and name the zip as it is"),
    ],
)
def test_a_member_that_inflates_a_hundredfold_is_refused_with_the_way_out(
    place: Place, tmp_path: Path, name: str, advice: str
) -> None:
    export = zipped(tmp_path / "e.zip", {"conversations.json": [BOATS], name: b" " * 1_000_000})

    with pytest.raises(ArchiveRefused, match="inflates more than 100 times") as error:
        take_in(place.agent, "chatgpt", export)

    assert error.value.hint == advice
    assert not folder(place).exists()


def test_a_member_above_a_gigabyte_is_refused(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = zipped(tmp_path / "e.zip", {"conversations.json": [BOATS]})
    assert import_chats.MAX_MEMBER_BYTES == 1 << 30
    monkeypatch.setattr(import_chats, "MAX_MEMBER_BYTES", 100)

    with pytest.raises(ArchiveRefused, match="has more than"):
        take_in(place.agent, "chatgpt", export)


def test_a_member_that_says_less_than_it_has_is_refused(place: Place, tmp_path: Path) -> None:
    export = zipped(tmp_path / "e.zip", {"conversations.json": [BOATS]})
    data = bytearray(export.read_bytes())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (20).to_bytes(4, "little")
    export.write_bytes(data)

    with pytest.raises(ArchiveRefused, match="cannot be imported"):
        take_in(place.agent, "chatgpt", export)

    assert not folder(place).exists()


def test_a_damaged_zip_and_what_is_none_are_refused(place: Place, tmp_path: Path) -> None:
    good = gpt_zip(tmp_path / "e.zip", BOATS, gpt("c-2", *[("user", f"line {n}") for n in range(400)]))
    with zipfile.ZipFile(good) as archive:
        member = archive.getinfo("conversations.json")
    data = bytearray(good.read_bytes())
    data[member.header_offset + 200] ^= 0xFF
    (tmp_path / "bad.zip").write_bytes(data)
    (tmp_path / "cut.zip").write_bytes(good.read_bytes()[:300])
    (tmp_path / "text.zip").write_text("this is no zip")
    zipped(tmp_path / "other.zip", {"notes.md": b"# Notes"})

    for name in ("bad", "cut", "text", "other", "gone"):
        with pytest.raises(ArchiveRefused):
            take_in(place.agent, "chatgpt", tmp_path / f"{name}.zip")

    assert not folder(place).exists()


def test_a_member_with_a_password_is_refused(place: Place, tmp_path: Path) -> None:
    export = zipped(tmp_path / "e.zip", {"conversations.json": [BOATS]})
    data = bytearray(export.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    export.write_bytes(data)

    with pytest.raises(ArchiveRefused, match="needs a password"):
        take_in(place.agent, "chatgpt", export)


def test_killed_in_the_middle_it_goes_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = gpt_zip(tmp_path / "e.zip", *[gpt(f"c-{n}", ("user", "hm")) for n in range(5)])
    settle, settled = import_chats.copies.settle, list[Path]()

    def killed(part: Path, target: Path) -> None:
        if len(settled) == 3:
            raise KeyboardInterrupt
        settled.append(target)
        settle(part, target)

    monkeypatch.setattr(import_chats.copies, "settle", killed)
    with pytest.raises(KeyboardInterrupt):
        take_in(place.agent, "chatgpt", export)
    monkeypatch.setattr(import_chats.copies, "settle", settle)

    assert counts(take_in(place.agent, "chatgpt", export)) == (2, 0, 3, 0, 2)
    assert all(len(lines) == 2 for lines in kept(place).values())
