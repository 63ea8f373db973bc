"""One memory, whichever of the two backends answers."""

import json
import os
import time
from pathlib import Path

import pytest

from memline.producers.chats import chat_of
from memline.producers.memory import Memory, met_by_backend
from memline.producers.qmd import RETRY_S
from memline.producers.reports.status import examine_agent
from memline.shared.errors import AccessDenied
from tests.support.clock import ManualClock
from tests.support.process import end, running_memline
from tests.support.qmd import row
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import until

KEY = "sk-proj-abcdefghijklmnop1234567890"
NOTE = "memory-dir-main/2026-02-10.md"
OWN_FOLDERS = ("XDG_CONFIG_HOME", "QMD_CONFIG_DIR", "XDG_CACHE_HOME")
CENTS = "memory-root-main/MEMORY.md"


@pytest.fixture
def opened(place):
    """Memories of one-shot commands unless `long_lived` is said."""
    made = []

    def opened(*, long_lived=False, clock=None, **qmd):
        settings = place.settings(**qmd)
        made.append(Memory.of(settings, settings.agents["main"], long_lived=long_lived, clock=clock))
        return made[-1]

    yield opened
    for memory in made:
        memory.close()


def finds(place, *rows):
    place.qmd.does(search={"stdout": json.dumps(rows)})


def test_qmd_answers_in_the_shape_of_every_answer(place, opened, monkeypatch):
    for name in ("OPENAI_API_KEY", "QMD_TRUST_UPDATE_HOOKS", "QMD_CONFIG_DIR"):
        monkeypatch.setenv(name, "sk-secret")
    finds(place, row(NOTE), row(CENTS))

    answer = opened().search("--the\0 question", max_results=1)

    assert [hit.citation for hit in answer.hits] == ["memory/2026-02-10.md#L1"]
    said = answer.to_json()
    assert (said["backend"], said["mode"], said["fallback"]) == ("qmd", "keyword", None)
    (call,) = place.qmd.calls("search")
    assert call["args"] == [
        *(
            "search",
            "--json",
            "-n",
            "1",
            "-c",
            "memory-root-main",
            "-c",
            "memory-dir-main",
            "--",
            "--the question",
        )
    ]
    # A `.qmd` folder of the workspace could hold commands.
    home = place.folder / "home" / "qmd"
    assert Path(call["cwd"]).parent == home and "sk-secret" not in call["env"].values()
    assert all(call["env"][name].startswith(str(home)) for name in OWN_FOLDERS)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"status": 2, "stderr": "no such table"}, "qmd search failed (code 2): no such table"),
        ({"stdout": "nonsense"}, "qmd search returned invalid JSON"),
        ({"stdout": ""}, "invalid JSON"),
        ({"python": "time.sleep(600)"}, "timed out after 2000ms"),
        ({"python": "os.kill(os.getpid(), signal.SIGKILL)"}, "qmd search failed (code -9)"),
    ],
)
def test_whatever_fails_the_builtin_index_answers_and_says_why(place, opened, plan, why):
    place.qmd.does(search=plan)

    answer = opened(limits={"timeoutMs": 2_000 if "sleep" in str(plan) else 60_000}).search("cents")

    assert [hit.path for hit in answer.hits] == ["MEMORY.md"]
    assert answer.backend == "builtin"
    assert (
        answer.fallback is not None and answer.fallback["from"] == "qmd" and why in answer.fallback["reason"]
    )
    assert why in answer.warning and answer.action


def test_a_program_that_is_not_installed_is_a_failure_like_any_other(opened):
    memory = opened(command="no-such-qmd")

    answer, status = memory.search("cents"), memory.status()["status"]

    assert answer.backend == "builtin" and answer.hits and "@tobilu/qmd" in answer.action
    assert status["backend"] == "qmd"
    assert (
        status["fallback"]
        == answer.fallback
        == {"from": "qmd", "reason": "qmd cannot be run: there is no program 'no-such-qmd'"}
    )


def test_qmd_is_tried_again_after_a_minute(place, opened):
    clock = ManualClock()
    place.qmd.does(search={"status": 1})
    memory = opened(clock=clock)

    def ask():
        return memory.search("cents")

    assert [ask().backend, ask().backend] == ["builtin", "builtin"]
    finds(place, row(CENTS))
    clock.advance(59)
    # Another command knows as well.
    assert (ask().backend, opened(clock=clock).search("cents").backend) == ("builtin", "builtin")
    assert len(place.qmd.calls("search")) == 1
    clock.advance(1)
    assert (ask().backend, ask().fallback) == ("qmd", None)
    assert memory.status()["status"]["fallback"] is None


def test_a_one_shot_question_updates_only_when_nothing_was_ever_read(place, opened):
    opened().search("q")
    (place.notes / "memory" / "new.md").write_text("new")

    answer = opened().search("q")

    assert len(place.qmd.calls("update")) == 1
    assert answer.stale and answer.behind.files == 1


