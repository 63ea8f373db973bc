import json

from memline.producers.cli import run


def test_a_configuration_that_cannot_be_used_is_a_finding(tmp_path, capsys):
    file = tmp_path / "c.json5"
    file.write_text("{ agents: 7 }")

    assert run(["--config", str(file), "doctor", "--json"]) == 1

    found = json.loads(capsys.readouterr().out)[-1]
    assert (found["code"], found["level"]) == ("settings_unusable", "problem")
