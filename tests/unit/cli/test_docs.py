"""What the pages and the hints of errors tell a user to type exists: every command and every option."""

import re
from pathlib import Path

import click
import pytest

from memline.producers.cli.root import PROGRAM, cli

ROOT = Path(__file__).parents[3]
#: The changelog speaks of commands that were.
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
SOURCES = sorted(ROOT.glob("memline/**/*.py"))

#: Where a command line ends: at a pipe, a comment, another command, a placeholder or two spaces.
END = re.compile(r"\s*(?:[|;&#`<>){\"…,]|\s\s|$)")

#: A word that is meant as a command's name; COMMAND and … are placeholders.
WORD = re.compile(r"[a-z]+")


def lines_of(page):
    """What a page shows as a command: after `memline ` in inline code, and in lines of code blocks."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        if code.startswith(f"{PROGRAM} "):
            yield code.removeprefix(f"{PROGRAM} ")
    for block in blocks:
        for line in block.splitlines():
            if match := re.match(rf"(?:\$ )?(?:[A-Z_]+=\S+ )*{PROGRAM} (.*)", line.strip()):
                yield match[1]


def unknown(line):
    """The first word of a command line that does not exist; empty when all do."""
    context = click.Context(cli, info_name=PROGRAM)
    command = cli
    known = {option for parameter in cli.params for option in parameter.opts} | {"--help", "-h"}
    takes_value = {option for p in cli.params if not getattr(p, "is_flag", False) for option in p.opts}
    words = iter(re.split(r"\s+", line[: END.search(line).start()].strip()))
    for word in words:
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            if name not in known:
                return word
            if name in takes_value and "=" not in word:
                next(words, "")
        elif isinstance(command, click.Group):
            if not WORD.fullmatch(word):
                return ""
            found = command.get_command(context, word)
            if found is None:
                return word
            command = found
            known |= {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
            takes_value |= {o for p in command.params if not getattr(p, "is_flag", False) for o in p.opts}
    return ""


def test_every_command_of_a_page_exists():
    lines = [(page.name, line) for page in PAGES for line in lines_of(page)]

    assert len(lines) > 200
    assert [each for each in lines if unknown(each[1])] == []


def test_every_command_that_an_error_tells_to_type_exists():
    hints = [
        (path.relative_to(ROOT).as_posix(), match)
        for path in SOURCES
        for match in re.findall(rf'(?:hint|action|fix)=f?"{PROGRAM} ([^"]+)"', path.read_text("utf-8"))
    ]

    wrong = [(path, hint) for path, hint in hints if unknown(hint)]

    assert len(hints) > 10
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("index --force --json", ""),
        ("--agent work queue dead --error '*'", ""),
        ("indx", "indx"),
        ("index --forced", "--forced"),
        ("queue dade", "dade"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line, word):
    assert unknown(line) == word
