"""Chunks: bounded, complete, exact in their lines, and cut where a reader would cut."""

import time
from base64 import b64encode
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memline.shared.sources.chunking import split
from memline.shared.sources.markdown import outline
from memline.shared.sources.tokens import weighted_length


def cut(text, tokens=400, overlap=80):
    lines = text.split("\n")
    return split(lines, outline(lines), max_tokens=tokens, overlap_tokens=overlap)


def filler(name, chars):
    """A line of words, `chars` long."""
    return (f"{name} " * chars)[: chars - 1] + "."


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "",
                "  ",
                "# A",
                "## B",
                "### C c",
                "Title",
                "===",
                "---",
                "```",
                "~~~",
                "```py",
                "- item",
                "1. one",
            ]
        ),
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=60),
        st.integers(1, 300).map(lambda n: "word " * n),
        st.integers(1, 120).map(lambda n: "讨论了金银价格上涨。" * n),
        st.integers(1, 200).map(lambda n: "e\u0301\U0001f469\u200d\U0001f467" * n),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(LINES, st.integers(1, 60), st.integers(0, 40))
@example(["---", "title: x", "---"], 1, 0)
@example(["# a"] * 50, 2, 1)
def test_any_text_is_covered_by_bounded_exact_chunks(lines, tokens, overlap):
    text = "\n".join(lines)

    chunks = cut(text, tokens, overlap)

    position = 0
    covered = set()
    for chunk in chunks:
        assert 1 <= chunk.start_line <= chunk.end_line <= len(lines)
        assert weighted_length(chunk.text) <= tokens * 4
        assert chunk.text.strip()
        whole = "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
        assert chunk.text in whole
        found = text.find(chunk.text, position)
        assert found >= 0, "chunks are in the order of the text"
        position = found
        covered.update(range(chunk.start_line, chunk.end_line + 1))
    assert covered >= {number for number, line in enumerate(lines, 1) if line.strip()}
    assert cut(text, tokens, overlap) == chunks


def test_a_short_note_is_one_chunk_with_its_exact_lines():
    [chunk] = cut("\n\n# Plan\n\nShip it.\n\n")

    assert (chunk.start_line, chunk.end_line, chunk.text) == (3, 5, "# Plan\n\nShip it.")
    assert chunk.heading == "Plan"


@pytest.mark.parametrize("text", ["", "\n", "  \n\t\n", "\u3000\n"])
def test_blank_text_has_no_chunks(text):
    assert cut(text) == []


def test_a_chunk_ends_before_a_heading_in_its_last_third():
    lines = [*[filler("one", 100)] * 13, "## Next", *[filler("two", 100)] * 10]

    first, second = cut("\n".join(lines), overlap=0)

    assert first.end_line == 13
    assert second.start_line == 14
    assert second.heading == "Next"


def test_a_list_item_is_better_than_its_second_line():
    lines = [line for number in range(20) for line in (f"- {filler('item', 60)}", f"  {filler('more', 60)}")]

    chunks = cut("\n".join(lines), overlap=0)

    assert all(chunk.text.startswith("- ") for chunk in chunks)


def test_a_fenced_block_that_fits_is_kept_whole():
    code = ["```python", *[f"value_{number} = {number:060}" for number in range(15)], "```"]
    lines = [*[filler("prose", 90)] * 11, *code, *[filler("after", 90)] * 12]

    chunks = cut("\n".join(lines))

    assert any(chunk.start_line <= 12 and chunk.end_line >= 12 + len(code) - 1 for chunk in chunks)


def test_the_overlap_is_whole_lines_within_its_limit():
    lines = [filler(f"l{number}", 100) for number in range(60)]

    chunks = cut("\n".join(lines))

    for before, after in pairwise(chunks):
        repeated = "\n".join(lines[after.start_line - 1 : before.end_line])
        assert 0 < len(repeated) <= 320


def test_lines_of_dense_scripts_count_four():
    chunks = cut("\n".join(["会议记录和价格讨论" * 5] * 60))

    assert all(len(chunk.text) <= 400 + chunk.text.count("\n") for chunk in chunks)
    assert max(weighted_length(chunk.text) for chunk in chunks) > 1400


