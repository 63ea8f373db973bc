"""What llama.cpp does with models and with files that are none."""

import pytest

from memline.shared.config.schema import Local
from memline.shared.embedders.choice import choose
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
