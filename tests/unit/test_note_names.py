import pytest

from memline.shared.note_names import fold


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("ёлка Ёж", "елка Еж"),
        ("Straße GROẞ", "Strasse GROSS"),
        ("oﬃce ﬁle", "office file"),
        ("Ｖ１８．３　ｍｅｍｏ", "V18.3 memo"),
        ("ｶﾞｽ ﾊﾟﾝ", "ガス パン"),
        ("кофеи\u0306", "кофей"),
        ("\u1112\u1161\u11ab", "한"),
        ("plain", "plain"),
        ("ışık", "işik"),
        ("CVE\u20112024, pages 10\u201320, \u22125", "CVE-2024, pages 10-20, -5"),
        ("co\u00adoperation", "cooperation"),
        ("Caf&eacute; AT&amp;T &#201;ric &#xC9;ric &unknown; a & b;", "Café AT&T Éric Éric &unknown; a & b;"),
    ],
)
def test_forms_of_a_letter_become_one(text, made):
    assert fold(text) == made
