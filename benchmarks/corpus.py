"""Notes that are made up, the same every time: pseudo-words whose counts fall like those of a language."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

#: Raised when the notes become others.
VERSION = 1

#: Different words in all notes.
VOCABULARY = 20_000

#: The commonest words play the part of "the" and "of": no question holds them.
STOP_RANKS = 60

#: Characters of a section, about: with its overlap one chunk of the default 400 tokens.
SECTION_CHARS = 1_100

_ONSETS = ("b", "br", "d", "dr", "f", "g", "h", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "v")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")


class Words:
    """A vocabulary in which the word of rank r is drawn with a weight of 1 / (r + 2.7)."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        spelling = random.Random(0)
        found: dict[str, None] = {}
        while len(found) < VOCABULARY:
            syllables = spelling.choice((1, 2, 2, 3, 3, 4))
            found[spell(spelling, syllables)] = None
        self._words = list(found)
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))

    def draw(self, count: int) -> list[str]:
        """Words of a text."""
        return self._random.choices(self._words, cum_weights=self._weights, k=count)

    def section(self) -> str:
        """A heading and the paragraphs below it."""
        lines = [f"## {' '.join(self.draw(4)).capitalize()}", ""]
        chars = 0
        while chars < SECTION_CHARS:
            line = " ".join(self.draw(14)) + "."
            lines.append(line)
            chars += len(line) + 1
            if self._random.random() < 0.2:
                lines.append("")
        return "\n".join(lines) + "\n"

    def question(self, words: int = 6) -> str:
        """A question without stop words."""
        common = set(self._words[:STOP_RANKS])
        drawn: list[str] = []
        while len(drawn) < words:
            drawn += [word for word in self.draw(words) if word not in common and word not in drawn]
        return " ".join(drawn[:words])


def spell(chance: random.Random, syllables: int) -> str:
    """Make up a word."""
    return "".join(chance.choice(_ONSETS) + chance.choice(_VOWELS) for _ in range(syllables))


def notes(files: int, sections: int) -> Iterator[tuple[str, str]]:
    """(path below the workspace, text) of so many notes."""
    words = Words()
    for number in range(files):
        title = " ".join(words.draw(3)).capitalize()
        body = "\n".join(words.section() for _ in range(sections))
        yield f"memory/{number // 200:03}/note-{number:05}.md", f"# {title}\n\n{body}"


def questions(count: int) -> list[str]:
    """Questions over the notes."""
    words = Words(seed=2)
    return [words.question() for _ in range(count)]


def write(workspace: Path, files: int, sections: int) -> None:
    """Write notes into a workspace, unless they are there."""
    for path, text in notes(files, sections):
        target = workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
