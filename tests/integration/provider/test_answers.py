import pytest

from tests.integration.provider.conftest import NOTES, ROWS, TEXTS, with_notes
from tests.support.workspace import note, paths


@pytest.mark.parametrize("fault", ["permuted", "no-index", "floats", "no-base64"])
def test_unusual_answers_that_fit_give_the_same_vectors(place, server, right, fault):
    server.control({"fault": fault})

    report = place.index()

    assert not report.failed
    assert place.contents().vectors == right
    assert not server.repeated() or fault == "no-base64"


@pytest.mark.parametrize(
    ("fault", "most_repeated"),
    [
        ("max-rows:4", 0),
        # A text that is larger than those before it goes wrong once.
        ("max-bytes:3100", ROWS),
        ("only-rows:4", 0),
        # After many quick answers a request of two is tried once.
        ("only-rows:1", 2),
        ("same-index", 2),
    ],
)
def test_a_cap_is_learned_and_kept(place, server, right, fault, most_repeated):
    server.control({"fault": fault})

    report = place.index()
    server.control({"clear_log": True})
    with_notes(place, 2 * NOTES)
    again = place.index()

    assert not report.failed
    assert not again.failed
    assert right.items() <= place.contents().vectors.items()
    assert len(server.repeated()) <= most_repeated


@pytest.mark.parametrize(
    "fault",
    [
        "refuse:word3x1x",
        "nan:word3x1x",
        "zero:word3x1x",
        "wrong-dims:word3x1x",
        "blocked:word3x1x",
        "424-text:word3x1x",
        "max-text-tokens:300",
    ],
)
def test_one_text_that_gets_no_vector_fails_alone_with_path_and_reason(place, server, right, fault):
    if fault.startswith("max-text"):
        place.write("memory/note-3.md", note(3) + "\n## Long\n\n" + "word3x1x " * 150)
    server.control({"fault": fault})

    report = place.index()

    assert report.failed
    assert report.vectors["pending"] == 0
    assert report.vectors["failed"] == len(report.failures) == 1
    (failure,) = report.failures
    assert failure["path"] == "memory/note-3.md"
    assert failure["reason"]
    assert failure["textHash"]
    assert bytes.fromhex(failure["textHash"]) not in place.contents().vectors
    stored = place.contents().vectors
    assert len(right.items() & stored.items()) >= TEXTS - 1
    assert place.status()["vector"]["failed"] == 1
    assert paths(place.search("word3x1x7"))[0] == "memory/note-3.md"

    server.control({"fault": ""})
    assert not place.index().failed


def test_a_model_that_changed_behind_its_name_is_not_mixed_and_re_embed_heals_it(place, server, right):
    place.index()
    before = place.contents().vectors
    place.write("memory/new.md", note(99))
    server.control({"fault": "wrong-dims"})

    report = place.index()
    kept = place.contents().vectors
    healed = place.index(re_embed=True)

    assert report.failed
    assert "--re-embed" in report.action + str(report.failures)
    assert kept == before
    assert not healed.failed
    assert {len(vector) for vector in place.contents().vectors.values()} == {4 * 15}
