"""Redact secrets in the text of transcripts, before anything is hashed, stored or sent.

What a name announces (`password=`, `Authorization:`) is hidden as a whole. Of a key that is known by its form
the first six and last four characters stay, which tells keys apart and nothing more. The patterns are data:
`secret_patterns.toml`; whether what they find can be a secret is judged in `secret_values.py`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from operator import itemgetter

from memline.shared.sources import secret_values
from memline.shared.sources.secret_values import LINE_CHARS, Span, tables

#: What stands for a secret.
REDACTED = "***"

#: Shortest key of a known form of which something is shown.
SHOWN_FROM_CHARS = 18

#: Shortest word that can be a key by its form alone; a text without such a word is not searched for keys.
KEY_FROM_CHARS = 11

_ITEM = re.compile(r"([-*•][ \t]+)\S+([^\r\n]*)")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

#: Of what is left of a word without these at its ends, a key has digits.
_WRITTEN = string.ascii_letters + string.punctuation

#: A run that is a key only when it looks drawn, or when its kind and the words in front of it say so.
_RUN = re.compile(r"(?<![A-Za-z0-9_+/.~%@?-])[A-Za-z0-9_+/.~%-]{16,400}={0,2}(?![A-Za-z0-9_+/.~%@?-])")
_NO_KEY = re.compile(
    r"(?i)(?:\.{0,2}|~)/|[-+]?0x|_Z[NK]|sha\d|md5|AAAA[BCE]3Nza|[\w.-]+\.[a-z]{2,8}(?:/|$)|v?\d+\.\d|.*\.\w{1,5}$"
)
_HASHLIKE = re.compile(
    r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,128}|(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9_-]{15,128}"
)

#: A part of a name that was written: nothing around it is drawn.
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")

#: Characters before a run in which a name makes it a key.
_NEAR_CHARS = 56

#: Places of a text and what is written there.
_Secrets = list[tuple[int, int, str]]

_Judge = Callable[[re.Match[str]], Span | None]

#: Word in lower case -> patterns that begin with it, and what says whether a match is a secret.
#: Whether a text can have a match of some rules.
_Gate = Callable[[str], object]

_Patterns = list[tuple[re.Pattern[str], _Judge]]
_Rules = dict[str, _Patterns]


def redact(text: str) -> str:
    """Return `text` with every secret hidden that can be recognised; line breaks may be anywhere in it."""
    return redact_counted(text)[0]


def redact_counted(text: str) -> tuple[str, int]:
    """Do the same as `redact`, and count the places where something was hidden."""
    text, count = _written(text, [*_private_keys(text), *_keys(text)])
    # Names come second: what they announce is hidden as a whole, also when a form left some of it.
    text, hidden = _written(text, _announced(text))
    return text, count + hidden


def _written(text: str, secrets: _Secrets) -> tuple[str, int]:
    if not secrets:
        return text, 0
    pieces: list[str] = []
    done = count = 0
    # Those that overlap go together, by what the first says: that of a form where two begin at one place.
    for start, stop, replacement in sorted(secrets, key=itemgetter(0)):
        if start >= done:
            pieces += (text[done:start], replacement)
            # What an earlier rule has hidden is found again by the name that announces it.
            count += "…" not in text[start:stop]
        done = max(done, stop)
    return "".join((*pieces, text[done:])), count


def _lowered(text: str) -> str:
    lowered = text.lower()
    # A letter that is two in lower case would move all places behind it.
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)


def _private_keys(text: str) -> _Secrets:
    if "PRIVATE KEY" not in text:
        return []
    return [(*match.span("key"), "…redacted…") for match in _private_key().finditer(text)]


def _keys(text: str) -> _Secrets:
    """Find what is a key by its form alone."""
    words = [
        word for word in text.split() if len(word) >= KEY_FROM_CHARS and (word.strip(_WRITTEN) or "_" in word)
    ]
    if not words:
        return []
    found: _Secrets = []
    # Searched among the long words first, since few texts have a key.
    long_words = "\n".join(words)
    forms, others, tails = _forms()
    for form in forms:
        if next(_issued(form, long_words), None):
            found += [(*match.span(), _shown(match)) for match in _issued(form, text)]
    for parts, pattern in others:
        if _has(parts, long_words) and pattern.search(long_words):
            found += [(*match.span(), _shown(match)) for match in pattern.finditer(text)]
    for tail in tails:
        if tail.search(long_words):
            found += [(match.start() + 1, match.end(), REDACTED) for match in tail.finditer(text)]
    # Keys of one kind of letters, as md5 has them, need a name in front.
    if any(_is_drawn(run) or _HASHLIKE.fullmatch(run) for run in _RUN.findall(long_words)):
        found += [(*match.span(), REDACTED) for match in _RUN.finditer(text) if _is_run(match)]
    return found


def _issued(form: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Find keys of a form; what only begins like one may have another inside."""
    place = 0
    while match := form.search(text, place):
        body = match["body"][:256]
        is_known = text[match.start("body") - 1] in "_-." and len(body) >= 20 and body.isalnum()
        is_key = not body or is_known or secret_values.is_issued(body)
        if is_key:
            yield match
        place = match.end() if is_key else match.start("body")


