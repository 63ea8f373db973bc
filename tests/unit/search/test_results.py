"""The pattern that finds matched words in a snippet."""

import pytest

from memline.shared.search.results import pattern_of


@pytest.mark.parametrize(
    ("matched", "text", "found"),
    [
        (["ERR", "CONN"], "first `ERR_CONN_42`; errors", ["ERR", "CONN"]),
        (["ERR_CONN", "ERR"], "ERR_CONN_42 err", ["ERR_CONN", "err"]),
        (["art"], "art, start, part_art, art9", ["art", "art"]),
        (["磁盘"], "因为磁盘满了", ["磁盘"]),
    ],
)
def test_words_are_found_as_the_full_text_index_cuts_them(matched, text, found):
    pattern = pattern_of(matched)

    assert pattern is not None and pattern.findall(text) == found
    assert pattern_of([""]) is None
