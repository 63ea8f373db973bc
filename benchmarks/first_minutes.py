"""The first minutes in a folder of each kind: `python -m benchmarks.first_minutes` prints a Markdown table.

Each folder holds 200 notes. `init` indexes it, a new terminal asks for one of them, and a client starts what
`memline setup claude --write` wrote. Seconds are those of whole processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

#: Kind of folder: what makes it one, and where its notes are.
KINDS = {
    "OpenClaw workspace": ({"AGENTS.md": "Rules.", "SOUL.md": "Me."}, "memory/2026-02-{day:02}-{number}.md"),
    "Obsidian vault": (
        {".obsidian/app.json": "{}", "Templates/Day.md": "# {{date}}"},
        "Projects/Note {number}.md",
    ),
    "Logseq graph": ({"logseq/config.edn": "{}"}, "pages/note {number}.md"),
    "Claude Code project memory": ({"MEMORY.md": "- see the notes"}, "note-{number}.md"),
    "docs repository": ({".git/HEAD": "ref: refs/heads/main", "README.md": "# App"}, "docs/part/{number}.md"),
    "plain folder": ({"a/b/c.md": "x"}, "sub {day}/{number}.md"),
    "flat folder": ({}, "{number}.md"),
}
NOTES = 200
ANSWER = "Rolled back to a828e60 after the regatta."


class Row(NamedTuple):
    """What was seen of one kind."""

    kind: str
    said: str
    init_s: float
    citation: str
    answer_s: float
    client: str


def main() -> None:
    """Measure every kind and print the table."""
    rows = []
    for kind, (files, notes) in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(Path(folder), kind, files, notes))
    print("| folder | `init` says | `init` | first answer | in | a client finds |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.kind} | {row.said} | {row.init_s:.2f} s | `{row.citation}` | {row.answer_s:.2f} s"
            f" | {row.client} |"
        )


def measured(home: Path, kind: str, files: dict[str, str], notes: str) -> Row:
    """Make a folder of a kind and use it as a new user would."""
    is_claude = kind.startswith("Claude")
    folder = home / (".claude/projects/-home-u-app/memory" if is_claude else "notes")
    made = {notes.format(number=number, day=number % 28 + 1): text_of(number) for number in range(NOTES)}
    for name, text in {**files, **made}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (home / "project").mkdir()
    init_s, said = memline(home, "init", str(folder), "--yes")
    answer_s, found = memline(home, "search", "regatta", "--json")
    memline(home, "setup", "claude", "--write", "--yes")
    (entry,) = json.loads((home / "project" / ".mcp.json").read_text())["mcpServers"].values()
    return Row(
        kind,
        said.split("\n")[0].partition(" is ")[2].partition(":")[0],
        init_s,
        json.loads(found)["results"][0]["citation"],
        answer_s,
        asked(entry, home),
    )


def text_of(number: int) -> str:
    return f"# Note {number}\n\n{ANSWER if number == 77 else f'Nothing of note on day {number}.'}\n"


def memline(home: Path, *args: str) -> tuple[float, str]:
    """Run a command in a new terminal; return its seconds and what it printed."""
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", "from memline.producers.start import main; main()", *args],
        cwd=home / "project",
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return time.perf_counter() - began, ran.stdout


def asked(entry: dict[str, list[str]], home: Path) -> str:
    """Ask the server of an entry as a client does; return the citation of its first hit."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    question = {"name": "memory_search", "arguments": {"query": "regatta"}}
    messages = (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": question},
    )
    ran = subprocess.run(
        [sys.executable, "-c", "from memline.producers.start import main; main()", *entry["args"]],
        input="".join(json.dumps(message) + "\n" for message in messages),
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    (answer,) = (line for line in map(json.loads, ran.stdout.splitlines()) if line.get("id") == 2)
    return f"`{answer['result']['structuredContent']['results'][0]['citation']}`"


if __name__ == "__main__":
    main()
