from collections.abc import Callable
from sqlite3 import Connection

from memline.shared.config.schema import Query
from memline.shared.search import retrievers
from memline.shared.search.keyword import by_keyword
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes


def by_name(connection: Connection, question: str, limit: int) -> list[tuple[int, int, bool]]:
    analysed = analyse(question)
    keyword = by_keyword(connection, analysed, None, 100)
    return retrievers.by_name(connection, analysed, keyword, None, limit)


def named(index: SearchIndex, question: str) -> dict[str, int]:
    with index.snapshot() as connection:
        found = by_name(connection, question, 50)
        path_of: Callable[[int], str] = lambda chunk_id: connection.execute(  # noqa: E731
            "SELECT path FROM files JOIN chunks ON file_id = files.id WHERE chunks.id = ?", (chunk_id,)
        ).fetchone()[0]
        return {path_of(chunk_id): tier for chunk_id, tier, _ in found}


def test_files_are_known_by_path_name_stem_and_day(notes: Notes, index: SearchIndex) -> None:
    for path in ("memory/deploy-notes.md", "memory/2026-02-10-rollout.md", "memory/other_file.md"):
        notes.add(path, "something else")

    assert named(index, "what is in memory/deploy-notes.md?") == {"memory/deploy-notes.md": retrievers.PATH}
    assert named(index, "memory/deploy-notes") == {"memory/deploy-notes.md": retrievers.PATH}
    assert named(index, "open deploy-notes.md") == {"memory/deploy-notes.md": retrievers.NAME}
    assert named(index, "Deploy notes") == {"memory/deploy-notes.md": retrievers.TITLE}
    assert named(index, "other-file") == {"memory/other_file.md": retrievers.TITLE}
    assert named(index, "2026-02-10") == {"memory/2026-02-10-rollout.md": retrievers.STEM}
    assert named(index, "deploy%notes") == {}


def test_names_are_known_in_every_form_of_their_letters(notes: Notes, index: SearchIndex) -> None:
    for path in ("memory/Ёлка зимой.md", "memory/cafe\u0301.md", "memory/Straße.md"):
        notes.add(path, "something else")

    assert named(index, "елка зимой") == {"memory/Ёлка зимой.md": retrievers.TITLE}
    assert named(index, "caf\u00e9.md") == {"memory/cafe\u0301.md": retrievers.NAME}
    assert named(index, "strasse") == {"memory/Straße.md": retrievers.TITLE}


def test_what_a_page_calls_itself_is_surer_than_what_its_file_is_called(
    notes: Notes, index: SearchIndex
) -> None:
    plugin = "---\ntitle: Tide plugin\n---\n\nHigh water."
    notes.add("memory/reference/tide.md", plugin, names="tide-plugin")
    notes.add("memory/sea/tide.md", "# Tide\n\nHigh water.")
    notes.add("memory/sea/index.md", "---\ntitle: Tide\n---\n\nHigh water.", names="tide")
    notes.add("memory/sea/gauges.md", "## Tide\n\nHigh water.")

    assert named(index, "tide") == {
        "memory/reference/tide.md": retrievers.STEM,
        "memory/sea/tide.md": retrievers.TITLE,
        "memory/sea/index.md": retrievers.TITLE,
        "memory/sea/gauges.md": retrievers.STEM,
    }


def test_a_title_inside_a_question_is_not_the_question_and_the_name_of_a_file_is(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/deploy-notes.md", "something else")

    def is_whole(question: str) -> list[bool]:
        with index.snapshot() as connection:
            return [each for _, _, each in by_name(connection, question, 50)]

    assert (
        is_whole("deploy-notes.md") == is_whole("deploy notes") == is_whole("open deploy-notes.md") == [True]
    )
    assert is_whole("open deploy-notes") == [False]


def test_of_many_files_with_one_name_the_surest_are_kept(notes: Notes, index: SearchIndex) -> None:
    for number in range(6):
        notes.add(f"memory/{number}/tide.md", "# Otherwise\n\nHigh water.")
    notes.add("memory/sea/tide.md", "# Tide\n\nHigh water.")

    with index.snapshot() as connection:
        found = by_name(connection, "tide", 3)

    assert [tier for _, tier, _ in found] == [retrievers.TITLE, retrievers.STEM, retrievers.STEM]


def test_a_title_of_several_words_is_found_inside_a_question(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/Community plugins.md", "something else")
    notes.add("memory/plugins.md", "something else")
    notes.add("memory/Install community plugins.md", "something else")

    def found(question: str) -> dict[str, int]:
        return named(index, question)

    # One word is rather what is said of a page; of titles in each other the longest is meant.
    assert found("where is the page about community plugins?") == {
        "memory/Community plugins.md": retrievers.MOST
    }
    assert found("how do I install community plugins, please") == {
        "memory/Install community plugins.md": retrievers.MOST
    }
    assert found("what do plugins do") == {}
    assert found("community plugins") == {"memory/Community plugins.md": retrievers.TITLE}


def test_a_title_with_half_of_the_words_of_a_question_is_most_of_it(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/Manage tides.md", "Where the water stands.")
    for number, word in enumerate(("working", "buoys", "ropes", "anchors", "charts", "ERR_CONN_42")):
        notes.add(f"memory/{number}.md", f"{word} of the harbour")
    for number in range(30):
        notes.add(f"memory/work {number}.md", "working all day")
    for number in range(3):
        notes.add(f"memory/{number}/notes.md", "# Open questions\n\nWho pays?")

    def tier(question: str) -> set[int]:
        return {*named(index, question).values()}

    # Counted by rarity: of half of the words the rarer half.
    assert tier("Manage tides not working") == {retrievers.MOST}
    assert tier("manage tides with buoys, ropes, anchors and charts") == {retrievers.TITLE}
    assert tier("manage tides buoys working") == {retrievers.MOST}
    assert tier("manage tides buoys ropes anchors") == {retrievers.TITLE}
    # What stands nowhere says nothing, and an id that does as much as a word.
    assert tier("manage tides zeppelins balloons") == {retrievers.MOST}
    assert tier("manage tides buoys ropes ERR_CONN_42") == {retrievers.TITLE}
    # A heading that several pages have is no title of one.
    assert tier("open questions today") == {retrievers.STEM}


def test_a_name_of_code_in_a_question_means_the_one_page_with_this_title(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/use-state.md", "---\ntitle: useState\n---\n\nA hook.", names="usestate")
    notes.add("memory/index.md", "Reference for the functions of the kit: useState and others.")
    for number in range(20):
        notes.add(f"memory/{number}.md", f"Reference for another function of the kit, number n{number}.")
    question = "Reference for the useState function of the kit"

    assert named(index, question) == {"memory/use-state.md": retrievers.MOST}
    # Words, and names of other things, are rather what is said of a page.
    assert named(index, question.lower()) == {}
    notes.add("memory/github.md", "# GitHub\n\nA forge.", names="github")
    assert named(index, "Why does the check on GitHub end so late") == {}
    hits = retrieve(index, SearchRequest(query=question), Query()).hits
    assert [hit.path for hit in hits[:2]] == ["memory/use-state.md", "memory/index.md"]

    notes.add("memory/other.md", "---\ntitle: useState\n---\n\nAnother hook.", names="usestate")
    assert {*named(index, question).values()} == {retrievers.TITLE}
