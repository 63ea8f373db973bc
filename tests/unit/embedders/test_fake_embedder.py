"""The embedder without a model is deterministic, and similar texts are similar to it."""

import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from tests.support.fake_embedder import FakeEmbedder


def cosine(one, other):
    return sum(a * b for a, b in zip(array("f", one), array("f", other), strict=True))


@pytest.mark.parametrize(
    ("question", "near", "far"),
    [
        ("database migration plan", "We plan the migration of the databases.", "Buy apples and bread."),
        ("error ERR_CONN_42", "Seen again: ERR_CONN_42 at noon", "The meeting is moved to Friday"),
        ("东京的会议", "昨天在东京开会议,决定了预算。", "苹果和面包在厨房里。"),
    ],
)
def test_texts_that_share_words_are_nearer(question, near, far):
    embedder = FakeEmbedder()
    asked, close, distant = embedder.embed_documents([question, near, far])

    assert cosine(asked, close) > cosine(asked, distant) + 0.1


@pytest.mark.parametrize("text", ["", "?!", "\ud800", "a", "語"])
def test_every_text_has_a_unit_vector(text):
    (vector,) = FakeEmbedder(dims=8).embed_documents([text])

    assert len(vector) == 32
    assert cosine(vector, vector) == pytest.approx(1, abs=1e-6)


def test_another_process_without_numpy_makes_the_same_bytes():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from tests.support.fake_embedder import FakeEmbedder\n"
        "print(FakeEmbedder().embed_query('Grüße aus 京都', timeout_s=1).hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )

    assert array("i", bytes.fromhex(done.stdout)) == pytest.approx(
        array("i", FakeEmbedder().embed_query("Grüße aus 京都", timeout_s=1)), abs=1
    )
