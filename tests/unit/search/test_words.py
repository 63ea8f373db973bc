from __future__ import annotations

import pytest

from shared.search.words import ENGLISH_STOP_WORDS, FOREIGN_STOP_WORDS, related, stop_words


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("buy", "bought"),
        ("buying", "bought"),
        ("studies", "learn"),
        ("running", "ran"),
        ("children", "child"),
    ],
)
def test_irregular_forms_and_companions_are_known_in_every_ending(word: str, other: str) -> None:
    assert other in related(word)


def test_a_word_is_not_related_to_itself_and_most_words_to_nothing() -> None:
    assert "buy" not in related("buy")
    assert related("a828e60") == ()


def test_english_is_the_rule() -> None:
    assert stop_words(["what", "is", "the", "die", "size"]) is ENGLISH_STOP_WORDS
    assert stop_words([]) is ENGLISH_STOP_WORDS


def test_a_question_in_french_gets_french_stop_words() -> None:
    assert stop_words(["où", "est", "la", "clé", "de", "la", "cave"]) is FOREIGN_STOP_WORDS["fr"]
