import msgspec
import pytest

from memline.shared.index.rows import VectorRow
from memline.shared.queue.broker import MessagePack
from memline.shared.queue.messages import (
    VERSION,
    ChunkFiles,
    MessageRefused,
    StoreVectors,
    decode,
)
from memline.shared.scheduling.leases import Answer
from tests.support.index_rows import MODEL_A, vector
from tests.support.process import python

CHUNK = ChunkFiles(agent="main", paths=("a.md", "日記.md"), force=True)
#: It has what MessagePack has and JSON has not.
VECTORS = StoreVectors(
    agent="main",
    answer=Answer(
        identity=MODEL_A,
        lease="l",
        vectors=(VectorRow(hash=b"\x00\xff", vector=vector(*([0.1] * 1536))),),
    ),
)


def envelope(message, **options):
    return {
        "queue_name": "q",
        "actor_name": "a",
        "args": (message,),
        "kwargs": {},
        "options": options,
        "message_id": "m",
        "message_timestamp": 1,
    }


@pytest.mark.parametrize("message", [CHUNK, VECTORS], ids=lambda message: type(message).__name__)
def test_a_message_comes_out_of_redis_as_it_went_in_and_is_small(message):
    wire = MessagePack().encode(envelope(message, redis_message_id="r"))

    assert decode(MessagePack().decode(wire)["args"][0], type(message)) == message
    assert len(wire) < 4 * 1536 + 600


def test_a_message_in_one_process_is_handed_over_as_it_is():
    pack = MessagePack()

    assert pack.decode(pack.encode(envelope(VECTORS)))["args"][0] is VECTORS


RAW = msgspec.to_builtins(CHUNK)


@pytest.mark.parametrize(
    ("version", "outdated"), [(VERSION + 1, "this worker"), (VERSION - 1, "the process that sent it")]
)
def test_a_message_of_another_version_is_refused_with_both_versions_and_what_to_upgrade(version, outdated):
    words = f"has version {version}; this worker speaks version {VERSION}"

    with pytest.raises(MessageRefused, match=words) as error:
        decode({**RAW, "v": version}, ChunkFiles)

    assert error.value.hint == f"install the same Memline for {outdated} as for the other"


@pytest.mark.parametrize("raw", [None, 7, [], "text", {}, {"agent": "main"}, {"agent": 1, "paths": []}])
def test_what_has_another_shape_is_refused(raw):
    with pytest.raises(MessageRefused, match="not a valid ChunkFiles message"):
        decode(raw, ChunkFiles)


#: Eight threads of one process that decode their first message at the same moment.
FIRST_MESSAGES = """
import sys, threading
from memline.shared.queue import messages
sys.setswitchinterval(1e-6)
gate = threading.Barrier(8)
raw = {"agent": "main", "answer": {
    "lease": "l", "failures": [{"hashes": [], "kind": "later", "error": "no"}],
    "identity": {"provider": "p", "model": "m", "endpoint": "e", "dims": 0, "scheme": ""},
}}

def decode():
    gate.wait()
    sys.stdout.write(messages.decode(raw, messages.StoreVectors).agent + " ")

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_decode_their_first_message_at_once_all_get_it():
    ran = python(FIRST_MESSAGES)

    assert (ran.status, ran.stdout.split()) == (0, ["main"] * 8), ran.stderr
