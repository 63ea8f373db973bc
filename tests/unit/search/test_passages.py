from memline.shared.search.matches import Row
from memline.shared.search.passages import passages

LINES = [f"{n} kestrels nest in the barn, as far as I know" for n in range(1, 101)]


def row(number, first, last, *, path="a.md", text=None):
    text = "\n".join(LINES[first - 1 : last]) if text is None else text
    return Row(number, hash(path), first, last, "", text, bytes([number]), path, "memory", 0, "", "")


def cited(*spans, wanted=6, max_tokens=600):
    """The lines of the passages that are made of the chunks of one note, best first."""
    made = passages([row(n, *span) for n, span in enumerate(spans)], wanted=wanted, max_tokens=max_tokens)
    for passage in made:
        assert passage.lines == LINES[passage.start - 1 : passage.end]
    return [(passage.start, passage.end) for passage in made]


def test_chunks_that_overlap_or_adjoin_are_one_passage():
    assert cited((10, 20), (18, 30)) == [(10, 30)]
    assert cited((18, 30), (10, 20)) == [(10, 30)]
    assert cited((10, 20), (21, 30)) == [(10, 30)]
    assert cited((10, 20), (12, 15)) == [(10, 20)]
    assert cited((10, 20), (22, 30)) == [(10, 20), (22, 30)]


def test_a_passage_is_a_chunk_and_a_half_at_most():
    (first, last), *rest = cited((1, 30), (26, 60))

    assert (first, rest) == (1, [])
    assert (
        sum(len(line) + 1 for line in LINES[:last])
        <= 2_400
        < sum(len(line) + 1 for line in LINES[: last + 1])
    )
    assert cited((1, 45), (40, 90)) == [(1, 45), (40, 90)]


def test_fewer_passages_are_a_prefix_of_more():
    spans = [(n * 7 % 90 + 1, n * 7 % 90 + 8) for n in range(60)]
    most = cited(*spans, wanted=30)

    for wanted in range(30):
        assert cited(*spans, wanted=wanted) == most[:wanted]


def test_chunks_of_other_files_and_pieces_of_one_line_stay_apart():
    ranked = [row(1, 5, 5, text="one half of it"), row(2, 5, 5, text="the other half")]
    ranked.append(row(3, 5, 5, path="b.md"))

    assert len(passages(ranked, wanted=9, max_tokens=600)) == 3
