import pytest

from memline.producers.cli import run

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})


def test_a_plan_says_files_texts_and_cost_and_writes_nothing(place, capsys):
    assert run(place.arguments("reindex", "--plan")) == 0

    assert capsys.readouterr().out.startswith("main: 1 file to read, 1 chunk; 0 texts to embed")
    assert not place.index_path.exists()


def test_without_a_queue_it_names_the_command_that_does_the_work(place, capsys):
    assert run(place.arguments("reindex", "--force")) == 1

    assert f"Try: {place.typed('index --force')}" in capsys.readouterr().err
