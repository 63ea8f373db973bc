"""Links are rows as they are written; which note one leads to is decided when it is asked."""

import pytest
from msgspec.structs import replace

from memline.shared.index.links import Resolver, dead, linked
from memline.shared.index.rows import Link
from tests.support.index_rows import file_row


class Notes:
    """Writes notes with links into an index."""

    def __init__(self, writer):
        self.writer = writer
        self._at = 0

    def add(self, path, *targets, names="", text="x"):
        """A target that begins or ends like a path is a Markdown link."""
        self._at += 1
        links = tuple(
            Link(line=line, target=target, is_path=target.endswith(".md") or target.startswith("/"))
            for line, target in enumerate(targets, 1)
        )
        self.writer.store_file(replace(file_row(path, text, at=self._at), links=links, names=names))

    def remove(self, path):
        self._at += 1
        self.writer.store_file(file_row(path, at=self._at, outcome="removed"))

    def of(self, path, *, private=True):
        out, back = linked(self.writer.connection, path, private=private)
        return [each.path for each in out], [each.path for each in back]


@pytest.fixture
def notes(writer):
    return Notes(writer)


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("plan", "boats/plan.md"),
        ("PLAN", "boats/plan.md"),
        ("boats/plan", "boats/plan.md"),
        ("oats/twin", ""),
        ("plan.md", "boats/plan.md"),
        ("../boats/plan.md", "boats/plan.md"),
        ("/boats/plan.md", "boats/plan.md"),
        ("rollout", "boats/plan.md"),
        ("the heading", "boats/plan.md"),
        ("50%20off", "50%20off.md"),
        ("twin", "boats/twin.md"),
        ("old/twin", ""),
        ("./twin", "boats/twin.md"),
        ("../far/away/twin.md", "far/away/twin.md"),
        ("/boats/plan", "boats/plan.md"),
        ("/plan", ""),
        ("nothing", ""),
        ("../../../etc/passwd", ""),
    ],
)
def test_a_link_leads_to_the_note_that_its_path_name_or_alias_means(notes, target, meant):
    notes.add("boats/plan.md", names="rollout", text="# The Heading")
    notes.add("50%20off.md")
    notes.add("boats/twin.md")
    notes.add("far/away/twin.md")

    resolver = Resolver(notes.writer.connection)
    is_path = target.endswith(".md") or target.startswith("/")
    assert resolver.note(target, is_path=is_path, of="boats/from.md") == meant


def test_a_path_without_an_ending_is_not_dead_where_it_leads_nowhere(notes):
    notes.add("a.md", "/pricing", "gone.md", "gone")

    found = dead(notes.writer.connection, private=True)
    assert [(line, target) for _, line, target, _ in found] == [(2, "gone.md"), (3, "gone")]


def test_of_notes_of_one_name_that_beside_the_link_is_meant_else_the_one_nearest_to_the_root(notes):
    notes.add("twin.md")
    notes.add("a/twin.md")
    notes.add("a/b/c/twin.md", names="name")
    notes.add("z/twin.md", names="name")

    resolver = Resolver(notes.writer.connection)
    assert resolver.note("twin", is_path=False, of="a/b/x.md") == "twin.md"
    assert resolver.note("name", is_path=False, of="a/b/c/x.md") == "a/b/c/twin.md"
    assert resolver.note("name", is_path=False, of="q/x.md") == "z/twin.md"


def test_a_note_says_what_it_links_to_and_what_links_to_it(notes):
    notes.add("a.md", "c", "b.md", "nothing", "a", "C")
    notes.add("b.md", "A", text="# Title of b")
    notes.add("c.md", "the a", "./sub/../a.md")
    notes.add("a/a.md", "../a.md")
    notes.add("a.md", "c", "b.md", "nothing", "a", "C", names="the-a")

    assert notes.of("a.md") == (["c.md", "b.md"], ["a/a.md", "b.md", "c.md"])
    (_, second), _ = linked(notes.writer.connection, "a.md", private=True)
    assert second.title == "Title of b"
    assert notes.of("b.md") == (["a.md"], ["a.md"])
    assert notes.of("no.md") == ([], [])
