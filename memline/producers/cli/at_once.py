"""What is answered without click, whose import alone takes 20 ms: version, help and the name of a command.

The words are click's own, and a test compares them. Whatever is not plain is left to click.
"""

from __future__ import annotations

import os
import sys

from memline.producers.cli.command_list import COMMANDS, EXAMPLES, GLOBALS, PROGRAM, SUMMARY
from memline.shared.version import own_version

#: A shell that completes a word sets it.
COMPLETE = f"_{PROGRAM.upper()}_COMPLETE"

#: The widest that click writes; what is narrower it wraps.
_COLUMNS = 80


def answer(args: list[str]) -> bool:
    """Print the answer to a command line, if it is one of these."""
    if COMPLETE in os.environ:
        lines = _completion()
    elif args == ["--version"]:
        lines = [f"{PROGRAM} {own_version()}"]
    elif args in (["--help"], ["-h"]) and _columns() >= _COLUMNS:
        lines = _help()
    else:
        return False
    if lines:
        print("\n".join(lines))
    return bool(lines)


def _help() -> list[str]:
    options = [(f"--{name} {takes}", text) for name, takes, text in GLOBALS]
    options += [("--version", "Version."), ("-h, --help", "Show this message and exit.")]
    commands = [(name, text) for name, (_, text) in COMMANDS.items()]
    return [
        f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]...",
        "",
        *(f"  {line}".rstrip() for line in SUMMARY.splitlines()),
        "",
        "Options:",
        *_rows(options),
        "",
        "Commands:",
        *_rows(commands),
        "",
        "  Examples:",
        *(f"    {line}" for line in EXAMPLES),
    ]


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name:{width}}  {text}" for name, text in rows]


def _columns() -> int:
    """Return the width of the terminal, as `shutil` does, whose import takes 5 ms."""
    try:
        if columns := int(os.environ.get("COLUMNS", 0)):
            return columns
    except ValueError:
        pass
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _COLUMNS  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return _COLUMNS


def _completion() -> list[str]:
    """List the commands that begin as typed, as the shell's script reads them; none: click's turn."""
    shell, _, what = os.environ[COMPLETE].partition("_")
    words, typed = os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", "")
    if what != "complete" or any(mark in words for mark in "'\"\\#"):
        return []
    _, *args = words.split() or [""]
    if shell == "fish":
        args = args[:-1] if typed and args and args[-1] == typed else args
    elif typed == "1":
        typed, args = args[0] if args else "", args[1:]
    else:
        return []
    if args or not (typed.isalnum() or not typed):
        return []
    found = [(name, text) for name, (_, text) in COMMANDS.items() if name.startswith(typed)]
    forms = {"bash": "plain,{0}", "zsh": "plain\n{0}\n{1}", "fish": "plain,{0}\t{1}"}
    return [forms[shell].format(*each) for each in found] if shell in forms else []
