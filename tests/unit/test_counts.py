import pytest

from memline.shared.words import counted, span


@pytest.mark.parametrize(
    ("count", "noun", "verb", "words"),
    [
        (0, "file", "", "0 files"),
        (1, "file", "", "1 file"),
        (2_000, "file", "", "2,000 files"),
        (3, "batch", "are", "3 batches are"),
        (1, "batch", "are", "1 batch is"),
        (1, "vector", "were", "1 vector was"),
        (1, "text", "wait", "1 text waits"),
        (2, "text", "wait", "2 texts wait"),
    ],
)
def test_a_count_and_its_words_agree(count, noun, verb, words):
    assert counted(count, noun, verb) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(45, "45 s"), (720, "12 min"), (5400, "1.5 h"), (86_400, "24.0 h"), (345_559, "4 days")],
)
def test_a_long_time_is_told_in_its_unit(seconds, words):
    assert span(seconds) == words
