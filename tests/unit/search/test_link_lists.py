import pytest

from memline.shared.config.schema import Query
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes, paths

LIST = """# Map

- [Boat](boat.md): broker, policy and renewal of our insurance
- [[garden|The garden]] what grows where, and when it is sown
- [Tax](/memory/tax) deadlines for returns, and
  receipts that have to be kept
"""
BOAT = "# Boat\n\nThe insurance runs until May."


@pytest.fixture(autouse=True)
def _described(notes: Notes) -> None:
    notes.add("memory/boat.md", BOAT)
    notes.add("memory/garden.md", "# Garden\n\nBeans are sown in April.")
    notes.add("memory/tax.md", "# Tax\n\nReceipts are in the blue folder.")
    for number in range(20):
        notes.add(f"memory/other-{number}.md", f"We met, part {number}.")


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("insurance broker renewal", "memory/boat.md"),
        ("beans sown what grows where", "memory/garden.md"),
        ("deadlines and receipts for returns", "memory/tax.md"),
    ],
)
def test_a_note_comes_before_the_list_that_describes_it(
    question: str, path: str, notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/map.md", LIST)

    assert paths(index, question)[:2] == [path, "memory/map.md"]


def test_the_explanation_names_the_item(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST)

    hits = retrieve(index, SearchRequest(query="insurance broker renewal", explain=True), Query()).hits

    # It holds by its description what was asked.
    assert hits[0].score > hits[1].score > 0.9
    assert [hit.explanation and hit.explanation["described"] for hit in hits[:2]] == ["memory/map.md:3", ""]


@pytest.mark.parametrize(
    "question",
    # The second one is copied from the list.
    ["insurance broker renewal", "policy and renewal of our insurance"],
)
def test_a_note_comes_before_the_list_beside_vectors_too(
    question: str, notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/map.md", LIST)
    notes.embed()

    # Nothing is nearer to the question than the list.
    nearest = notes.vector(LIST.strip())
    hits = retrieve(index, SearchRequest(query=question), Query(), embed_query=lambda text: nearest).hits

    assert max(hits, key=lambda hit: hit.vector_score).path == "memory/map.md"
    assert [hit.path for hit in hits[:2]] == ["memory/boat.md", "memory/map.md"]


@pytest.mark.parametrize("path", ["memory/2026-02-10.md", "memory/2026/02/10.md"])
def test_a_log_of_a_day_describes_nothing(path: str, notes: Notes, index: SearchIndex) -> None:
    notes.add(path, LIST)

    assert paths(index, "insurance broker renewal")[0] == path


@pytest.mark.parametrize(
    "text",
    [
        # Two notes are no list.
        "\n".join(LIST.splitlines()[:4]),
        # A list of names describes nothing.
        "# Broker, policy and renewal of our insurance\n\n- [Boat](boat.md)\n- [[garden]]\n- [[tax]]\n",
        # A sentence about three notes is none of them.
        "The broker for renewal of the insurance: [Boat](boat.md), [[garden]] and [[tax]] say more of it.",
        # What is to be done says nothing of a note.
        LIST.replace("- [", "- [ ] ["),
        # An item that leads nowhere.
        LIST.replace("boat.md", "ship.md"),
        LIST.replace("boat.md", "https://example.org/boat.md"),
    ],
)
def test_what_is_no_list_describes_nothing(text: str, notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", text)

    assert paths(index, "insurance broker renewal")[0] == "memory/map.md"


def test_a_list_answers_itself_what_its_note_has_no_word_of(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST.replace("broker", "berth number 4711, broker"))

    assert paths(index, "berth number of the boat")[0] == "memory/map.md"


def test_a_list_comes_first_when_it_is_what_the_question_names(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/insurance-renewal.md", LIST.replace("Map", "Insurance renewal"))

    assert paths(index, "insurance renewal")[0] == "memory/insurance-renewal.md"


def test_a_described_note_stays_within_the_filters(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST)

    request = SearchRequest(query="insurance broker renewal", path="memory/m*")
    assert [hit.path for hit in retrieve(index, request, Query()).hits] == ["memory/map.md"]


def test_a_note_is_found_by_its_description_among_many_that_hold_a_word_of_it(
    notes: Notes, index: SearchIndex
) -> None:
    for number in range(150):
        notes.add(f"memory/insurance-{number}.md", "The insurance, the insurance, and the broker.")
    notes.add("memory/map.md", LIST)

    assert paths(index, "insurance broker renewal policy")[:2] == ["memory/boat.md", "memory/map.md"]
