"""Which names are memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.config.schema import ExtraPath
from shared.sources.scope import Scope, printable

SCOPE = Scope(
    Path("/ws"),
    [
        ExtraPath(path="docs"),
        ExtraPath(path="/vault", pattern="notes/**/*.{md,markdown}"),
        ExtraPath(path="~/log.md"),
        ExtraPath(path="../other/.hidden"),
    ],
)


@pytest.mark.parametrize(
    "path",
    [
        "MEMORY.md",
        "memory.md",
        "memory/a.md",
        "memory/x/y/a.md",
        "docs/a.md",
        "/vault/notes/x/a.markdown",
        "/other/.hidden/a.md",
        "memory/.private.md",
        "memory/日本.md",
    ],
)
def test_memory_files_are_found_under_their_own_name(path: str) -> None:
    located = SCOPE.locate(path)

    assert located is not None
    assert located.path == path
    assert located.absolute == os.path.join("/ws", path)


@pytest.mark.parametrize(
    ("path", "known_as"),
    [
        ("./memory/a.md", "memory/a.md"),
        ("memory//x/../a.md", "memory/a.md"),
        ("/ws/memory/a.md", "memory/a.md"),
        ("../vault/notes/a.md", "/vault/notes/a.md"),
    ],
)
def test_other_spellings_lead_to_the_same_file(path: str, known_as: str) -> None:
    located = SCOPE.locate(path)

    assert located is not None
    assert located.path == known_as


@pytest.mark.parametrize(
    "path",
    [
        "",
        "README.md",
        "memory",
        "memory/a.txt",
        "memory/a.markdown",
        "memory/../secret.md",
        "../ws2/memory/a.md",
        "/etc/passwd",
        "memory/.git/a.md",
        "memory/node_modules/p/README.md",
        "memory/._a.md",
        "memory/.#a.md",
        "memory/a.md\0.txt",
        "memory/\udcff.md",
        "/vault/a.md",
        "/vault/notes/.obsidian/a.md",
        "docs-private/a.md",
        "/other/a.md",
    ],
)
def test_everything_else_is_no_memory(path: str) -> None:
    assert SCOPE.locate(path) is None


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    scope = Scope(Path("~/ws"), [ExtraPath(path="~/log.md"), ExtraPath(path=" ")])

    assert scope.workspace == "/home/me/ws"
    located = scope.locate("/home/me/log.md")
    assert located is not None
    assert located.anchor == "/home/me"
    assert len(scope.extras) == 1


@pytest.mark.parametrize(
    ("path", "anchor"),
    [
        ("memory/a.md", "/ws"),
        ("docs/a.md", "/ws"),
        ("/vault/notes/a.md", "/"),
        ("/other/.hidden/a.md", "/other"),
    ],
)
def test_the_trusted_folder_is_the_one_above_what_is_named(path: str, anchor: str) -> None:
    located = SCOPE.locate(path)

    assert located is not None
    assert located.anchor == anchor


@pytest.mark.parametrize(
    ("folder", "concerns"),
    [
        ("/ws", True),
        ("/ws/memory", True),
        ("/ws/memory/x", True),
        ("/ws/memory/.git", False),
        ("/ws/memory/.git/objects", False),
        ("/ws/src", False),
        ("/vault", True),
        ("/", True),
        ("/other", True),
        ("/other/.hidden/x", True),
    ],
)
def test_folders_that_can_change_the_memory(folder: str, concerns: bool) -> None:
    assert SCOPE.concerns_folder(folder) is concerns


def test_names_that_are_not_utf_8_are_shown_without_loss() -> None:
    assert printable("caf\u00e9.md") == "caf\u00e9.md"
    assert printable(os.fsdecode(b"caf\xe9\\.md")) == "caf\\xe9\\\\.md"
    assert printable("a\\xe9.md") == "a\\xe9.md"
