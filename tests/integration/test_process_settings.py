"""Each process of a home shows a digest of the settings that it has, and those that differ are told."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config import environment
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.workspace import Place, until


def digests(place: Place) -> dict[str, str | None]:
    """Kind of each process -> its digest."""
    (report,) = place.call("status", "--json").json
    return {each["kind"]: each["settings"] for each in report["processes"]}


def test_processes_with_the_same_settings_have_the_same_digest_and_a_change_is_seen(place: Place) -> None:
    place.write("memory/a.md", "# A\n")
    with running_memline(*place.arguments("up")) as first:
        until(lambda: bool(digests(place).get("up")), "a digest")
        before = digests(place)["up"]
        end(first)
    with running_memline(*place.arguments("up")) as second:
        until(lambda: bool(digests(place).get("up")), "a digest of the next")
        again = digests(place)["up"]
        place.configure(query={"maxResults": 3})
        until(lambda: digests(place).get("up") not in (None, again), "that the change is taken")
        end(second)

    assert before == again
    assert before is not None and len(before) == 12 and int(before, 16) >= 0
    (key,) = place.home.glob(".settings-key*")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_process_that_starts_again_while_its_settings_are_invalid_waits_for_good_ones(place: Place) -> None:
    place.write("memory/a.md", "# A\n")
    good = place.config.read_text()
    place.config.write_text("{")
    with running_memline(*place.arguments("up"), env={environment.STARTED_AGAIN: "1"}) as process:
        assert process.stderr is not None
        assert "waits for settings that can be read" in process.stderr.readline()

        place.config.write_text(good)

        until(lambda: bool(digests(place).get("up")), "its start")
        end(process)


@pytest.mark.place(server={})
def test_processes_of_a_home_that_were_given_other_settings_are_told_by_the_names_of_keys(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    place.write("memory/a.md", "# A\n")
    other = tmp_path / "other.json5"
    content = json.loads(place.config.read_text())
    content["agents"]["defaults"]["memorySearch"]["remote"]["apiKey"] = "sk-secret"
    other.write_text(json.dumps(content))
    server.control({"fault": "hang"})

    def findings() -> list[dict[str, Any]]:
        (report,) = place.call("status", "--json").json
        return [each for each in report["findings"] if each["code"] == "settings_differ"]

    with (
        running_memline(*place.arguments("serve", "--port", "0")) as serve,
        running_memline(*place.arguments("--config", str(other), "index")) as index,
    ):
        until(lambda: bool(findings()), "the finding")
        (found,) = findings()
        assert digests(place).keys() == {"serve", "index"} and all(digests(place).values())
        for process in (index, serve):
            process.terminate()

    assert "memorySearch.remote.apiKey" in found["what"] and "sk-" not in json.dumps(found)
    assert all(str(each.pid) in found["what"] for each in (serve, index))


def findings_of(place: Place, code: str) -> list[dict[str, Any]]:
    (report,) = place.call("status", "--json").json
    return [each for each in report["findings"] if each["code"] == code]


@pytest.mark.place(server={}, notes=3)
def test_a_changed_model_is_told_with_its_price_before_the_first_request(
    place: Place, server: EmbeddingServer
) -> None:
    place.index()
    texts = place.vector_states()["ready"]
    # The provider holds its answers: what is told was known before any came.
    server.control({"fault": "hang", "clear_log": True})
    place.configure(model="other")
    content = json.loads(place.config.read_text())
    place.config.write_text(json.dumps(content | {"prices": {"other": {"perMillion": 1_000}}}))

    with running_memline(*place.arguments("up")) as process:
        until(lambda: bool(server.requests), "the first request")
        (told,) = findings_of(place, "model_changing")
        end(process)

    first = server.requests[0]
    assert first.body["model"] == "other" and told["since"] <= first.at
    tokens = int(re.search(r"([\d,]+) tokens", told["what"])[1].replace(",", ""))  # type: ignore[index]
    assert f"the model changes to openai other: {texts} texts to embed, " in told["what"]
    assert tokens > 0 and told["what"].endswith(f"about ${tokens / 1_000:,.4f}")


@pytest.mark.parametrize(
    ("broken", "line"),
    [('{\n  "agents": {\n    "defaults": }\n}', "3"), ('{\n  "agents": [\n', "2")],
    ids=["a value that is missing", "an end that is missing"],
)
def test_settings_that_cannot_be_read_are_a_finding_with_file_and_line(
    place: Place, broken: str, line: str
) -> None:
    place.write("memory/a.md", "# A\n")
    good, other = place.config.read_text(), place.config.with_name("good.json5")
    other.write_text(good)

    def told() -> list[dict[str, Any]]:
        # With settings that can be read: those of the process cannot.
        ran = place.call("--config", str(other), "status", "--json")
        return [each for each in ran.json[0]["findings"] if each["code"] == "settings_invalid"]

    with running_memline(*place.arguments("up")) as process:
        until(lambda: bool(digests(place).get("up")), "its start")
        place.config.write_text(broken)
        until(lambda: bool(told()), "the finding")
        (found,) = told()
        place.config.write_text(good)
        until(lambda: not told(), "that it is gone")
        end(process)

    assert "memline up on " in found["what"] and f"(process {process.pid})" in found["what"]
    assert f"{place.config}" in found["what"] and re.search(rf"line {line}\b|:{line}\b", found["what"])
    assert found["level"] == "warning" and found["action"].endswith("config check")
