"""A model in this process, from index to answer, as a user has it."""

import json
from pathlib import Path

import pytest

from memline.shared import packages
from memline.shared.embedders.local.model_file import ONNX
from tests.support.local_model import MODEL, Hub, gguf, needs_llama, needs_model, needs_onnx
from tests.support.onnx_model import tiny
from tests.support.shell import Shell
from tests.support.workspace import paths

DOOR = "# Office\n\nThe spare key hangs on a hook behind the blue door of the workshop.\n"
FOOD = "# Food\n\nOn Fridays we bake pizza with tomatoes and basil for everybody.\n"
MONEY = "# Invoices\n\nBills are paid on the first Monday of a month, late ones a month after.\n"

pytestmark = pytest.mark.place(
    files={"memory/office.md": DOOR, "memory/food.md": FOOD, "memory/money.md": MONEY}
)


@needs_model
@pytest.mark.parametrize("provider", ["auto", "local"])
def test_index_and_hybrid_search_need_a_model_file_and_nothing_else(place, provider):
    place.configure(provider=provider, local={"modelPath": str(MODEL)}, query={"minScore": 0.1})

    indexed = place.run("index", "--json")
    found = place.run("search", "what do we have for dinner, an Italian meal?", "--explain", "--json")
    again = place.run("index", "--json")

    assert (indexed.status, indexed.stderr) == (0, "")
    assert indexed.json[0]["vectors"] == {"embedded": 3, "cached": 0, "pending": 0, "failed": 0}
    assert (indexed.json[0]["provider"], indexed.json[0]["model"]) == ("local", MODEL.name)
    assert found.json["results"][0]["path"] == "memory/food.md"
    assert found.json["results"][0]["explain"]["late"] > 0
    assert (found.json["mode"], found.json["warning"], found.stderr) == ("hybrid", "", "")
    assert again.json[0]["vectors"]["embedded"] == 0


@needs_model
def test_status_probes_the_model(place):
    place.configure(local={"modelPath": str(MODEL)})

    (status,) = place.run("status", "--deep", "--json").json

    assert status["embeddingProbe"]["ok"] is True
    assert status["status"]["provider"] == "local"


@needs_llama
def test_a_download_that_is_impossible_says_so_and_words_are_still_found(place, monkeypatch):
    monkeypatch.setenv("MEMLINE_HF_URL", "http://127.0.0.1:1")
    place.configure(provider="local", local={"modelPath": "hf:owner/repo/model.gguf"})

    report = place.run("index", "--json")
    answer = place.search("spare key")

    assert report.status == 1
    assert "Downloading hf:owner/repo/model.gguf" in report.stderr
    assert "the download of hf:owner/repo/model.gguf was cut off" in report.json[0]["warning"]
    assert paths(answer) == ["memory/office.md"]
    assert "not on this machine yet" in answer.warning
    assert "memline index" in answer.action


@pytest.fixture
def shell(monkeypatch, capsys, tmp_path):
    """A shell in a folder without notes of its own, from which the only workspace answers."""
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def hub_of_small_models(tmp_path, monkeypatch):
    """A hub whose small ONNX model knows three colours."""
    tiny(tmp_path / "hub")
    files = {
        f"/sentence-transformers/all-MiniLM-L6-v2/resolve/main/{name}": (
            tmp_path / "hub" / Path(name).name
        ).read_bytes()
        for name in ("onnx/model.onnx", "tokenizer.json")
    }
    graph = files["/sentence-transformers/all-MiniLM-L6-v2/resolve/main/onnx/model.onnx"]
    for suited in ("quint8_avx2", "qint8_arm64"):
        name = f"/sentence-transformers/all-MiniLM-L6-v2/resolve/main/onnx/model_{suited}.onnx"
        files[name] = graph
    with Hub(files=files) as hub:
        monkeypatch.setenv("MEMLINE_HF_URL", hub.url)
        yield hub


def colours(tmp_path):
    folder = tmp_path / "colours"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("# Doors\n\nThe red door leads to the garden.\n")
    return folder


@needs_onnx
def test_init_takes_the_small_model_when_it_is_asked_for(shell, tmp_path, hub_of_small_models):
    folder = colours(tmp_path)
    assert shell("init", str(folder), "--yes").status == 0
    assert hub_of_small_models.requests == []

    ran = shell("init", str(folder), "--yes", "--provider", "local")

    assert (ran.status, "1 unchanged" in ran.stdout) == (0, True)
    assert f"Downloads {ONNX.small_model}" in ran.stdout
    assert "nothing of your notes leaves" in ran.stdout
    body = shell("status", "--json", cwd=folder).json[0]["status"]
    assert body["vector"]["ready"] == 1
    # The file is part of what the vectors are of.
    assert body["model"] == "all-MiniLM-L6-v2/" + ONNX.small_model.rpartition("/")[2]
    assert "int8" in body["model"]
    written = json.loads(Path(shell("config", "check").stdout.split("\n")[0]).read_text())
    keys = {"provider": "local", "local": {"modelPath": ONNX.small_model}}
    assert written == {"agents": {"defaults": {"memorySearch": keys}}}


def test_with_a_configuration_init_says_what_to_add_and_where(shell, tmp_path, monkeypatch):
    config = tmp_path / "c.json5"
    config.write_text("// mine\n{}\n")
    monkeypatch.setenv("MEMLINE_CONFIG", str(config))

    ran = shell("init", str(colours(tmp_path)), "--yes", "--provider", "ollama", "--base-url", "http://h:1/")

    assert (ran.status, config.read_text()) == (2, "// mine\n{}\n")
    assert f"{config} says otherwise, and is not changed; nothing was indexed" in ran.stderr
    assert '"provider": "ollama"' in ran.stdout and '"baseUrl": "http://h:1/"' in ran.stdout
    config.write_text(f"{{agents: {{defaults: {{memorySearch: {ran.stdout}}}}}}}")
    same = shell("init", str(tmp_path / "colours"), "--yes", "--provider", "ollama")
    assert "Its texts are sent to ollama" in same.stdout


def test_without_an_engine_init_names_the_command_and_writes_nothing(shell, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "missing", list)
    folder = colours(tmp_path)

    ran = shell("init", str(folder), "--yes", "--provider", "local")

    assert ran.status == 1
    assert "ONNX models need onnxruntime and tokenizers" in ran.stderr
    assert f"&& memline init {folder} --provider local" in ran.stderr
    assert "no configuration file" in shell("config", "check").stdout


@pytest.mark.parametrize(("file", "package"), [("model.onnx", "onnxruntime"), ("m.gguf", "llama-cpp-python")])
def test_a_missing_engine_is_named_wherever_one_looks(place, shell, monkeypatch, file, package):
    model = place.folder / file
    model.write_bytes(gguf() if file.endswith("gguf") else b"\x08\x08")
    (place.folder / "tokenizer.json").write_text("{}")
    place.configure(provider="local", local={"modelPath": str(model)})
    monkeypatch.setattr(packages, "missing", list)

    doctor, status = (shell(*place.arguments(command)) for command in ("doctor", "status"))

    assert doctor.status == 1
    for text in (doctor.stdout, status.stdout):
        assert f"models need {package}" in text and f"install '{package}>=" in text
