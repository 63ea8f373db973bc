"""A plan says what a run would do, and so how stale an index is."""

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice
from memline.shared.index import meta
from memline.shared.sync.plan import IndexState, make_plan, read_index_state
from tests.support.index_rows import MODEL_A, MODEL_B, answer, file_row, lease_all, retarget

NO_CHOICE = Choice(requested=NONE, provider=NONE)


def test_without_an_index_every_file_is_to_be_read(tmp_path):
    (tmp_path / "MEMORY.md").write_text("apples\n")
    settings = AgentSettings(agent="main", workspace=tmp_path, state_dir=tmp_path, index_path=tmp_path / "x")

    plan = make_plan(settings, NO_CHOICE, IndexState())

    assert plan.files() == [("MEMORY.md", 7)]
    assert (plan.total_files, plan.behind, plan.is_behind) == (1, {"files": 1, "vectors": 0}, True)


def test_an_index_is_stale_while_vectors_are_wanted_or_the_model_changes(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    meta.put(writer.connection, meta.WORKSPACE, "/notes")
    wanting = read_index_state(writer.connection)
    answer(writer, lease_all(writer))
    complete = read_index_state(writer.connection)
    retarget(writer, MODEL_B)
    changing = read_index_state(writer.connection)

    assert (wanting.backlog.pending, complete.backlog.pending) == (1, 0)
    assert wanting.workspace == "/notes"
    assert list(wanting.files) == ["a.md"]
    assert (complete.is_changing_model, changing.is_changing_model) == (False, True)