def _has(parts: Iterable[str], text: str) -> bool:
    for part in parts:  # noqa: SIM110  a generator takes twice as long, and this runs for every message
        if part in text:
            return True
    return False


def _is_run(match: re.Match[str]) -> bool:
    """Whether a run is a key: it looks drawn, or a name in front says so and nothing else does."""
    run, text = match[0], match.string
    line_start = text.rfind("\n", max(0, match.start() - LINE_CHARS), match.start()) + 1
    line_start = max(line_start, match.start() - LINE_CHARS)
    word_start = max(text.rfind(" ", line_start, match.start()), line_start)
    if "://" in text[word_start : match.start()]:
        return False
    is_drawn = _is_drawn(run)
    # A line of base64 is as often a part of a file.
    is_encoded = run.endswith("=") or (
        len(run) > 55 and not text[line_start : match.start()].strip(" \t\"'b+")
    )
    if is_drawn and not is_encoded:
        return True
    if not is_drawn and (not any(map(str.isdigit, run)) or not _HASHLIKE.fullmatch(run)):
        return False
    before = text[max(line_start, match.start() - _NEAR_CHARS) : match.start()]
    near, not_near = _nearby()
    if not_near.search(before) or not (named := near.search(before)):
        return False
    return (
        is_drawn
        or secret_values.is_hash(run)
        or (secret_values.is_issued(run) and named.end() > len(before) - 24)
    )


@cache
def _nearby() -> tuple[re.Pattern[str], re.Pattern[str]]:
    forms = tables()["forms"]
    return re.compile(_filled_in(forms["near"])), re.compile(forms["not_near"])


def _is_drawn(run: str) -> bool:
    if _NO_KEY.match(run):
        return False
    parts = re.split(r"[^A-Za-z0-9]+", run)
    if any(map(secret_values.is_random, parts)):
        return True
    if any(map(_WORD.fullmatch, parts)):
        return False
    joined = "".join(parts)
    return len(joined) >= 24 and max(map(len, parts)) >= 8 and secret_values.is_random(joined)


def _shown(match: re.Match[str]) -> str:
    token = match["token"]
    if len(token) < SHOWN_FROM_CHARS:
        return REDACTED
    # With a piece on the next line the end of this one is the middle of the key.
    return f"{token[:6]}…{'' if match['rest'] else token[-4:]}"


def _announced(text: str) -> _Secrets:
    lowered = _lowered(text)
    secrets: _Secrets = []
    announced, searched = _rules()
    padded = f" {lowered}"
    for gate, rules in announced:
        if not gate(padded):
            continue
        for word, patterns in rules.items():
            if (first := lowered.find(word)) >= 0:
                secrets += _named(text, lowered, word, first, patterns)
    for words, pattern, judge in searched:
        if _has(words, lowered):
            for match in pattern.finditer(text):
                if span := judge(match):
                    secrets.append((*span, REDACTED))
    return secrets