def test_a_long_line_is_cut_after_sentences_and_keeps_its_number():
    line = "The gold price rose again today. " * 200

    chunks = cut(f"intro\n{line}\noutro")

    assert len(chunks) > 3
    assert all(chunk.text.rstrip().endswith((".", "outro")) for chunk in chunks)
    assert {chunk.end_line for chunk in chunks[:-1]} == {2}


DATA = "data:image/png;base64," + b64encode(bytes(range(256)) * 400).decode()


def test_a_pasted_picture_is_in_no_chunk():
    pictures = f"![Plan of the floor]({DATA})\nAfter it ![b]({DATA} 'c') in a line.\n\n[My house]: <{DATA}>"
    text = f"# Kitchen\n\nBefore it.\n{pictures}\nEnd."

    chunks = cut(text)

    assert len(text) > 400_000
    assert [chunk.text for chunk in chunks] == [
        "# Kitchen\n\nBefore it.\n![Plan of the floor](",
        "After it ![b](",
        " 'c') in a line.\n\n[My house]: <",
        "End.",
    ]
    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(1, 4), (5, 5), (5, 7), (8, 8)]


SCENE = ",\n".join(f'{{"type":"rectangle","x":{number},"version":12}}' for number in range(300))
WRAPPED = "\n".join("Q2hlY2sgdGhpcyBvdXQ5" * 4 for _ in range(60))
MINIFIED = '{"kanban-plugin":"board","list-collapse":[false,null,true],"lane-width":272,' * 9 + '"x":1}'
DUMP = "\n".join(f"{at:08x}: 259a 1399 4ee3 c28a e17e 41f3 8316 f2aa  it..N...~A...." for at in range(40))
BYTES = "\n".join("2e 74 69 20 9a 13 99 4e e3 c2 8a e1 7e 41 89 f3" for _ in range(40))


@pytest.mark.parametrize(
    "data",
    [
        DATA.removeprefix("data:image/png;base64,"),
        f"-----BEGIN CERTIFICATE-----\n{WRAPPED}",
        f'%%\n## Drawing\n```json\n{{"elements":[{SCENE}]}}\n```\n%%',
        f"%%\n## Drawing\n```compressed-json\n{WRAPPED}\n```\n%%",
        f"%% kanban:settings\n```\n{MINIFIED}\n```\n%%",
        f"xxd\n\n```\n{DUMP}\n```\n\n{BYTES}",
    ],
)
def test_data_of_machines_is_no_text(data):
    chunks = cut(f"# Dock nine\n\nBefore it.\n\n{data}\n\nBehind it.\n", overlap=0)

    assert "".join(chunk.text for chunk in chunks).count("it.") == 2
    assert len(chunks) <= 3


@pytest.mark.parametrize(
    "line",
    [
        "base64, " + "words and more " * 200,
        '[Kickoff] we agreed on "scope": ' + "words and more " * 200 + "[minutes]",
        '```json\n{"name": "memline", "version": "1.0"}\n```',
        "https://example.org/" + "a-long-path/" * 30,
        "\n".join(f"20250103 5363 4748 1012 0612 0642 08{at:02} Berlin" for at in range(9)),
        "\n".join(f"the-long-name-of-a-note-about-quaggas-and-others-{at}" for at in range(9)),
    ],
)
def test_what_is_no_data_uri_is_text(line):
    assert "".join(chunk.text for chunk in cut(line, overlap=0)).replace(" ", "") == line.replace(" ", "")


@pytest.mark.parametrize("unit", ["a", "word ", "价格", "e\u0301", "- ", "\t"])
def test_a_megabyte_in_one_line_takes_linear_time(unit):
    text = unit * (1_000_000 // len(unit)) + "end"

    before = time.process_time()
    chunks = cut(text)

    # Half a second alone; one that is quadratic takes minutes.
    assert time.process_time() - before < 10
    assert max(weighted_length(chunk.text) for chunk in chunks) <= 1600


@pytest.mark.parametrize("line", ["# h", "```", "", "- i", "===", "a"])
def test_a_hundred_thousand_alike_lines_take_linear_time(line):
    before = time.process_time()
    cut("\n".join([line] * 100_000))

    assert time.process_time() - before < 10
