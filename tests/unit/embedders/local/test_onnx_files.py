"""What the files of an ONNX model say is read before the library sees them."""

import json
from pathlib import Path

import pytest

from memline.shared.embedders.local.model_file import LLAMA, ONNX, engine_of
from memline.shared.embedders.local.onnx_files import max_tokens, pooling_of, read_head
from memline.shared.errors import ProviderStop

GRAPH = b"\x08\x08" + bytes(range(256)) * 4000


@pytest.fixture
def folder(tmp_path):
    """A folder as a model of the hub is laid out."""
    root = tmp_path / "some-model"
    (root / "onnx").mkdir(parents=True)
    (root / "1_Pooling").mkdir()
    (root / "onnx/model.onnx").write_bytes(GRAPH)
    (root / "tokenizer.json").write_text("{}")
    (root / "config.json").write_text('{"max_position_embeddings": 512}')
    (root / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return root


def test_the_engine_is_chosen_by_the_file(folder):
    for path in (folder, Path("/me@host/model.ONNX")):
        assert engine_of(path) is ONNX
    # Ollama's files have a digest as their name.
    for name in ("m.gguf", "/models/sha256-aa11"):
        assert engine_of(Path(name)) is LLAMA


def test_a_folder_its_graph_and_a_flat_copy_are_the_same_model(folder, tmp_path):
    flat = tmp_path / "copy/some-model"
    (flat / "1_Pooling").mkdir(parents=True)
    for name in ("tokenizer.json", "config.json", "1_Pooling/config.json"):
        (flat / name).write_bytes((folder / name).read_bytes())
    (flat / "model.onnx").write_bytes(GRAPH)

    heads = [read_head(path) for path in (folder, folder / "onnx/model.onnx", flat)]

    assert len({(head.name, head.digest) for head in heads}) == 1
    assert heads[0].name == "some-model/model.onnx"
    assert heads[0].path == heads[1].path == folder / "onnx/model.onnx"


@pytest.mark.parametrize(
    "name", ["onnx/model.onnx", "tokenizer.json", "config.json", "1_Pooling/config.json"]
)
def test_another_file_of_the_same_name_is_another_model(folder, name):
    before = read_head(folder).digest
    content = (folder / name).read_bytes()
    half = len(content) // 2
    (folder / name).write_bytes(content[:half] + b" " + content[half:])

    assert read_head(folder).digest != before


@pytest.mark.parametrize(
    "settings", [{"pooling_mode_max_tokens": True}, {"pooling_mode": "weightedmean"}, {"pooling_mode": [1]}]
)
def test_a_pooling_that_is_not_known_is_a_stop(folder, settings):
    (folder / "1_Pooling/config.json").write_text(json.dumps(settings))

    with pytest.raises(ProviderStop, match="in a way that is not known"):
        pooling_of(folder / "onnx/model.onnx")


@pytest.mark.parametrize(
    ("positions", "tokenizer", "expected"),
    [
        (512, 256, 256),
        (514, 512, 512),
        (512, 1e30, 512),
        (None, None, 512),
        ("x", -1, 512),
        (8192, None, 8192),
    ],
)
def test_a_text_may_be_as_long_as_the_settings_say(folder, positions, tokenizer, expected):
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": positions}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": tokenizer}))

    assert max_tokens(folder / "onnx/model.onnx") == expected
