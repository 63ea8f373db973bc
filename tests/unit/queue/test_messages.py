from __future__ import annotations

import pytest

from shared.index.rows import TextRow, VectorRow
from shared.queue.broker import MessagePack
from shared.queue.messages import (
    VERSION,
    ChunkFiles,
    EmbedTexts,
    MessageRefused,
    StoreVectors,
    Wire,
    decode,
    encode,
)
from tests.support.index_rows import MODEL_A, vector

MESSAGES: list[Wire] = [
    ChunkFiles(agent="main", source="memory", paths=("a.md", "日記.md"), force=True),
    EmbedTexts(agent="main", identity=MODEL_A, lease="l", texts=(TextRow(hash=b"\x00\xff", text="é"),)),
    StoreVectors(
        agent="main",
        identity=MODEL_A,
        lease="l",
        vectors=(VectorRow(hash=b"\x00", vector=vector(0.5, -1.0)),),
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_of_the_wire_as_it_went_in(message: Wire) -> None:
    wire = MessagePack().encode({"args": [encode(message)]})

    assert decode(MessagePack().decode(wire)["args"][0], type(message)) == message


def test_a_vector_costs_four_bytes_a_number_on_the_wire() -> None:
    row = VectorRow(hash=b"h" * 32, vector=vector(*([0.1] * 1536)))
    message = StoreVectors(agent="main", identity=MODEL_A, lease="l", vectors=(row,))

    assert len(MessagePack().encode(encode(message))) < 4 * 1536 + 500


def test_fields_that_a_newer_release_added_are_passed_over() -> None:
    raw = {**encode(MESSAGES[0]), "colour": "red"}

    assert decode(raw, ChunkFiles) == MESSAGES[0]


def test_fields_that_an_older_release_does_not_send_have_their_defaults() -> None:
    raw = {"agent": "main", "source": "memory", "paths": ["a.md"]}

    assert decode(raw, ChunkFiles) == ChunkFiles(agent="main", source="memory", paths=("a.md",))


def test_a_message_of_a_newer_version_is_refused_with_both_versions_and_the_way_out() -> None:
    raw = {**encode(MESSAGES[0]), "v": VERSION + 1}

    with pytest.raises(
        MessageRefused, match=f"has version {VERSION + 1}; this worker speaks {VERSION}"
    ) as error:
        decode(raw, ChunkFiles)

    assert "upgrade" in error.value.hint


@pytest.mark.parametrize(
    "raw", [None, 7, [], "text", {}, {"agent": "main"}, {"agent": 1, "source": "", "paths": []}]
)
def test_what_has_another_shape_is_refused(raw: object) -> None:
    with pytest.raises(MessageRefused, match="not a ChunkFiles message"):
        decode(raw, ChunkFiles)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", b"{}", b"\xff\xff"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a"):
        MessagePack().decode(data)