def _named(text: str, lowered: str, word: str, first: int, patterns: _Patterns) -> _Secrets:
    """Find what patterns that begin with a word announce; `first` is the first place of the word."""
    secrets: _Secrets = []
    for pattern, judge in patterns:
        place = first
        while place >= 0:
            match = pattern.match(text, place)
            span = judge(match) if match else None
            if match is None or span is None:
                place = lowered.find(word, place + 1)
            else:
                secrets.append((*span, _hidden(match, span)))
                place = lowered.find(word, max(span[1], place + 1))
    return secrets


def _hidden(match: re.Match[str], span: Span) -> str:
    if match.re.groupindex.get("items") and match["items"]:
        return _ITEM.sub(rf"\g<1>{REDACTED}\g<2>", match.string[slice(*span)])
    return REDACTED


@cache
def _rules() -> tuple[list[tuple[_Gate, _Rules]], list[tuple[list[str], re.Pattern[str], _Judge]]]:
    """Compile the rules of names, by what has to be in a text, and the others."""
    foreign = tables()["words"]["FOREIGN"].split(", ")
    latin = _by_letter([(word[0], word[1:]) for word in foreign if word.isascii()])
    #: Most texts have no word of another language: one search spares them as many as there are words.
    is_foreign = {True: re.compile(latin).search, False: re.compile("[À-ɏͰ-῿぀-\uffff]").search}
    rules: dict[_Gate, _Rules] = {}
    for table in tables()["announced"]:
        gate = partial(_has, table["gate"])
        for words, kind, pattern in table["rules"]:
            rule = re.compile(_filled_in(f"(?i){pattern}")), secret_values.JUDGES[kind]
            own = words.removesuffix(", FOREIGN").split(", ")
            for word in own:
                rules.setdefault(gate, {}).setdefault(word, []).append(rule)
            for word in foreign * words.endswith(", FOREIGN"):
                rules.setdefault(is_foreign[word.isascii()], {}).setdefault(word, []).append(rule)
    searched = [
        (words.split(", "), re.compile(_filled_in(pattern)), secret_values.JUDGES[kind])
        for words, kind, pattern in tables()["searched"]["rules"]
    ]
    return list(rules.items()), searched


@cache
def _forms() -> tuple[list[re.Pattern[str]], list[tuple[list[str], re.Pattern[str]]], list[re.Pattern[str]]]:
    """Compile the keys with a prefix and a form of their own, those of another form, and the open ones."""
    forms = tables()["forms"]
    prefixes = [
        (prefix[0], re.escape(prefix[1:]))
        for prefix in sorted(forms["prefixes"].split(), key=len, reverse=True)
    ]
    patterns = [(pattern[0], pattern[1:]) for pattern in forms["patterns"]]
    return (
        [
            _form(f"{_by_letter(prefixes)}(?P<body>[A-Za-z0-9_+/=.-]{{12,1024}})"),
            _form(f"{_by_letter(patterns)}(?P<body>)(?![A-Za-z0-9])"),
        ],
        [
            (parts.split(", "), _form(f"{pattern}(?![A-Za-z0-9])"))
            for parts, pattern in forms["open_patterns"]
        ],
        [re.compile(tail) for tail in forms["tails"]],
    )


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(_filled_in(f"{{START}}(?P<token>{pattern}){{REST}}"))


def _by_letter(patterns: list[tuple[str, str]]) -> str:
    """Join patterns by their first letter, since alternatives are tried one by one."""
    known: dict[str, list[str]] = {}
    for first, rest in patterns:
        known.setdefault(first, []).append(rest)
    return "(?:" + "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in known.items()) + ")"


@cache
def _private_key() -> re.Pattern[str]:
    return re.compile(tables()["forms"]["private_key"])


def _filled_in(pattern: str) -> str:
    """Put the fragments into a pattern; one may contain another."""
    fragments = {**tables()["fragments"], "SERVICES": secret_values.services()}
    while (filled := re.sub(r"\{([A-Z]+)\}", lambda match: fragments[match[1]], pattern)) != pattern:
        pattern = filled
    return pattern
