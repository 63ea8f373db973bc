from memline.shared.search.passages import MAX_CHARS, matched, snippet

FILLER = [f"Line {number} of nothing in particular, just words to fill." for number in range(40)]
NEEDLES = [("kestrel", 0, 0.6), ("barn", 1, 0.4)]


def test_the_lines_that_answer_are_shown():
    lines = [*FILLER[:25], "A kestrel in the barn.", *FILLER[25:]]

    text, first, last = snippet(lines, NEEDLES)

    assert "A kestrel in the barn." in text
    assert len(text) <= MAX_CHARS
    assert text == "\n".join(lines[first : last + 1])
    # What follows comes first.
    assert (first, last) == (25, 37)


def test_front_matter_is_shown_where_a_word_stands_only_there():
    lines = ["---", "title: Kestrel", "---", "", *FILLER]

    assert snippet(lines, NEEDLES)[0].startswith("---")
    assert snippet([*lines, "The kestrel."], [NEEDLES[0]])[1] > 3
    assert snippet(lines, [])[0].startswith(FILLER[0])


def test_matched_words_are_those_of_the_snippet_in_any_form():
    needles = [*NEEDLES, ("東京", 2, 0.1), ("err conn 42", 3, 0.2)]

    assert matched("Kestrels, a barns owl; 東京都 ERR_CONN_42", needles) == (
        "Kestrels",
        "barns",
        "東京",
        "ERR",
        "CONN",
        "42",
    )
