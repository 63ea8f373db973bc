"""What onnxruntime does with models and with files that are none."""

import json
import math
from array import array

import pytest

from memline.shared.embedders import token_vectors
from memline.shared.embedders.protocol import LateVector
from memline.shared.errors import ProviderStop
from tests.support.local_model import embedder_of, needs_onnx
from tests.support.onnx_model import tiny

pytestmark = needs_onnx

ODD_TEXTS = [
    "red",
    "",
    " \n\t",
    "\0",
    "a\0b",
    "\ud800 red",
    "\u200b",
    "e\u0301 café",
    "x" * 5_000,
    "word " * 900,
]
ODD_TEXTS += ["[CLS] [SEP] red", "한국어 " * 800, "👩‍👩‍👧‍👦" * 600, "\u202eabc", "赤い"]


def test_odd_texts_have_a_vector_like_any_other_and_long_ones_all_their_tokens(tmp_path):
    tiny(tmp_path)
    embedder = embedder_of(tmp_path)

    vectors = embedder.embed_documents(ODD_TEXTS)
    (late,) = embedder.embed_documents(["red " * 2000])

    for vector in vectors:
        assert math.fsum(number**2 for number in array("f", vector)) == pytest.approx(1, abs=1e-5)
    assert isinstance(late, LateVector)
    assert token_vectors.unpack(late.tokens)[0].tolist() == list(range(0, 8000, 4))
    embedder.close()


def test_a_token_that_begins_with_a_space_has_the_place_of_its_word(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tiny(tmp_path)
    # As those of multilingual models: the space is a part of the token.
    words = {"<unk>": 0, "▁red": 1, "▁green": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    embedder = embedder_of(tmp_path)

    (vector,) = embedder.embed_documents(["red green red"])

    assert isinstance(vector, LateVector)
    assert token_vectors.unpack(vector.tokens)[0].tolist() == [0, 4, 10]
    embedder.close()


def direction(folder, text):
    """The axis along which a tiny model's vector of a text is longest."""
    embedder = embedder_of(folder)
    (vector,) = embedder.embed_documents([text])
    embedder.close()
    numbers = array("f", vector)
    return numbers.index(max(numbers))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({}, 3),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, 3),
        ({"pooling_mode_cls_token": True, "include_prompt": True}, 1),
        ({"pooling_mode_lasttoken": True}, 2),
        ({"pooling_mode": "cls"}, 1),
    ],
)
def test_a_vector_is_made_of_those_of_the_tokens_as_the_model_says(tmp_path, pooling, expected):
    tiny(tmp_path)
    if pooling:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling/config.json").write_text(json.dumps(pooling))

    assert direction(tmp_path, "red red red") == expected


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (
            {"inputs": ("input_ids", "past_key_values.0.key")},
            "past_key_values",
        ),
        ({"of_tokens": False}, "gives no vectors of tokens"),
    ],
)
def test_a_graph_that_is_not_one_of_an_embedding_model_is_a_stop(tmp_path, graph, reason):
    tiny(tmp_path, **graph)

    with pytest.raises(ProviderStop, match=reason) as caught:
        embedder_of(tmp_path).embed_documents(["red"])

    assert "local.modelPath" in caught.value.hint


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize(
    "damage", [lambda content: content[: len(content) // 2], lambda content: content[:1]]
)
def test_a_damaged_file_is_a_stop_and_the_process_goes_on(tmp_path, file, damage, capfd):
    tiny(tmp_path)
    (tmp_path / file).write_bytes(damage((tmp_path / file).read_bytes()))

    with pytest.raises(ProviderStop, match="cannot be loaded") as caught:
        embedder_of(tmp_path).embed_documents(["red"])

    assert "local.modelPath" in caught.value.hint
    assert capfd.readouterr() == ("", "")
