"""qmd for tests: a program that behaves as a plan says, and the real one where it is installed."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

#: Names the real program where it is not on the PATH.
VARIABLE = "QMD_PROGRAM"

#: Keeps collections like qmd, notes every call, and does for each command what `plan.json` beside it says.
_PROGRAM = """
import json, os, sys, time, subprocess, signal
here = os.path.dirname(os.path.abspath(sys.argv[0]))
args = sys.argv[1:]
config = os.path.join(os.environ["XDG_CONFIG_HOME"], "qmd", "collections.json")
with open(os.path.join(here, "calls.jsonl"), "a") as calls:
    calls.write(json.dumps({"args": args, "env": dict(os.environ), "cwd": os.getcwd()}) + "\\n")
plan = json.load(open(os.path.join(here, "plan.json"))).get(args[0], {})
if plan.get("python"):
    exec(plan["python"])
known = json.load(open(config)) if os.path.exists(config) else {}
if args[0] == "collection":
    if args[1] == "list":
        print(json.dumps([{"name": name} for name in known]))
    elif args[1] == "add":
        known[args[args.index("--name") + 1]] = [args[2], args[args.index("--mask") + 1]]
    elif args[1] == "remove":
        del known[args[2]]
    json.dump(known, open(config, "w"))
sys.stdout.write(plan.get("stdout", "[]" if args[0] in ("query", "search", "vsearch") else ""))
sys.stderr.write(plan.get("stderr", ""))
sys.stdout.flush()
sys.exit(plan.get("status", 0))
"""


@dataclass(slots=True)
class FakeQmd:
    """The program, the plan it follows, and the calls it had."""

    folder: Path
    plan: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self):
        self.folder.mkdir(parents=True)
        self.program.write_text(f"#!{sys.executable}\n{_PROGRAM}")
        self.program.chmod(0o755)
        self.does()

    @property
    def program(self):
        return self.folder / "qmd"

    def does(self, **plan):
        """Have it behave otherwise from now on: `search={"stdout": …, "stderr": …, "status": …}`."""
        self.plan |= plan
        part = self.folder / "plan.part"
        part.write_text(json.dumps(self.plan))
        part.replace(self.folder / "plan.json")

    def calls(self, command=""):
        """What it was called with, in order: `args`, `env`, `cwd`."""
        file = self.folder / "calls.jsonl"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in calls if not command or call["args"][0] == command]


def row(file, *, text="@@ -1,1 @@ (0 before, 0 after)\nwords", **more):
    """A result as qmd prints it."""
    return {"docid": "#abc123", "score": 0.5, "file": f"qmd://{file}", "snippet": text, **more}


@cache
def real_qmd():
    """The real program, or why there is none."""
    program = os.environ.get(VARIABLE) or shutil.which("qmd")
    if not program:
        return "", f"qmd is not installed: not on the PATH, and {VARIABLE} is not set"
    try:
        ran = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{program} does not start: {error}"
    if ran.returncode:
        return "", f"{program} does not start: {ran.stderr.strip()[-200:]}"
    return program, ran.stdout.strip()


needs_qmd = pytest.mark.skipif(not real_qmd()[0], reason=real_qmd()[1])
