"""A real model in this process, beside vectors that another implementation computed."""

import math
import os
import subprocess
import sys
import threading
import weakref
from array import array
from pathlib import Path

import numpy as np
import pytest

from memline.shared.config.schema import Local
from memline.shared.embedders import token_vectors
from memline.shared.embedders.choice import choose
from memline.shared.embedders.local.model import LocalEmbedder, shared_model
from memline.shared.embedders.local.model_file import engine_of
from memline.shared.embedders.protocol import Identity, LateVector
from memline.shared.errors import ProviderStop
from tests.support.local_model import (
    LONG,
    MODEL,
    REFERENCES,
    cosine,
    embedder_of,
    gguf,
    needs_model,
)
from tests.unit.embedders.conftest import make_settings

ODD_TEXTS = ["", " \n\t", "\0", "a\0b", "\ud800", "\U0010ffff\ufffe", "\u200b", "\ufeff", "e\u0301" * 2000]
ODD_TEXTS += ["x" * 5_000, "[CLS] [SEP] <|endoftext|>", "한국어 " * 800, "👩‍👩‍👧‍👦" * 600, "\u202eabc"]


pytestmark = needs_model


@pytest.fixture
def embedder():
    made = embedder_of(MODEL)
    yield made
    made.close()


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda reference: reference["text"][:12])
def test_vectors_agree_with_those_of_another_implementation(embedder, reference):
    (document,) = embedder.embed_documents([reference["text"]])
    query = embedder.embed_query(reference["text"], timeout_s=60)
    # The other one reads all that the model has positions for, and not what it was trained on.
    whole = embedder._loaded().embed("", reference["text"])

    assert cosine(whole, reference["vector"]) >= 0.99
    assert cosine(document, reference["vector"]) >= 0.94
    # This model has no prompts.
    assert query == document


def test_tokens_come_with_the_vector_at_the_places_of_their_words(embedder):
    text = "The café's deploy of b3b9895a was rolled back"

    (vector,) = embedder.embed_documents([text])
    assert isinstance(vector, LateVector)
    places, rows = token_vectors.unpack(vector.tokens)

    begun = {text[place:].split()[0] for place in places}
    assert {"café's", "deploy", "b3b9895a", "rolled"} <= begun and "was" not in begun and "The" not in begun
    assert rows.shape == (len(places), len(vector) // 4)


def test_tokens_of_a_text_of_many_windows_are_all_there(embedder):
    (vector,) = embedder.embed_documents([LONG])

    assert isinstance(vector, LateVector)
    places = token_vectors.unpack(vector.tokens)[0].astype(int)
    assert list(places) == sorted(places) and places[-1] > len(LONG) - 40
    assert max(np.diff(places)) < 100


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: ascii(text[:6]))
def test_odd_texts_have_a_vector_like_any_other(embedder, text):
    (vector,) = embedder.embed_documents([text])

    numbers = array("f", vector)
    assert len(numbers) == 384
    assert math.fsum(x * x for x in numbers) == pytest.approx(1, abs=1e-5)


def test_prompts_go_before_texts_and_questions_as_the_family_wants():
    digest = engine_of(MODEL).read_head(MODEL).digest
    choice = choose(make_settings(local=Local(model_path=str(MODEL))))
    place = choice.endpoint
    assert place
    plain = LocalEmbedder(identity=Identity(provider="local", model="m", endpoint=digest), endpoint=place)
    dressed = LocalEmbedder(
        identity=Identity(provider="local", model="m", endpoint=digest, scheme="e5"), endpoint=place
    )

    assert dressed.embed_documents(["a cat"]) == plain.embed_documents(["passage: a cat"])
    assert [dressed.embed_query("a cat", timeout_s=60)] == plain.embed_documents(["query: a cat"])
    # Every window of a long text has its prompt.
    assert cosine(dressed.embed_documents([LONG])[0], array("f", plain.embed_documents([LONG])[0])) < 0.99999
    plain.close()
    dressed.close()


def test_dimensions_that_were_asked_for_are_the_first_ones_of_unit_length():
    short = embedder_of(MODEL, output_dimensionality=64)
    whole = embedder_of(MODEL)

    (vector,) = short.embed_documents(["a cat"])
    numbers = array("f", whole.embed_documents(["a cat"])[0])[:64]

    assert len(vector) == 4 * 64
    assert cosine(vector, numbers) == pytest.approx(math.sqrt(sum(x * x for x in numbers)), abs=1e-5)
    short.close()
    whole.close()


def test_embedders_of_one_file_share_a_model_until_the_last_is_closed():
    one, other = embedder_of(MODEL), embedder_of(MODEL)
    digest = engine_of(MODEL).read_head(MODEL).digest
    for embedder in (one, other):
        embedder.embed_query("load", timeout_s=60)
    model = weakref.ref(shared_model(MODEL, digest))

    one.close()
    one.close()
    assert shared_model(MODEL, digest) is model()
    other.close()
    assert model() is None


def test_a_question_comes_before_the_rest_of_a_large_request(embedder):
    embedder.embed_query("load", timeout_s=60)
    done = []
    begun = threading.Event()

    def work():
        begun.set()
        embedder.embed_documents([LONG] * 6)
        done.append("request")

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    embedder.embed_query("where?", timeout_s=60)
    done.append("question")
    thread.join()

    assert done == ["question", "request"]


def test_a_forked_process_loads_a_model_of_its_own():
    program = f"""
import os, sys
from pathlib import Path
from memline.shared.embedders.choice import choose
from memline.shared.embedders.local import model
from memline.shared.config.schema import Local
from memline.shared.embedders import token_vectors
from tests.unit.embedders.conftest import make_settings
# OpenMP waits for ever for threads that a fork has lost.
model._threads = 2
embedder = choose(make_settings(local=Local(model_path={str(MODEL)!r}))).build()
before = embedder.embed_query("hello", timeout_s=60)
child = os.fork()
if not child:
    same = embedder.embed_query("hello", timeout_s=60) == before
    embedder.close()
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    root = Path(__file__).parents[4]

    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, timeout=300)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_file_that_was_replaced_is_not_taken_for_the_one_before(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(gguf())
    embedder = choose(make_settings(local=Local(model_path=str(model)))).build()
    os.unlink(model)
    model.write_bytes(gguf(general__name="another"))

    with pytest.raises(ProviderStop, match="has changed"):
        embedder.embed_query("x", timeout_s=1)
    embedder.close()
