import json
from pathlib import Path
from typing import Any

import pytest

from memline.producers.cli import run

CONTENT = """
// a file as people write it
{
  agents: {
    defaults: {
      workspace: "~/notes",
      memorySearch: {
        provider: "openai",
        remote: { apiKey: "sk-hush", headers: { "X-Org": "hush" }, baseUrl: "https://u:hush@host/v1" },
        query: { maxResults: 8 },
      },
    },
    list: [{ id: "main" }, { id: "work", memorySearch: { query: { maxResults: 3 } } }],
  },
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "c.json5"
    path.write_text(CONTENT)
    return path


def output_of(capsys: pytest.CaptureFixture[str], *args: str, status: int = 0) -> str:
    assert run(args) == status
    return capsys.readouterr().out


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    return dict(json.loads(output_of(capsys, "config", "show", "--json", *args)))


def test_show_gives_every_value_with_its_origin(
    capsys: pytest.CaptureFixture[str], file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://:hush@h/0")
    monkeypatch.setenv("VOYAGE_API_KEY", "hush")

    answer = shown(capsys, "--config", str(file), "--home", "/h")

    assert answer["path"] == str(file)
    assert answer["settings"]["home"] == {"value": "/h", "origin": "--home"}
    assert answer["settings"]["queue.url"] == {"value": "redis://***@h/0", "origin": "MEMLINE_QUEUE_URL"}
    assert answer["settings"]["keys.voyage"] == {"value": "(set)", "origin": "VOYAGE_API_KEY"}
    assert answer["settings"]["keys.openai"] == {"value": "(not set)", "origin": "default"}
    main, work = (agent["settings"] for agent in answer["agents"])
    assert main["workspace"] == {"value": str(home / "notes"), "origin": f"{file}: agents.defaults.workspace"}
    assert main["memorySearch.query.maxResults"]["value"] == 8
    assert work["memorySearch.query.maxResults"] == {
        "value": 3,
        "origin": f"{file}: agents.list[1].memorySearch.query.maxResults",
    }
    assert work["memorySearch.query.minScore"] == {"value": 0.35, "origin": "default"}


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_show_hides_secrets(
    capsys: pytest.CaptureFixture[str], file: Path, extra: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hush")

    text = output_of(capsys, "config", "show", "--config", str(file), *extra)

    assert "hush" not in text
    assert "X-Org" in text
    assert "(set)" in text
    assert "https://***@host/v1" in text


def test_show_of_what_is_changed_leaves_defaults_out(
    capsys: pytest.CaptureFixture[str], file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOYAGE_API_KEY", "hush")

    answer = shown(capsys, "--changed", "--config", str(file), "--agent", "work")
    text = output_of(capsys, "config", "show", "--changed", "--config", str(file), "--agent", "work")
    nothing = output_of(capsys, "config", "show", "--changed")

    assert set(answer["settings"]) == {"agents.defaults.workspace", "keys.voyage"}
    (work,) = answer["agents"]
    assert set(work["settings"]) == {
        "workspace",
        *(f"memorySearch.{key}" for key in ("provider", "query.maxResults")),
        *(f"memorySearch.remote.{key}" for key in ("apiKey", "headers", "baseUrl")),
    }
    assert (
        "memorySearch.query.maxResults" in text
        and "hush" not in text
        and "default" not in text.split("agents.defaults")[0]
    )
    assert "nothing is set" in nothing


def test_show_works_without_a_workspace(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "config", "show")

    assert "(not set)" in text
    assert "file: (none)" in text


def test_show_of_one_agent_leaves_the_others_out(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    answer = shown(capsys, "--config", str(file), "--agent", "work")

    assert [agent["agentId"] for agent in answer["agents"]] == ["work"]


def test_show_of_a_broken_file_prints_nothing_on_stdout(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c").write_text("{memorySearch: {providr: 'openai'}}")

    status = run(["--config", str(tmp_path / "c"), "config", "show", "--json"])

    output = capsys.readouterr()
    assert (status, output.out) == (2, "")
    assert "memorySearch.providr: unknown key" in output.err
    assert "Try: write provider instead" in output.err


def test_path_prints_the_file_that_is_used(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    place = home / ".config" / "memline" / "config.json5"
    place.parent.mkdir(parents=True)
    place.write_text("{}")

    assert output_of(capsys, "config", "path") == f"{place}\n"


def test_path_without_a_file_says_where_it_looked(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert run(["config", "path"]) == 1

    output = capsys.readouterr()
    assert output.out == ""
    assert str(home / ".openclaw" / "openclaw.json") in output.err


def test_check_of_a_good_file_counts_its_keys(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    text = output_of(capsys, "config", "check", "--config", str(file))

    assert text == f"{file}: 7 keys\nNo problems.\n"


def test_check_names_every_problem_and_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.json5"
    path.write_text(
        "{memory: {backend: 'qmd', qmd: {mcporter: {}}}, memorySearch: {providr: 1, query: {maxResults: 0}}}"
    )

    text = output_of(capsys, "config", "check", "--config", str(path), status=1)
    answer = json.loads(output_of(capsys, "--config", str(path), "config", "check", "--json", status=1))

    assert text.count("problem: ") == 2
    assert text.count("warning: ") == 1
    assert [found["problem"].split(": ")[1] for found in answer["problems"]] == [
        "memorySearch.providr",
        "memorySearch.query.maxResults",
    ]
    assert answer["problems"][0]["action"] == "write provider instead"
    assert len(answer["warnings"]) == 1


def test_check_of_a_file_that_does_not_parse_names_the_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c").write_text("{a: }")

    text = output_of(capsys, "config", "check", "--config", str(tmp_path / "c"), status=1)

    assert "line 1, column 5" in text
    assert text.startswith(f"{tmp_path / 'c'}: its keys are not counted\n")
