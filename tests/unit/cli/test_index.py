import time

import pytest

from memline.producers.backends import IndexReport, RunProgress
from memline.producers.cli import index, run
from memline.producers.cli.invocation import Invocation
from memline.shared.finding import Finding

COUNTS = dict.fromkeys(("seen", "added", "changed", "removed", "unchanged", "failed"), 0)
VECTORS = {"embedded": 2, "cached": 1, "pending": 0, "failed": 3}

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})


def test_an_agent_without_memory_search_is_named(place, capsys):
    place.configure(enabled=False)

    assert run(place.arguments("index")) == 0

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "Memory search is disabled for agent main (memorySearch.enabled).\n"


def test_failures_of_one_reason_are_one_line(capsys):
    failures = [{"path": f"{name}.md", "reason": "it is refused"} for name in ("a", "b", "a", "c", "d", "e")]
    report = IndexReport(
        agent="main",
        files=COUNTS,
        chunks=6,
        vectors=VECTORS,
        provider="openai",
        model="m",
        seconds=1.0,
        failures=[*failures, {"path": "", "textHash": "ff", "reason": "too long"}],
        findings=(
            Finding(code="a", level="warning", what="3 vectors are pending", action="memline queue resume"),
            Finding(code="b", level="note", what="worth knowing", action="memline jobs"),
        ),
    )

    index.print_report(Invocation.of({}), report, report.findings)

    output = capsys.readouterr()
    assert "2 embedded, 1 cached, 0 pending, 3 failed (openai m)" in output.out
    assert output.err.splitlines() == [
        "  failed: a.md, b.md, c.md and 2 more: it is refused",
        "  failed: ff: too long",
        "  3 vectors are pending",
        "Try: memline queue resume",
        "  worth knowing",
    ]


def test_without_a_terminal_a_wait_is_said_at_once_and_then_every_minute(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    with index.progress_line("main") as show:
        show(RunProgress())
        for second in range(150):
            now[0] = float(second)
            show(RunProgress(waiting="a rate limit"))
            if second == 0:
                assert capsys.readouterr().err == "main: a rate limit\n"

    assert capsys.readouterr().err == "main: a rate limit\n" * 2
