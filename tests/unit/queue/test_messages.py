import pytest

from memline.shared.index.rows import TextRow, VectorRow
from memline.shared.queue.broker import MessagePack
from memline.shared.queue.messages import (
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
from tests.support.process import python

MESSAGES: list[Wire] = [
    ChunkFiles(agent="main", source="memory", paths=("a.md", "日記.md"), force=True),
    EmbedTexts(
        agent="main", identity=MODEL_A, lease="l", until=9.0, texts=(TextRow(hash=b"\x00\xff", text="é"),)
    ),
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


@pytest.mark.parametrize(
    ("version", "outdated"), [(VERSION + 1, "this worker"), (VERSION - 1, "the process that sent it")]
)
def test_a_message_of_another_version_is_refused_with_both_versions_and_what_to_upgrade(
    version: int, outdated: str
) -> None:
    raw = {**encode(MESSAGES[0]), "v": version}
    words = f"has version {version}; this worker speaks version {VERSION}"

    with pytest.raises(MessageRefused, match=words) as error:
        decode(raw, ChunkFiles)

    assert error.value.hint == f"install the same Memline for {outdated} as for the other"


@pytest.mark.parametrize(
    "raw", [None, 7, [], "text", {}, {"agent": "main"}, {"agent": 1, "source": "", "paths": []}]
)
def test_what_has_another_shape_is_refused(raw: object) -> None:
    with pytest.raises(MessageRefused, match="not a valid ChunkFiles message"):
        decode(raw, ChunkFiles)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", b"{}", b"\xff\xff"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a"):
        MessagePack().decode(data)


#: Eight threads of one process that decode their first message at the same moment.
FIRST_MESSAGES = """
import sys, threading
from memline.shared.queue import messages
sys.setswitchinterval(1e-6)
gate = threading.Barrier(8)
raw = {
    "agent": "main", "lease": "l", "until": 9.0, "texts": [], "timeout_s": 1.0,
    "identity": {"provider": "p", "model": "m", "endpoint": "e", "dims": 0, "scheme": ""},
}

def decode():
    gate.wait()
    sys.stdout.write(messages.decode(raw, messages.EmbedTexts).agent + " ")

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_decode_their_first_message_at_once_all_get_it() -> None:
    ran = python(FIRST_MESSAGES)

    assert (ran.status, ran.stdout.split()) == (0, ["main"] * 8), ran.stderr
