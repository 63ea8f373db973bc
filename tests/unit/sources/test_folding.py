import pytest

from memline.shared.sources.folding import fold, fold_with_places, folded


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
    ],
)
def test_forms_of_a_letter_become_one(text: str, made: str) -> None:
    assert fold(text) == made
    assert fold_with_places(text)[0] == made


def test_what_only_stands_between_words_is_not_stored_twice() -> None:
    assert folded("“naïve” – wait… 12\u00a0km — 你好，世界！（了）") is None
    assert folded("naïve ёлка") == "naïve елка"


@pytest.mark.parametrize("text", ["a ﬃ b Straße", "ёe\u0308x", "ｶﾞｽｶｽ", "", "plain"])
def test_places_lead_back_to_the_letters_that_were_folded(text: str) -> None:
    made, places = fold_with_places(text)

    assert len(places) == len(made) + 1
    assert (places[0], places[-1]) == (0, len(text))
    assert list(places) == sorted(places)


def test_a_letter_behind_a_ligature_keeps_its_place() -> None:
    text = "ﬁle Straße ёж"
    made, places = fold_with_places(text)

    start = made.index("strasse".capitalize())

    assert text[places[start] : places[start + len("strasse")]] == "Straße"
    assert text[places[made.index("еж")] :] == "ёж"
