"""Press Ctrl-C at random moments of commands: `python -m tests.interrupts`, 300 times unless told otherwise.

Each run has to end with 130, or with 0 when it was over before; without a traceback, and with one line at
most on standard error. What meets Python's own start, before a line of ours could run, is counted by itself.
In every second run the shell had set SIGINT to be ignored, as for a background job.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: A frame of ours behind the first lines of the console script, which load what guards the rest.
GUARDED = re.compile(r"File \"[^\"]*/memline/(?!__init__\.py|producers/start\.py\", line [1-9],)")

COMMANDS = (("search", "lighthouse keeper"), ("index", "--force"), ("status",), ("--help",))


def main() -> int:
    """Run the commands and print the figures; 1 when a run ended otherwise than it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes")
        notes.mkdir()
        for number in range(200):
            (notes / f"{number}.md").write_text(
                f"# Note {number}\n\nThe lighthouse keeper of day {number}.\n" * 5
            )
        start(folder, ("index",), is_ignored=False).wait()
        length_s = {command: timed(folder, command) for command in COMMANDS}
        figures: Counter[str] = Counter()
        faults = []
        for number in range(options.runs):
            command, is_ignored = COMMANDS[number % len(COMMANDS)], number % 8 >= 4
            wait_s = chance.uniform(0, length_s[command])
            outcome, said = interrupted(folder, command, wait_s, is_ignored=is_ignored)
            figures[f"{command[0]}{' (ignored before)' * is_ignored}: {outcome}"] += 1
            if outcome.startswith("wrong"):
                faults.append(f"{command} after {wait_s:.3f} s, ignored {is_ignored}: {outcome}\n{said}")
    for name, count in sorted(figures.items()):
        print(f"{count:5} {name}")
    print(*faults, sep="\n")
    print(f"{options.runs} runs, {len(faults)} ended otherwise than they should")
    return 1 if faults else 0


def start(folder: str, command: tuple[str, ...], *, is_ignored: bool) -> subprocess.Popen[str]:
    """Start a command line as a console script does."""
    arguments = ("--workspace", f"{folder}/notes", "--home", f"{folder}/home", *command)
    return subprocess.Popen(
        [sys.executable, "-c", "from memline.producers.start import main; main()", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": folder},
        # What is ignored stays ignored through exec.
        preexec_fn=ignore if is_ignored else None,
    )


def ignore() -> None:
    """Do what a shell does for a job in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def timed(folder: str, command: tuple[str, ...]) -> float:
    """Return how long a command takes by itself, and a tenth more."""
    began = time.monotonic()
    start(folder, command, is_ignored=False).communicate()
    return (time.monotonic() - began) * 1.1


def interrupted(folder: str, command: tuple[str, ...], wait_s: float, *, is_ignored: bool) -> tuple[str, str]:
    """Interrupt a command after a time; return how it ended, and what it said."""
    process = start(folder, command, is_ignored=is_ignored)
    time.sleep(wait_s)
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    lines = [line for line in said.splitlines() if line.strip()]
    if process.returncode in (-signal.SIGINT, 1) and not GUARDED.search(said) and "Interrupted" not in said:
        return "met Python's own start, before a line of ours could run", said
    if "Traceback" in said or len(lines) > 1 or process.returncode not in (0, 130):
        return f"wrong, {process.returncode} and {len(lines)} lines", said
    return str(process.returncode), said


if __name__ == "__main__":
    sys.exit(main())
