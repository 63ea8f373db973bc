"""Late interaction: one number a chunk, absolute, from the tokens of a window."""

import numpy as np
import pytest

from memline.shared.embedders import late, token_vectors
from tests.unit.search.conftest import ask

#: A direction a word.
WORDS = ("deploy", "failed", "rollback", "tuesday", "coffee", "reset")


def rows_of(*words):
    return np.eye(len(WORDS), dtype=np.float32)[[WORDS.index(word) for word in words]]


def chunk(*words, apart=10):
    return token_vectors.pack([apart * at for at in range(len(words))], rows_of(*words))


def scored(text, *candidates, **rarity):
    words = text.split()
    asked = token_vectors.pack([text.index(word) for word in words], rows_of(*words))
    return late.scores(text, asked, rarity, [*enumerate(candidates, 1)], b"")


def test_windows_never_reach_from_one_chunk_into_the_next():
    scores = scored("deploy failed", chunk("coffee", "deploy"), chunk("failed", "coffee"), deploy=1, failed=1)

    assert scores == {1: pytest.approx(0.5, abs=0.01), 2: pytest.approx(0.5, abs=0.01)}


def test_chunks_and_questions_without_tokens_have_no_score():
    empty = token_vectors.pack([], np.zeros((0, len(WORDS)), np.float32))

    assert scored("deploy", empty) == scored("deploy") == {}
    assert late.scores("?", empty, {}, [(1, chunk("deploy"))], b"") == {}


def test_scores_agree_with_the_formula_written_out():
    random = np.random.default_rng(5)
    rows = random.normal(size=(30, 16)).astype(np.float32)
    places = sorted(random.choice(800, 30, replace=False).tolist())
    asked_rows = random.normal(size=(3, 16)).astype(np.float32)
    asked = token_vectors.pack([0, 4, 9], asked_rows)
    rarity = {"one": 1.0, "two": 2.0, "three": 5.0}

    found = late.scores("one two  three", asked, rarity, [(1, token_vectors.pack(places, rows))], b"")

    unit = lambda each: each / np.linalg.norm(each, axis=1, keepdims=True)  # noqa: E731
    cosines = np.maximum(unit(asked_rows) @ unit(rows).T, 0)
    best = 0.0
    for first in range(0, 800, 100):
        inside = [at for at, place in enumerate(places) if first <= place < first + 200]
        if inside:
            squares = cosines[:, inside].max(1) ** 2
            best = max(best, float(squares @ np.array([1, 2, 5]) / 8))
    assert found == {1: pytest.approx(best, abs=0.02)}


def test_the_note_that_holds_the_words_together_comes_first(notes, index):
    filler = "Birds sing in the garden. " * 13
    notes.add("a.md", f"The boiler is old. {filler}Nothing about a valve or the pressure.")
    notes.add("b.md", f"The valve of the boiler lost pressure. {filler}")
    notes.embed(has_tokens=True)
    question = "boiler valve pressure"

    together, scattered = ask(index, question, explain=True, embedder=notes.vector_with_tokens).hits

    assert (together.path, scattered.path) == ("b.md", "a.md")
    assert together.explanation["late"] == pytest.approx(1, abs=0.02)
    assert scattered.explanation["late"] < 0.8
