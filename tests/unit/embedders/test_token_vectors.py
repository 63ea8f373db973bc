"""Token vectors: which tokens are kept and where they are, and what packing and the axes leave of them."""

import numpy as np
import pytest

from memline.shared.embedders import token_vectors


def test_pieces_are_found_in_a_text_whose_case_accents_and_spaces_a_tokenizer_changed():
    text = "Naïve  Café: DATABASE_POOL was 20"
    pieces = ["[CLS]", " naive", " cafe", ":", " database", "_", "pool", " was", " 20", "[SEP]"]

    places = token_vectors.places_of(text, pieces)

    assert places == [-1, 0, 7, 11, 13, 21, 22, 27, 31, -1]


def test_one_unknown_piece_hides_none_behind_it():
    assert token_vectors.places_of("red ☃ blue", [" red", "[unk]", " blue"]) == [0, -1, 6]


def test_only_tokens_of_words_that_say_something_are_kept():
    text = "the deploy of b3b9895a was rolled back."
    places = [0, 4, 11, 14, 16, 18, 23, 27, 34, 38]

    kept = token_vectors.content_tokens(text, places)

    assert [places[index] for index in kept] == [4, 14, 16, 18, 27, 34]


@pytest.mark.parametrize(("text", "kept"), [("who is it", [0, 1, 2]), ("?!", []), ("", [])])
def test_a_text_of_stop_words_keeps_them_and_one_without_words_has_none(text, kept):
    assert token_vectors.content_tokens(text, [0, 4, 7][: max(len(kept), 1)]) == kept


def test_a_place_beyond_what_a_row_can_hold_is_left_out():
    text = "word " * 20_000

    assert token_vectors.content_tokens(text, [0, 65_535, 65_540]) == [0, 1]


def test_packing_keeps_places_and_directions():
    rows = np.array([[3, 4, 0], [0, 0, -2]], np.float32)

    places, packed = token_vectors.unpack(token_vectors.pack([7, 600], rows))

    assert places.tolist() == [7, 600]
    assert packed.tolist() == [[76, 102, 0], [0, 0, -127]]


@pytest.mark.parametrize("odd", [b"", b"\x03\x00\x00", b"\x03\x00" + bytes(7)])
def test_bytes_of_another_length_are_refused(odd):
    with pytest.raises(ValueError, match="do not hold tokens"):
        token_vectors.unpack(odd)


def test_the_axes_keep_what_tells_the_tokens_of_a_model_apart():
    random = np.random.default_rng(3)
    # 400 dimensions of which 40 vary, about a mean that all tokens share.
    rows = random.normal(size=(2_000, 40)) @ random.normal(size=(40, 400)) + 3 * random.normal(size=400)
    packed = token_vectors.pack(range(2_000), rows.astype(np.float32))
    _, all_dims = token_vectors.unpack(packed)

    axes = token_vectors.fit([all_dims])
    reduced = token_vectors.project(packed, axes)

    places, few = token_vectors.unpack(reduced)
    assert places.tolist() == list(range(2_000)) and few.shape == (2_000, token_vectors.AXES)
    assert len(reduced) == 2 + 2_000 * (2 + token_vectors.AXES / 2)
    centred = all_dims / 127 - (all_dims / 127).mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    # A question is not rounded to 4 bits.
    _, asked = token_vectors.turned(packed, axes)
    error = asked[:200] @ few[:200].T / 127 - centred[:200] @ centred[:200].T
    assert np.abs(error).mean() < 0.015 and np.abs(error).max() < 0.08
    assert token_vectors.project(reduced, axes) == reduced


@pytest.mark.parametrize(("dims", "is_reduced"), [(56, False), (57, True)])
def test_a_model_of_few_dimensions_keeps_them_all(dims, is_reduced):
    rows = np.random.default_rng(5).normal(size=(200, dims)).astype(np.float32)
    packed = token_vectors.pack(range(200), rows)

    axes = token_vectors.fit([token_vectors.unpack(packed)[1]])

    assert (token_vectors.project(packed, axes) != packed) == is_reduced


def test_texts_of_several_kinds_are_not_read_as_one():
    wide = token_vectors.pack([1], np.ones((1, 60), np.float32))

    with pytest.raises(ValueError, match="do not hold tokens"):
        token_vectors.unpack_all([wide, token_vectors.project(wide, bytes(4 * 57 * 60))])
