"""Redact secrets in the text of transcripts, before anything is hashed, stored or sent.

What a name announces (`password=`, `Authorization:`) is hidden as a whole. Of a key that is known by its form
the first six and last four characters stay, which tells keys apart and nothing more. Hiding too much costs a
word, hiding too little a secret, so in doubt it is hidden. The patterns are data: `secret_patterns.toml`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from memline.shared.tables import read_table

#: What stands for a secret.
REDACTED = "***"

#: Shortest key of a known form of which something is shown.
SHOWN_FROM_CHARS = 18

#: No key is a short plain word: `key: name`, `key=lambda`, `Key: The`.
_PLAIN = re.compile(r"[A-Za-z][a-z_]{0,14}[^A-Za-z0-9]*")

_ITEM = re.compile(r"([-*•][ \t]+)\S+([^\r\n]*)")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

#: Returns what replaces a match; None when it is not a secret.
_Replace = Callable[[re.Match[str]], str | None]

#: Word in lower case -> patterns that begin with it, and what replaces a match.
_Rules = dict[str, list[tuple[re.Pattern[str], _Replace]]]


def redact(text: str) -> str:
    """Return `text` with every secret hidden that can be recognised; line breaks may be anywhere in it."""
    return redact_counted(text)[0]


def redact_counted(text: str) -> tuple[str, int]:
    """Do the same as `redact`, and count the places where something was hidden."""
    count = 0
    # Names come second: what they announce is hidden as a whole, also when a form left some of it.
    for rules in _rule_sets():
        text, hidden = _apply(rules, text)
        count += hidden
    text, hidden = _redact_runs(text)
    return text, count + hidden


def _apply(rules: _Rules, text: str) -> tuple[str, int]:
    lowered = text.lower()
    if len(lowered) != len(text):
        # A letter that is two in lower case would move all places behind it.
        lowered = text.translate(_LOWER)
    secrets: list[tuple[int, int, str]] = []
    for word, patterns in rules.items():
        if (first := lowered.find(word)) < 0:
            continue
        for pattern, replace in patterns:
            place = first
            while place >= 0:
                match = pattern.match(text, place)
                replacement = replace(match) if match else None
                if match is None or replacement is None:
                    place = lowered.find(word, place + 1)
                else:
                    secrets.append((match.start(), match.end(), replacement))
                    place = lowered.find(word, match.end())
    pieces: list[str] = []
    done = count = 0
    # Those that overlap go together, by what the first says.
    for start, stop, replacement in sorted(secrets):
        if start >= done:
            pieces += (text[done:start], replacement)
            # What an earlier rule has hidden is found again by the name that announces it.
            count += "…" not in text[start:stop]
        done = max(done, stop)
    return "".join((*pieces, text[done:])), count


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    return read_table(__file__, "secret_patterns.toml")


@lru_cache(maxsize=1)
def _rule_sets() -> tuple[_Rules, _Rules]:
    """Compile the rules of keys known by their form, and of names that announce a secret."""
    forms = _compiled(
        ("private_keys", "{}", lambda match: f"{match['name']}…redacted…{match['close'] or ''}"),
        ("forms", "{START}(?P<token>{}){REST}", _hide_key),
        ("tails", "{}", _hide_value),
    )
    return forms, _compiled(("announced", "(?i){}", _hide_value))


def _compiled(*tables: tuple[str, str, _Replace]) -> _Rules:
    """Compile the patterns of tables, each put into a frame."""
    rules: _Rules = {}
    for table, frame, replace in tables:
        for words, pattern in _tables()[table]["rules"]:
            compiled = re.compile(_filled_in(frame.replace("{}", pattern)))
            for word in words.split(", "):
                rules.setdefault(word, []).append((compiled, replace))
    return rules


def _filled_in(pattern: str) -> str:
    """Put the fragments into a pattern; one may contain another."""
    fragments = _tables()["fragments"]
    while (filled := re.sub(r"\{([A-Z]+)\}", lambda match: fragments[match[1]], pattern)) != pattern:
        pattern = filled
    return pattern


def _redact_runs(text: str) -> tuple[str, int]:
    table = _tables()["runs"]
    lowered = text.lower()
    is_aws = any(word in lowered for word in table["aws_words"])
    if not is_aws and not any(word in lowered for word in table["words"]):
        return text, 0

    count = 0

    def hide(match: re.Match[str]) -> str:
        run = match[0]
        if is_aws and len(run) == table["aws_secret_chars"] and _is_mixed(run):
            return REDACTED
        # A path is taken by its parts.
        if not any(len(part) >= 16 and _is_mixed(part) for part in run.split("/")):
            return run
        before = text[max(0, match.start() - table["near_chars"]) : match.start()].lower()
        return REDACTED if any(word in before for word in table["words"]) else run

    def counted(match: re.Match[str]) -> str:
        nonlocal count
        shown = hide(match)
        count += shown != match[0]
        return shown

    hidden = re.sub(table["pattern"], counted, text)
    return hidden, count


def _is_mixed(run: str) -> bool:
    return all(re.search(kind, run) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def _hide_key(match: re.Match[str]) -> str:
    token = match["token"]
    if len(token) < SHOWN_FROM_CHARS:
        return REDACTED
    # With a piece on the next line the end of this one is the middle of the key.
    return f"{token[:6]}…{'' if match['rest'] else token[-4:]}"


def _hide_value(match: re.Match[str]) -> str | None:
    groups = match.groupdict()
    if groups.get("word") in _tables()["ambiguous"]["words"] and _has_other_meaning(match):
        return None
    if items := groups.get("items"):
        return groups["name"] + _ITEM.sub(rf"\g<1>{REDACTED}\g<2>", items)
    return f"{groups['name']}{groups.get('quote') or ''}{REDACTED}{groups.get('close') or ''}"


def _has_other_meaning(match: re.Match[str]) -> bool:
    """Tell whether `key` or `signature` announces something else than a secret here."""
    table = _tables()["ambiguous"]
    before = match.string[max(0, match.start() - 16) : match.start()].lower()
    if before.endswith(("_", "-")) or before.rstrip().endswith(tuple(table["prefixes"])):
        return False
    lines = [line.strip() for line in (match["block"] or "").splitlines()[1:] if line.strip()]
    # Prose has several words a line; of a key or a signature every line is one word.
    if match["items"] or any(len(line.split()) > 1 for line in lines):
        return True
    return all(_PLAIN.fullmatch(value) for value in lines or [match["bare"] or ""])
