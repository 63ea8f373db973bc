"""A model in this process, from index to answer, as a user has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.local_model import MODEL, gguf, needs_model, needs_onnx
from tests.support.workspace import Place, paths

DOOR = "# Office\n\nThe spare key hangs on a hook behind the blue door of the workshop.\n"
FOOD = "# Food\n\nOn Fridays we bake pizza with tomatoes and basil for everybody.\n"
MONEY = "# Invoices\n\nBills are paid on the first Monday of a month, late ones a month after.\n"


@pytest.fixture
def place(place: Place) -> Place:
    for name, text in (("office", DOOR), ("food", FOOD), ("money", MONEY)):
        place.write(f"memory/{name}.md", text)
    return place


@needs_model
@pytest.mark.parametrize("provider", ["auto", "local"])
def test_index_and_hybrid_search_need_a_model_file_and_nothing_else(place: Place, provider: str) -> None:
    place.configure(provider=provider, local={"modelPath": str(MODEL)}, query={"minScore": 0.1})

    indexed = place.run("index", "--json")
    found = place.run("search", "what do we have for dinner, an Italian meal?", "--json")
    again = place.run("index", "--json")

    assert (indexed.status, indexed.stderr) == (0, "")
    assert indexed.json[0]["vectors"] == {"embedded": 3, "cached": 0, "pending": 0, "failed": 0}
    assert (indexed.json[0]["provider"], indexed.json[0]["model"]) == ("local", MODEL.name)
    assert found.json["results"][0]["path"] == "memory/food.md"
    assert (found.json["mode"], found.json["warning"], found.stderr) == ("hybrid", "", "")
    assert again.json[0]["vectors"]["embedded"] == 0


@needs_onnx
def test_an_onnx_model_finds_by_meaning_and_token_by_token(place: Place, onnx_folder: Path) -> None:
    place.configure(local={"modelPath": str(onnx_folder)}, query={"minScore": 0.1})

    indexed = place.run("index", "--json")
    found = place.run("search", "what do we have for dinner, an Italian meal?", "--explain", "--json")

    assert (indexed.status, indexed.stderr) == (0, "")
    assert indexed.json[0]["model"] == "all-MiniLM-L6-v2/model.onnx"
    assert indexed.json[0]["vectors"]["embedded"] == 3
    assert found.json["results"][0]["path"] == "memory/food.md"
    assert (found.json["mode"], found.json["warning"]) == ("hybrid", "")
    assert '"met"' in found.stdout


@needs_model
def test_status_probes_the_model(place: Place) -> None:
    place.configure(local={"modelPath": str(MODEL)})

    (status,) = place.run("status", "--deep", "--json").json

    assert status["embeddingProbe"]["ok"] is True
    assert status["status"]["provider"] == "local"


def test_a_model_that_cannot_work_says_so_and_words_are_still_found(place: Place) -> None:
    model = place.folder / "chat.gguf"
    model.write_bytes(gguf(general__architecture="llama"))
    place.configure(provider="local", local={"modelPath": str(model)})

    report = place.run("index", "--json")
    answer = place.search("spare key")

    assert report.status == 1
    assert "not an embedding model" in report.json[0]["warning"]
    assert "embeddinggemma" in report.json[0]["action"]
    assert paths(answer) == ["memory/office.md"]
    assert (answer.mode, answer.stale) == ("keyword", True)


def test_a_download_that_is_impossible_says_so_and_words_are_still_found(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
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
