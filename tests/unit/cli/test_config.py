import json

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
def file(tmp_path):
    path = tmp_path / "c.json5"
    path.write_text(CONTENT)
    return path


def output_of(capsys, *args, status=0):
    assert run(args) == status
    return capsys.readouterr().out


def shown(capsys, *args):
    return dict(json.loads(output_of(capsys, "config", "show", "--json", *args)))


def test_show_gives_the_merged_values(capsys, file, home, monkeypatch):
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://:hush@h/0")

    answer = shown(capsys, "--config", str(file), "--home", "/h")

    assert (answer["path"], answer["home"], answer["queue"]["url"]) == (str(file), "/h", "redis://***@h/0")
    main, work = answer["agents"]
    assert main["workspace"] == str(home / "notes")
    assert [each["memorySearch"]["query"]["maxResults"] for each in (main, work)] == [8, 3]


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_show_hides_secrets(capsys, file, extra, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "hush")

    text = output_of(capsys, "config", "show", "--config", str(file), *extra)

    assert "hush" not in text
    assert "X-Org" in text
    assert "(set)" in text
    assert "https://***@host/v1" in text


def test_check_without_a_file_says_where_it_would_be(capsys, home):
    assert str(home / ".config/memline/config.json5") in output_of(capsys, "config", "check")


def test_check_names_the_first_problem_and_fails(capsys, tmp_path):
    path = tmp_path / "c.json5"
    path.write_text(
        "{memory: {backend: 'qmd', qmd: {mcporter: {}}}, memorySearch: {providr: 1, query: {maxResults: 0}}}"
    )

    text = output_of(capsys, "config", "check", "--config", str(path), status=1)
    answer = json.loads(output_of(capsys, "--config", str(path), "config", "check", "--json", status=1))

    assert text.count("problem: ") == 1
    (found,) = answer["problems"]
    assert "memorySearch.providr: unknown key" in found["problem"]
    assert found["action"] == "write provider instead"
