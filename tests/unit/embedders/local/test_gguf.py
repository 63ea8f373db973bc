"""What a model file says of itself is read before the library sees it."""

import pytest

from memline.shared.embedders.local.gguf import pooling_of, read_head
from memline.shared.embedders.local.model_file import FAMILIES
from memline.shared.errors import ProviderStop
from tests.support.local_model import gguf

CONTENT = gguf(weights=300_000)


def test_a_model_that_was_trained_further_is_another_one(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(CONTENT)
    before = read_head(model).digest
    # Names, size, first and last weights are the same.
    third = len(CONTENT) // 3
    model.write_bytes(CONTENT[:third] + bytes(third) + CONTENT[2 * third :])

    assert read_head(model).digest != before


def test_a_truncated_model_is_known_wherever_it_was_cut(tmp_path):
    whole = gguf(tokenizer__ggml__tokens=["a", "bc", "def"])
    model = tmp_path / "model.gguf"
    model.write_bytes(whole)
    pooling_of(model)

    for end in range(24, len(whole)):
        model.write_bytes(whole[:end])
        with pytest.raises(ProviderStop, match="ends too early"):
            pooling_of(model)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"general__architecture": "llama"}, "not an embedding model"),
        ({"bert__pooling_type": 0}, "not an embedding model"),
        ({"bert__pooling_type": 4}, "a reranker"),
    ],
)
def test_a_chat_model_and_a_reranker_are_refused_with_what_to_take(tmp_path, keys, reason):
    model = tmp_path / "chat.gguf"
    model.write_bytes(gguf(**keys))

    with pytest.raises(ProviderStop, match=reason) as caught:
        pooling_of(model)

    assert "embeddinggemma" in caught.value.hint


@pytest.mark.parametrize(
    ("keys", "file", "expected"),
    [
        ({"general__architecture": "gemma-embedding"}, "m.gguf", "embeddinggemma"),
        ({"general__name": "Embeddinggemma 300M"}, "m.gguf", "embeddinggemma"),
        ({"general__architecture": "nomic-bert"}, "m.gguf", "nomic-embed"),
        ({}, "nomic-embed-text-v1.5.Q8_0.gguf", "nomic-embed"),
        ({"general__name": "multilingual e5 large"}, "m.gguf", "e5"),
        ({}, "multilingual-e5-large-instruct-q8_0.gguf", "e5-instruct"),
        ({"general__name": "Qwen3 Embedding 0.6B"}, "m.gguf", "qwen3-embedding"),
        ({}, "mxbai-embed-large-v1-f16.gguf", "mxbai"),
        ({"general__name": "all-MiniLM-L6-v2"}, "all-MiniLM-L6-v2-q8_0.gguf", "minilm"),
        ({"general__name": "bge-small-en-v1.5"}, "bge-small-en-v1.5.gguf", ""),
    ],
)
def test_the_family_of_a_model_is_known_by_its_own_words(tmp_path, keys, file, expected):
    model = tmp_path / file
    model.write_bytes(gguf(**keys))

    assert read_head(model).family == expected
    assert expected in FAMILIES
