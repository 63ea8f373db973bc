"""Draw the picture of the README: two questions to the sample notes in a terminal, as they are answered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "search.svg"

#: What to type when the picture is out of date; a test says it.
REGENERATE = ".venv/bin/python scripts/picture.py"

QUESTIONS = (
    "memline search 'why did we choose Redis for the queue?' --max-results 1",
    "memline search 'ERR_CONN_42 cause' --max-results 1",
)

#: Pixels of a line and of a character at 13 px.
LINE, CHARACTER = 18, 7.8


def answers() -> list[str]:
    """Give the lines of a terminal: each question, and what is printed for it."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"MEMLINE_CONFIG": str(ROOT / "examples" / "config.json5"), "MEMLINE_HOME": home}
        environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

        def ask(command: str) -> str:
            ran = subprocess.run(
                ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment, check=True
            )
            return ran.stdout

        ask("memline index")
        return [line for question in QUESTIONS for line in (f"$ {question}", *ask(question).splitlines())]


def drawn(lines: list[str]) -> str:
    """Draw the lines as an SVG."""
    width = round(max(map(len, lines)) * CHARACTER) + 48
    height = len(lines) * LINE + 56
    rows = []
    for number, line in enumerate(lines):
        is_hit = re.match(r"\d\.\d+ ", line)
        kind = "asked" if line.startswith("$") else "cited" if is_hit else "found"
        rows.append(f'<text class="{kind}" x="24" y="{48 + number * LINE}">{escape(line)}</text>')
    size = f'width="{width}" height="{height}"'
    lights = "".join(
        f'<circle cx="{24 + 18 * place}" cy="18" r="5" fill="{colour}"/>'
        for place, colour in enumerate(("#f85149", "#d29922", "#3fb950"))
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img">
<title>Two questions to Memline in a terminal, each answered with a file and its lines</title>
<style>
text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; fill: #c9d1d9; }}
.asked {{ fill: #ffffff; font-weight: 600; }} .cited {{ fill: #7ee787; }}
</style>
<rect {size} rx="8" fill="#161b22"/>
{lights}
{chr(10).join(rows)}
</svg>
"""


if __name__ == "__main__":
    PICTURE.write_text(drawn(answers()), "utf-8")
