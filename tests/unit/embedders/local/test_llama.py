"""What llama.cpp does with models and with files that are none."""

import struct

import pytest

from memline.shared.config.schema import Local
from memline.shared.embedders.choice import choose
from memline.shared.embedders.local.model_file import LLAMA
from memline.shared.errors import ProviderStop
from tests.support.local_model import MODEL, REFERENCES, cosine, embedder_of, gguf, needs_model
from tests.unit.embedders.conftest import make_settings


@needs_model
def test_the_vector_that_is_pooled_here_is_the_one_that_the_library_pools():
    import llama_cpp

    texts = [reference["text"] for reference in REFERENCES[:-1]]
    library = llama_cpp.Llama(str(MODEL), embedding=True, n_ubatch=512, flash_attn=True, verbose=False)
    try:
        theirs = [library.embed(text, normalize=True) for text in texts]
    finally:
        library.close()

    embedder = embedder_of(MODEL)
    for ours, their in zip(embedder.embed_documents(texts), theirs, strict=True):
        assert cosine(ours, their) >= 0.9999
    embedder.close()


@needs_model
@pytest.mark.parametrize("architecture", ["bert", "no-such-architecture"])
def test_a_file_that_the_library_cannot_use_is_a_stop_in_its_words(tmp_path, architecture, capfd):
    model = tmp_path / "model.gguf"
    model.write_bytes(gguf(general__architecture=architecture, **{f"{architecture}__pooling_type": 1}))

    embedder = choose(make_settings(local=Local(model_path=str(model)))).build()

    with pytest.raises(ProviderStop, match=r"cannot be loaded \(.+\)") as caught:
        embedder.embed_documents(["x"])
    embedder.close()
    assert caught.value.hint
    assert capfd.readouterr() == ("", "")


@needs_model
@pytest.mark.parametrize("pooling", [0, 4])
def test_a_chat_model_and_a_reranker_are_refused_with_what_to_take(tmp_path, pooling):
    model = tmp_path / "chat.gguf"
    key = b"bert.pooling_type" + struct.pack("<I", 4)
    whole = MODEL.read_bytes()
    assert key + struct.pack("<I", 1) in whole
    model.write_bytes(whole.replace(key + struct.pack("<I", 1), key + struct.pack("<I", pooling)))

    with pytest.raises(ProviderStop, match="not an embedding model") as caught:
        embedder_of(model).embed_documents(["x"])

    assert "embeddinggemma" in caught.value.hint


@needs_model
def test_a_truncated_model_is_a_stop_and_the_process_goes_on(tmp_path):
    whole = MODEL.read_bytes()
    model = tmp_path / "model.gguf"
    for end in (30, 5_000, 300_000, len(whole) // 2, len(whole) - 1):
        model.write_bytes(whole[:end])
        with pytest.raises(ProviderStop, match="cannot be loaded"):
            embedder_of(model).embed_documents(["x"])


@pytest.mark.parametrize(
    ("keys", "file", "expected"),
    [
        ({"general__architecture": "gemma-embedding"}, "m.gguf", "embeddinggemma"),
        ({"general__name": "Embeddinggemma 300M"}, "m.gguf", "embeddinggemma"),
        ({"general__architecture": "nomic-bert"}, "m.gguf", "nomic-embed"),
        ({"general__name": "multilingual e5 large"}, "m.gguf", "e5"),
        ({}, "multilingual-e5-large-instruct-q8_0.gguf", "e5-instruct"),
        ({"general__name": "Qwen3 Embedding 0.6B"}, "m.gguf", "qwen3-embedding"),
        ({}, "mxbai-embed-large-v1-f16.gguf", "mxbai"),
        ({"general__name": "bge-small-en-v1.5"}, "bge-small-en-v1.5.gguf", ""),
    ],
)
@pytest.mark.usefixtures("engines_here")
def test_the_family_of_a_model_is_known_by_its_own_words(tmp_path, keys, file, expected):
    model = tmp_path / file
    model.write_bytes(gguf(**keys))

    assert LLAMA.read_head(model).family == expected
