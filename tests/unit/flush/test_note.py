import pytest

from memline.shared.config.schema import Compaction
from memline.shared.flush import flush as run
from memline.shared.flush.flush import threshold_in


def test_the_reserve_and_the_soft_threshold_leave_room_in_a_small_window():
    compaction = Compaction()

    assert threshold_in(compaction, 200_000) == 176_000
    assert threshold_in(compaction, 16_384) == 4_000
    assert threshold_in(compaction, 0) == 0


def test_lines_that_stand_there_already_are_not_written_again(tmp_path):
    first = run.write(tmp_path, "memory/d.md", "## Session\n- Ada moves to Oslo\n- Tea is out")
    second = run.write(tmp_path, "memory/d.md", "## Session\n* ada  moves to Oslo\n- Rent is due")
    third = run.write(tmp_path, "memory/d.md", "## Session\n\n- Rent is due")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == "## Session\n- Ada moves to Oslo\n- Tea is out\n\n## Session\n- Rent is due\n"
    assert (first.start_line, first.end_line) == (1, 3)
    assert (second.start_line, second.end_line) == (5, 6)
    assert third.start_line == 0


def test_a_line_below_an_item_belongs_to_it(tmp_path):
    run.write(tmp_path, "memory/d.md", "- Rent\n  - status: done\n- Tea\n  - status: done")
    run.write(tmp_path, "memory/d.md", "- Rent\n  - status: done\n- Car\n  - status: done")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == ("- Rent\n  - status: done\n- Tea\n  - status: done\n\n- Car\n  - status: done\n")


def test_code_stays_whole_and_is_ended(tmp_path):
    run.write(tmp_path, "memory/d.md", "- a\n```sh\nls\n\nls\n```\n- b\n```\nls")

    text = (tmp_path / "memory/d.md").read_text("utf-8")
    assert text == "- a\n```sh\nls\n\nls\n```\n- b\n```\nls\n```\n"


@pytest.mark.parametrize("entry", ["", "\n\n", "# Heading", "- \n* \n---", "```\n```"])
def test_an_entry_that_says_nothing_makes_no_note(tmp_path, entry):
    assert run.write(tmp_path, "memory/d.md", entry).start_line == 0
    assert not (tmp_path / "memory").exists()
