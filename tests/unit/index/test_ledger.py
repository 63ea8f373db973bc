"""The ledger keeps a row for every file, also for a while after it was removed."""

from memline.shared.index import ledger
from tests.support.index_rows import file_row


def test_a_removed_file_is_not_counted_and_forgotten_after_a_while(writer):
    writer.store_file(file_row("a.md", "apples", at=1))
    writer.store_file(file_row("b.md", at=1, outcome="not_text"))
    writer.store_file(file_row("a.md", at=5, outcome=ledger.REMOVED))

    assert ledger.outcome_counts(writer.connection) == {"not_text": 1}
    assert list(ledger.entries(writer.connection)) == ["b.md"]
    assert ledger.entry(writer.connection, "a.md") is not None
    ledger.forget_removed(writer.connection, before_ns=6)
    assert ledger.entry(writer.connection, "a.md") is None


def test_problems_are_the_files_that_a_user_should_look_at(writer):
    for path, outcome in (("b.md", "not_text"), ("a.md", "failed"), ("c.md", "symlink"), ("d.md", "empty")):
        writer.store_file(file_row(path, outcome=outcome))

    found = ledger.problems(writer.connection)

    assert [(entry.path, entry.outcome) for entry in found] == [("a.md", "failed"), ("b.md", "not_text")]


def test_sources_are_those_of_the_files(writer):
    writer.store_file(file_row("a.md", "apples"))

    assert ledger.sources(writer.connection) == {"memory"}
    assert ledger.source_counts(writer.connection) == [("memory", 1, 1)]
