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
        ("sown: what grows where", "memory/garden.md"),
        ("deadlines and receipts for returns", "memory/tax.md"),
    ],
)
def test_a_note_comes_before_the_list_that_describes_it(
    question: str, path: str, notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/map.md", LIST)

    assert paths(index, question)[:2] == [path, "memory/map.md"]


CARDS = """# Map

<CardGroup>
<Card title="Boat [old]" href="/memory/boat">
Broker, policy and<br/>
renewal of our insurance
</Card>
<Card title="The garden" href="/memory/garden">What grows where, and when it is sown</Card>
<Card title="Tax" href="/memory/tax" icon="coin">

  Deadlines for returns
</Card>
</CardGroup>
"""


def test_cards_of_a_site_are_a_list(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", CARDS)

    assert paths(index, "insurance broker renewal")[:2] == ["memory/boat.md", "memory/map.md"]
    assert paths(index, "sown: what grows where")[:2] == ["memory/garden.md", "memory/map.md"]


def test_a_card_ends_at_the_next_one_and_has_to_say_something(notes: Notes, index: SearchIndex) -> None:
    # The first one has no end, and says no more than its attributes.
    cards = CARDS.replace("Broker, policy and<br/>\nrenewal of our insurance\n</Card>", "")
    notes.add("memory/map.md", cards.replace("[old]", "broker, renewal and insurance"))

    assert paths(index, "insurance broker renewal")[0] == "memory/map.md"


def test_a_comment_is_no_list(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", f"<!--\n{CARDS}-->")

    assert paths(index, "insurance broker renewal")[0] == "memory/map.md"


def test_the_explanation_names_the_item(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST)

    hits = retrieve(index, SearchRequest(query="insurance broker renewal", explain=True), Query()).hits

    # It scores like the list by its description, and holds itself a part.
    assert hits[0].score > hits[1].score > 0.9
    assert hits[0].text_score < hits[1].text_score == 1
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


def test_a_note_that_comes_first_by_itself_needs_no_description(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST)

    hits = retrieve(index, SearchRequest(query="boat insurance", explain=True), Query()).hits

    assert [hit.path for hit in hits[:2]] == ["memory/boat.md", "memory/map.md"]
    assert hits[0].explanation and hits[0].explanation["described"] == ""


@pytest.mark.parametrize(
    ("path", "day"),
    [("memory/2026-02-10.md", ""), ("memory/2026/02/10.md", ""), ("memory/log.md", "2026-02-10")],
)
def test_a_log_of_a_day_describes_nothing(path: str, day: str, notes: Notes, index: SearchIndex) -> None:
    notes.add(path, LIST, day=day)

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
        # No item holds enough of it.
        LIST.replace("broker, ", "").replace("what grows where", "who is the broker of it"),
        # Code is an example.
        f"```\n{LIST}```\n",
        # An item that leads nowhere, or to the list.
        LIST.replace("boat.md", "map.md"),
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


def test_an_id_comes_before_what_is_said_of_it(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST.replace("broker", "broker E40215"))

    assert paths(index, "insurance E40215")[0] == "memory/map.md"


def test_a_note_without_a_word_of_the_question_is_no_hit(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/boat.md", "# Ship\n\nNothing is said here.")
    notes.add("memory/map.md", LIST)

    assert paths(index, "broker policy renewal") == ["memory/map.md"]


def test_items_of_another_language_are_found_in_any_number(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/dorf.md", "# Dorf\n\nJeder Baum am See wird gepflegt, jedes Haus gestrichen.")
    item = "- [Dorf](dorf.md): Häuser, Verträge und Bäume am See"
    notes.add("memory/map.md", LIST + item)

    for question in (
        "wo sind die Häuser, die Verträge und die Bäume",
        "wo ist der Baum, das Haus und der Vertrag",
    ):
        assert paths(index, question)[:2] == ["memory/dorf.md", "memory/map.md"]


def test_a_described_note_stays_within_the_filters(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST)

    request = SearchRequest(query="insurance broker renewal", path="memory/m*")
    assert [hit.path for hit in retrieve(index, request, Query()).hits] == ["memory/map.md"]


def test_a_group_does_not_learn_what_the_private_note_is_called(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/map.md", LIST.replace("[Boat](boat.md)", "[[boat]]"))
    request = SearchRequest(query="insurance broker renewal", private=False)

    for names in ("", "boat"):
        notes.add("MEMORY.md", "private things", names=names)
        hits = retrieve(index, request, Query()).hits
        assert [hit.path for hit in hits[:2]] == ["memory/boat.md", "memory/map.md"]


def test_a_note_is_found_by_its_description_among_many_that_hold_a_word_of_it(
    notes: Notes, index: SearchIndex
) -> None:
    for number in range(150):
        notes.add(f"memory/insurance-{number}.md", "The insurance, the insurance, and the broker.")
    notes.add("memory/map.md", LIST)

    assert paths(index, "insurance broker renewal policy")[:2] == ["memory/boat.md", "memory/map.md"]
