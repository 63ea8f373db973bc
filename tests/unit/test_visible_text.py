"""Notes are data: what they say is seen, and nothing in them commands a terminal or hides from a reader."""

import json

import pytest

from memline.shared.visible_text import for_model, in_json, in_name, one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext\r\n", "plain\n\ttext\r\n"),
        ("日本 Ünï 👍 50\xa0% … “q”", "日本 Ünï 👍 50\xa0% … “q”"),
        ("over\rwritten", "over\\x0dwritten"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b31m", "\\x9b31m"),
        ("\x00\x7f\x85", "\\x00\\x7f\\x85"),
        ("a\u202eb\u200b\u2066\ufeff", "a\\u202eb\\u200b\\u2066\\ufeff"),
        ("a\u2028b", "a\\u2028b"),
        ("half \ud800", "half \\ud800"),
        ("\U000e0041\U000e007f", "\\U000e0041\\U000e007f"),
        # A joiner between letters or emoji shapes them; anywhere else it hides.
        ("می\u200cخواهم क्\u200dष 👨\u200d👩\u200d👧 🙂\u200d↔\ufe0f", None),
        ("a \u200cb\u200d 1\u200d2", "a \\u200cb\\u200d 1\\u200d2"),
        ("x\u200c\u200dy", "x\\u200c\\u200dy"),
        # A selector chooses the shape of what is in front of it; a run of them can spell bytes.
        ("❤\ufe0f 葛\U000e0100", None),
        ("a\ufe0f\ufe01\U000e0101", "a\ufe0f\\ufe01\\U000e0101"),
        ("\ufe0fa \ufe0f", "\\ufe0fa \\ufe0f"),
    ],
)
def test_what_cannot_be_seen_or_turns_what_can_is_written_out(text, shown):
    assert visible(text) == (text if shown is None else shown)
    assert visible(visible(text)) == visible(text)


def test_the_value_of_json_stays_what_it_is():
    value = {"text": "a\u202e\x9b\x1b\u200b\U000e0041 می\u200cخ é"}

    written = in_json(json.dumps(value, ensure_ascii=False, indent=2))

    assert json.loads(written) == value
    assert visible(written) == written
    assert "می\u200cخ é" in written


def test_a_name_is_one_line_and_only_controls_are_written_out_for_a_program():
    assert one_line("a\r\nb\u202e") == "a\\x0d\\x0ab\\u202e"
    assert in_name("a\r\nb\u202e\x1b") == "a\\x0d\\x0ab\u202e\\x1b"


@pytest.mark.parametrize(
    ("line", "is_quoted"),
    [
        ("Source: MEMORY.md#L3", True),
        ("  source :  memory/2026-02-10.md#L5-L7", True),
        ("- **Source:** MEMORY.md#L3", True),
        ("Source： a.md#l3", True),
        ("Source: https://example.org/page", False),
        ("resource: MEMORY.md#L3", False),
        ("see Source: MEMORY.md#L3", False),
    ],
)
def test_a_line_like_a_citation_of_memlines_is_quoted_for_a_model(line, is_quoted):
    assert for_model(f"words\n{line}\nmore") == f"words\n{'> ' * is_quoted}{line}\nmore"


def test_a_hidden_character_makes_no_line_look_like_a_citation():
    assert for_model("So\u200burce: a.md#L1") == "So\\u200burce: a.md#L1"
