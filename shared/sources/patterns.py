"""Glob patterns of `extraPaths`: which files of a folder are meant, and which folders are worth entering."""

from __future__ import annotations

import re
from functools import lru_cache

#: `{a,b}` doubles the pattern; more alternatives than this are a mistake, and the braces are taken literally.
_MAX_ALTERNATIVES = 64


class Pattern:
    """A glob over paths relative to a folder, with "/" between their parts.

    `*` and `?` stay within one part, `**` stands for any number of folders, `[a-z]` and `{md,markdown}` as in
    a shell. `*.md` therefore matches beside the folder's own files only, `**/*.md` at any depth.
    """

    __slots__ = ("_folders", "_match")

    def __init__(self, pattern: str) -> None:
        alternatives = [part.lstrip("/") for part in _expand_braces(_tidy(pattern))]
        self._match = re.compile("|".join(f"(?:{_translate(one)})" for one in alternatives), re.S).fullmatch
        self._folders = [_folder_tests(one) for one in alternatives]

    def matches(self, relative: str) -> bool:
        """Whether the file at this relative path is meant."""
        return self._match(relative) is not None

    def enters(self, depth: int, name: str) -> bool:
        """Whether a folder `depth` levels below the root (0: directly in it) can hold a match."""
        for tests in self._folders:
            if depth < len(tests):
                test = tests[depth]
                if test is None or test.fullmatch(name):
                    return True
            elif tests and tests[-1] is None:
                return True
        return False


@lru_cache(maxsize=64)
def compile_pattern(pattern: str) -> Pattern:
    """The compiled pattern; the same text is compiled once."""
    return Pattern(pattern)


def _tidy(pattern: str) -> str:
    text = pattern.strip()
    while text.startswith("./"):
        text = text[2:]
    return text + "**" if text.endswith("/") else text


def _expand_braces(pattern: str) -> list[str]:
    done, todo = [], [pattern]
    while todo:
        text = todo.pop()
        match = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if match is None:
            done.append(text)
        else:
            todo.extend(text[: match.start()] + one + text[match.end() :] for one in match[1].split(","))
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            return [pattern]
    return sorted(done)


def _folder_tests(pattern: str) -> list[re.Pattern[str] | None]:
    """One test a folder level; a final None says that everything below may match."""
    tests: list[re.Pattern[str] | None] = []
    for part in pattern.split("/")[:-1]:
        if part == "**":
            return [*tests, None]
        tests.append(re.compile(_translate_part(part), re.S))
    return [*tests, None] if pattern.rsplit("/", 1)[-1] == "**" else tests


def _translate(pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    regex = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            if last:
                regex += ".+"
            elif index == 0 or parts[index - 1] != "**":
                regex += "(?:[^/]+/)*"
        else:
            regex += _translate_part(part) + ("" if last else "/")
    return regex


def _translate_part(part: str) -> str:
    first, *others = _pieces(part)
    if not others:
        return first
    # What stands between two stars is best found as early as it can be. Not looked for again behind that
    # place (`(?>`), no pattern takes longer than part times pattern; otherwise twenty stars take for ever.
    return first + "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece) + f"[^/]*{others[-1]}"


def _translate_class(inner: str) -> str:
    """The expression of `[inner]`, with what is no range, and what means more to Python, taken care of."""
    from fnmatch import translate

    negated = "!" if inner[0] == "^" else inner[0]
    # Without the mark of the end, which is another one in each version of Python.
    return f"(?!/){translate(f'[{negated}{inner[1:]}]')[:-2]}"


def _pieces(part: str) -> list[str]:
    """The expressions of what stands before, between and after the stars; several in a row mean one."""
    pieces, position = [""], 0
    while position < len(part):
        char = part[position]
        position += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[" and (end := part.find("]", position + 1)) > 0:
            pieces[-1] += _translate_class(part[position:end])
            position = end + 1
        else:
            pieces[-1] += re.escape(char)
    return pieces
