import json

from memline.producers.cli import run


def test_each_problem_comes_with_the_command_that_fixes_it(place, capsys):
    place.configure(provider="openai")

    assert run(place.arguments("doctor")) == 1

    lines = capsys.readouterr().out.splitlines()
    problem = next(number for number, line in enumerate(lines) if line.startswith("FAIL "))
    assert lines[problem + 1].startswith("     try: ")


def test_a_configuration_that_cannot_be_used_is_a_finding(tmp_path, capsys):
    file = tmp_path / "c.json5"
    file.write_text("{ agents: 7 }")

    assert run(["--config", str(file), "doctor", "--json"]) == 1

    found = json.loads(capsys.readouterr().out)[-1]
    assert (found["code"], found["level"]) == ("settings_unusable", "problem")
