"""Which folders are searched under which name, and which files may be read."""

import pytest

from memline.producers.agent_view import chat_of
from memline.producers.bridges.qmd.collections import Collections
from memline.producers.bridges.qmd.home import QmdHome
from memline.producers.memory import Memory
from memline.shared.errors import AccessDenied, PathNotAllowed
from tests.unit.bridges.qmd.conftest import Place

#: All Markdown: qmd minds the case of a mask.
MARKDOWN = "**/*.{md,MD,markdown,MARKDOWN,mdown,MDOWN,mkd,MKD,mdx,MDX,qmd,QMD}"


def collections(place: Place, **qmd: object) -> Collections:
    settings = place.agent(**qmd)
    return Collections(settings, QmdHome(settings))


def test_the_workspace_its_paths_and_the_sessions_have_names_of_their_own(place: Place) -> None:
    paths = [
        {"path": "../work"},
        {"path": "../More Notes", "name": "Work Notes!", "pattern": "*.md"},
        "../work",
    ]
    made = collections(place, paths=paths, sessions={"enabled": True})

    work, more = str(place.folder / "work"), str(place.folder / "More Notes")
    assert {each.name: (each.root, each.mask) for each in made.all} == {
        "memory-root-main": (str(place.notes), "MEMORY.md"),
        "memory-alt-main": (str(place.notes), "memory.md"),
        "memory-alt-main-2": (str(place.notes), "MEMORY.MD"),
        "memory-dir-main": (str(place.notes / "memory"), MARKDOWN),
        "custom-1-main": (work, MARKDOWN),
        "work-notes-main": (more, "*.md"),
        "sessions-main": (made.exports, "**/*.md"),
    }
    # What is not there yet is left to a later update.
    assert [each.name for each in made.present()] == ["memory-root-main", "memory-dir-main"]


def test_names_that_are_alike_are_numbered(place: Place) -> None:
    made = collections(place, paths=[{"path": "../a", "name": "N"}, {"path": "../b", "name": "n"}])

    assert [each.name for each in made.all][4:] == ["n-main", "n-main-2"]


def test_a_file_is_a_collection_of_its_own(place: Place) -> None:
    (place.folder / "one.md").write_text("x")
    made = collections(place, paths=["../one.md"], includeDefaultMemory=False)

    assert [(each.root, each.mask) for each in made.present()] == [(str(place.folder), "one.md")]


def test_a_workspace_of_plain_notes_is_searched_as_a_whole(place: Place) -> None:
    (place.notes / "MEMORY.md").unlink()
    (place.notes / "memory").rename(place.notes / "diary")

    assert [(each.root, each.mask) for each in collections(place).all] == [(str(place.notes), MARKDOWN)]


def test_a_file_of_a_collection_is_read_by_its_path(place: Place) -> None:
    (place.folder / "work").mkdir()
    (place.folder / "work" / "plan.md").write_text("one\ntwo\nthree\n")
    settings = place.settings(paths=[{"path": "../work", "name": "work"}])

    with Memory.of(settings, settings.agents["main"]) as memory:
        excerpt = memory.get("qmd/work-main/plan.md#L2-L3")
        gone = memory.get("qmd/work-main/gone.md")
        note = memory.get("MEMORY.md", lines=1)

    assert (excerpt.path, excerpt.text, excerpt.first) == ("qmd/work-main/plan.md", "two\nthree", 2)
    assert (gone.status, note.text) == ("not_found", "# Facts")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("qmd/", "invalid qmd path"),
        ("qmd/work-main", "invalid qmd path"),
        ("qmd/other/x.md", "unknown qmd collection: other"),
        ("qmd/work-main/../notes/MEMORY.md", "qmd path escapes collection"),
        ("qmd/work-main//etc/passwd", "qmd path escapes collection"),
        ("qmd/work-main/..", "qmd path escapes collection"),
        ("qmd/work-main/a\0.md", "qmd path escapes collection"),
        ("qmd/work-main/plan.txt", "path required"),
        ("qmd/work-main/.hidden/x.md", "path required"),
        ("qmd/work-main/link.md", "not an allowed"),
        ("qmd/work-main/folder/x.md", "not an allowed"),
    ],
)
def test_nothing_else_is_read(place: Place, path: str, words: str) -> None:
    work = place.folder / "work"
    (work / ".hidden").mkdir(parents=True)
    (work / ".hidden" / "x.md").write_text("x")
    (place.folder / "secret.md").write_text("secret")
    (work / "link.md").symlink_to(place.folder / "secret.md")
    (work / "folder").symlink_to(place.folder)
    settings = place.settings(paths=[{"path": "../work", "name": "work"}])

    with Memory.of(settings, settings.agents["main"]) as memory, pytest.raises(PathNotAllowed, match=words):
        memory.get(path)


def test_the_long_term_note_is_private_by_that_path_too(place: Place) -> None:
    settings = place.settings()

    with Memory.of(settings, settings.agents["main"]) as memory:
        assert memory.get("qmd/memory-root-main/MEMORY.md").text
        with pytest.raises(AccessDenied):
            memory.get("qmd/memory-root-main/MEMORY.md", chat=chat_of("agent:main:discord:group:1"))
