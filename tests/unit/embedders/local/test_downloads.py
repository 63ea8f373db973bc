"""Where a model file comes from, and what is said when it does not."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from memline.shared import packages
from memline.shared.config.schema import Local
from memline.shared.embedders.choice import choose
from memline.shared.embedders.local import downloads
from memline.shared.embedders.local.downloads import fetch, parse
from memline.shared.errors import ProviderStop
from tests.support.local_model import Hub, gguf
from tests.unit.embedders.conftest import make_settings

NAME = "hf:owner/some-model-GGUF/model-Q8_0.gguf"
URL_PATH = "/owner/some-model-GGUF/resolve/main/model-Q8_0.gguf"
CONTENT = gguf(weights=300_000)


@pytest.fixture
def hub(monkeypatch):
    with Hub(files={URL_PATH: CONTENT}) as running:
        monkeypatch.setenv("MEMLINE_HF_URL", running.url + "/")
        monkeypatch.setattr(downloads, "_failures", {})
        # What is downloaded here is never run.
        monkeypatch.setattr(packages, "missing", lambda modules: [])
        yield running


def settings_of(folder, name=NAME, **memory):
    memory = {"provider": "local", **memory}
    return replace(make_settings(local=Local(model_path=name), **memory), home=folder)


def fetched(folder, name=NAME):
    settings = settings_of(folder, name)
    fetch(settings)
    return choose(settings)


def test_a_name_is_downloaded_once_and_then_needs_no_network(tmp_path, hub):
    progress = []

    before = choose(settings_of(tmp_path))
    fetch(settings_of(tmp_path), lambda done, total: progress.append((done, total)))
    choice = fetched(tmp_path)

    assert (before.provider, choice.provider, choice.model) == ("none", "local", "model-Q8_0.gguf")
    kept = tmp_path / "models/owner/some-model-GGUF/main/model-Q8_0.gguf"
    assert kept.read_bytes() == CONTENT
    assert choice.base_url == kept.as_uri()
    assert progress[-1] == (len(CONTENT), len(CONTENT))
    assert hub.requests == [(URL_PATH, "")]
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_a_revision_is_asked_for_and_kept_apart(tmp_path, hub):
    hub.files[URL_PATH.replace("main", "v1.0")] = gguf(weights=32)

    fetched(tmp_path, f"{NAME}@v1.0")
    fetched(tmp_path)

    kept = tmp_path / "models/owner/some-model-GGUF"
    assert (kept / "v1.0/model-Q8_0.gguf").stat().st_size < (kept / "main/model-Q8_0.gguf").stat().st_size


def test_a_later_run_goes_on_with_what_an_earlier_one_got(tmp_path, hub):
    hub.faults = ["cut", "cut", "cut"]

    cut = fetched(tmp_path)
    choice = fetched(tmp_path)

    assert cut.provider == "none"
    assert f"the download of {NAME} was cut off" in cut.reason
    assert "goes on where it stopped" in cut.action
    assert choice.provider == "local"
    assert hub.requests[-1][1].startswith("bytes=")


def test_a_server_that_cannot_go_on_begins_anew(tmp_path, hub):
    hub.faults = ["cut", "no-range"]

    choice = fetched(tmp_path)

    assert choice.provider == "local"
    assert choice.endpoint
    assert Path(choice.endpoint.base_url.removeprefix("file://")).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("fault", "reason", "action"),
    [
        ("html", "is a web page", "download the model again"),
        ("403", "no permission (403)", "in a browser"),
        ("503", "failed: 503", "memline index"),
    ],
)
def test_a_download_that_fails_says_why_and_leaves_nothing_that_looks_like_a_model(
    tmp_path, hub, fault, reason, action
):
    hub.faults = [fault] * (3 if fault == "503" else 1)

    choice = fetched(tmp_path)
    mended = fetched(tmp_path)

    assert choice.provider == "none"
    assert reason in choice.reason
    assert action in choice.action
    assert mended.provider == "local"


def test_a_download_with_another_digest_is_thrown_away(tmp_path, hub):
    hub.digest = "0" * 64

    choice = fetched(tmp_path)

    assert "is damaged" in choice.reason
    assert not list((tmp_path / "models").rglob("*.gguf*"))


def test_the_mirror_of_hugging_faces_own_variable_is_asked_unless_ours_names_another(
    tmp_path, hub, monkeypatch
):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.delenv("MEMLINE_HF_URL")
    by_its_own = fetched(tmp_path)
    monkeypatch.setenv("MEMLINE_HF_URL", "http://127.0.0.1:1")
    by_ours = fetched(tmp_path / "other")

    assert (by_its_own.provider, by_ours.provider) == ("local", "none")


@pytest.mark.parametrize(
    "name",
    ["hf:model.gguf", "hf:a/b", "hf:a/b/c.bin", "hf:../b/c.gguf", "hf:a/b/../c.gguf", "hf:a/b/c.gguf@../x"],
)
def test_a_name_that_is_none_is_refused_before_any_request(tmp_path, hub, name):
    choice = fetched(tmp_path, name)

    assert "is not the name of a GGUF or ONNX file" in choice.reason
    assert not hub.requests
    with pytest.raises(ProviderStop):
        parse(name)


ONNX_NAME = "hf:owner/some-model/onnx/model.onnx"
ONNX_FILES = {
    "onnx/model.onnx": b"\x08\x08" + bytes(300_000),
    "tokenizer.json": b'{"model": {}}' + b" " * 100_000,
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
}


@pytest.fixture
def onnx_hub(hub):
    hub.files = {f"/owner/some-model/resolve/main/{name}": content for name, content in ONNX_FILES.items()}
    return hub


def test_an_onnx_model_is_downloaded_with_the_files_that_belong_to_it(tmp_path, onnx_hub):
    choice = fetched(tmp_path, ONNX_NAME)
    again = fetched(tmp_path, ONNX_NAME)

    root = tmp_path / "models/owner/some-model/main"
    assert {name: (root / name).read_bytes() for name in ONNX_FILES} == ONNX_FILES
    assert not list(root.rglob("*.part"))
    assert (choice.provider, choice.model) == ("local", "some-model/model.onnx")
    assert again.identity == choice.identity
    # The one that is named comes last: when it is there, the model is whole. The others need not exist.
    asked = [path.partition("/main/")[2] for path, _ in onnx_hub.requests]
    assert asked[-1] == "onnx/model.onnx" and len(asked) == len(set(asked))
    assert {"config.json", "tokenizer_config.json", "onnx/model.onnx_data"} < set(asked)


@pytest.mark.parametrize("file", ["model.onnx", "onnx/int8/model.onnx"])
def test_a_graph_may_be_anywhere_in_its_repository(tmp_path, onnx_hub, file):
    for name in (file, f"{file}_data"):
        onnx_hub.files[f"/owner/some-model/resolve/main/{name}"] = ONNX_FILES["onnx/model.onnx"]

    choice = fetched(tmp_path, f"hf:owner/some-model/{file}")

    assert (choice.provider, choice.model, choice.reason) == ("local", "some-model/model.onnx", "")
    assert (tmp_path / "models/owner/some-model/main" / f"{file}_data").is_file()


@pytest.mark.parametrize("provider", ["auto", "openai", "none"])
def test_nothing_is_downloaded_for_those_who_do_not_ask_for_local(tmp_path, hub, provider):
    fetch(settings_of(tmp_path, provider=provider))

    assert not hub.requests


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"PK\x03\x04 a zip file", "is not a GGUF file"),
    ],
)
@pytest.mark.usefixtures("engines_here")
def test_a_file_that_is_no_model_is_known_before_the_library_sees_it(tmp_path, content, reason):
    model = tmp_path / "model.gguf"
    model.write_bytes(content)

    choice = choose(settings_of(tmp_path, str(model)))

    assert choice.provider == "none"
    assert reason in choice.reason
    assert "local.modelPath" in choice.action


@pytest.mark.usefixtures("engines_here")
def test_a_missing_file_a_folder_and_a_pipe_are_told_apart_from_models(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "missing.gguf", tmp_path, tmp_path / "pipe.gguf"):
        choice = choose(settings_of(tmp_path, str(path)))

        assert f"the model file {path} cannot be read" in choice.reason