def test_a_process_that_stays_answers_with_the_builtin_index_until_the_first_update(place, opened, tmp_path):
    go_on = tmp_path / "go-on"
    place.qmd.does(update={"python": f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)"})
    finds(place, row(CENTS))
    memory = opened(long_lived=True)

    first = memory.search("cents")
    go_on.touch()
    until(lambda: memory.search("cents").backend == "qmd")

    assert first.backend == "builtin" and first.hits
    assert first.fallback == {"from": "qmd", "reason": "qmd reads the notes for the first time"}


def test_index_updates_both_and_waits_for_vectors(place, opened):
    memory = opened(searchMode="query")

    report = memory.index()

    assert (report.files["added"], report.provider, report.warning) == (2, "none", "")
    assert [len(place.qmd.calls(name)) for name in ("update", "embed")] == [1, 1]
    status = memory.status()["status"]
    assert (status["provider"], status["files"], status["dirty"]) == ("qmd", 2, False)
    assert status["qmd"]["mode"] == "hybrid" and status["qmd"]["embeddedAt"]


def test_after_an_update_that_failed_the_builtin_index_answers_until_one_is_good(place, opened):
    clock = ManualClock(time.time())
    memory = opened(clock=clock)
    assert not memory.index().failed
    place.qmd.does(search={"stdout": "[]"}, update={"status": 1, "stderr": "disk I/O error"})
    assert memory.index().failed
    answers = [memory.search("cents")]
    clock.advance(RETRY_S + 1)
    answers.append(memory.search("cents"))
    settings = place.settings()
    doctor = [each for each in told_by_doctor(settings) if each.code == "qmd_failing"]
    findings = [each["what"] for each in memory.status()["findings"]]
    place.qmd.does(update={"status": 0}, search={"stdout": json.dumps([row("memory-root-main/memory.md")])})
    memory.index()
    good = memory.search("cents")

    for answer in answers:
        assert (answer.backend, [hit.path for hit in answer.hits]) == ("builtin", ["MEMORY.md"])
        assert "disk I/O error" in answer.warning
    assert [each.level for each in doctor] == ["warning"]
    assert "disk I/O error" in doctor[0].what
    assert sum("disk I/O error" in what for what in findings) == 1
    assert (good.backend, good.warning) == ("qmd", "")
    assert [each for each in told_by_doctor(settings) if each.code == "qmd_failing"] == []


def told_by_doctor(settings):
    agent = settings.agents["main"]
    return [*examine_agent(settings, agent, met=met_by_backend(agent))]


def test_up_updates_at_the_start_and_ends_what_runs(place, tmp_path):
    place.settings(update={"embedTimeoutMs": 600_000}, searchMode="query")
    place.qmd.does(
        embed={"python": f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"}
    )
    options = ("--config", str(place.folder / "c.json5"), "--home", str(place.folder / "home"))

    with running_memline(*options, "up") as up:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        end(up)

    assert up.returncode == 0 and len(place.qmd.calls("update")) == 1
    until(lambda: not Path("/proc", (tmp_path / "pid").read_text()).exists())


def test_files_of_the_memory_alone_are_shown_and_read(place, opened):
    (place.folder / "work").mkdir()
    (place.folder / "work" / "plan.md").write_text("The plan.\n")
    (place.folder / "secret.md").write_text("secret")
    (place.folder / "work" / "link.md").symlink_to(place.folder / "secret.md")
    memory = opened(paths=[{"path": "../work", "name": "work"}])
    hidden = (
        "work-main",
        "other/x.md",
        "work-main/../secret.md",
        "work-main//etc/passwd",
        "work-main/link.md",
    )
    finds(place, *map(row, hidden), row("work-main/plan.md"))

    (hit,) = memory.search("q").hits

    assert (hit.path, memory.get(hit.citation).text) == (str(place.folder / "work/plan.md"), "The plan.")
    with pytest.raises(AccessDenied):
        memory.get("qmd/sessions/a.md", chat=chat_of("agent:main:discord:group:1"))
    assert memory.get("qmd/sessions/../../c.json5").text == ""


def test_sessions_are_exported_without_secrets_and_for_as_long_as_they_are_kept(place, opened, home):
    sessions = sessions_folder(home / ".openclaw")
    (sessions / "new.jsonl").write_text(opening() + said("user", f"the key is {KEY}, and it rains"))
    (sessions / "old.jsonl").write_text(opening() + said("user", "long ago"))
    os.utime(sessions / "old.jsonl", (1_700_000_000, 1_700_000_000))
    opened(sessions={"enabled": True}).index()
    memory = opened(sessions={"enabled": True, "retentionDays": 30})
    memory.index()

    (exported,) = place.folder.glob("home/qmd/*/sessions/*.md")
    text = exported.read_text()
    assert text.startswith("# Session new\n\n") and "it rains" in text and KEY not in text
    assert exported.stat().st_mode & 0o777 == 0o600
