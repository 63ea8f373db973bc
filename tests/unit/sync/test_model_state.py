import pytest

from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import remote

pytestmark = pytest.mark.place(
    files={f"memory/{name}.md": f"# {name}\n\nA note about {name}.\n" for name in ("one", "two")}
)


def test_an_index_without_vectors_lacks_all_of_the_chosen_model(place):
    with EmbeddingServer() as server:
        place.configure(**remote(server.url))

        answers = [place.search("note"), place.search("note")]

    assert server.requests == []
    for answer in answers:
        assert (answer.stale, answer.behind.vectors, answer.action) == (True, 2, "memline index")
        assert answer.warning.startswith("nothing is embedded yet: 2 texts to embed with openai stub")
    status = place.status()
    assert (status["dirty"], status["behind"]["vectors"]) == (True, 2)
    assert "warn agent main: nothing is embedded yet: 2 texts" in place.run("doctor").stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "other"}, "the settings choose openai other"),
        ({"provider": "none"}, "the settings embed nothing, the index has vectors of openai stub"),
    ],
)
def test_another_model_is_told_before_it_is_indexed(place, change, words):
    with EmbeddingServer() as server:
        place.configure(**remote(server.url))
        place.index()
        place.configure(**change)

        assert place.search("note").warning.startswith(words)
        place.index()
        assert place.search("note").warning == ""


@pytest.mark.parametrize(
    ("dims", "headers", "words"),
    [(8, {}, "dimensions"), (0, {"headers": {"X-Team": "notes"}}, "address or headers")],
)
def test_what_differs_of_the_same_model_is_told(place, dims, headers, words):
    with EmbeddingServer() as server:
        place.configure(**remote(server.url))
        place.index()
        place.memory["remote"] |= headers
        place.configure(outputDimensionality=dims)

        warning = place.search("note").warning

        assert f"the index has its vectors with another {words}: 2 texts" in warning
