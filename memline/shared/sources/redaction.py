"""Redact secrets in the text of transcripts, before anything is hashed, stored or sent.

What a name announces (`password=`, `Authorization:`) is hidden as a whole. Of a key that is known by its form
the first six and last four characters stay, which tells keys apart and nothing more. The patterns are data:
`secret_patterns.toml`; whether what they find can be a secret is judged in `secret_values.py`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from memline.shared.sources import secret_shapes, secret_values
from memline.shared.sources.secret_shapes import tables
from memline.shared.sources.secret_values import LINE_CHARS, Span

#: What stands for a secret.
REDACTED = "***"

#: Shortest key of a known form of which something is shown.
SHOWN_FROM_CHARS = 18

#: Shortest word that can be a key by its form alone; a text without such a word is not searched for keys.
KEY_FROM_CHARS = 11

#: The same of keys that do not begin with a prefix (`open_patterns`).
OPEN_FROM_CHARS = 36

_ITEM = re.compile(r"([-*•][ \t]+)\S+([^\r\n]*)")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

_LETTERS = re.compile(r"[a-z]+")

#: What is no letter in lower case becomes a blank.
_BLANKS = re.sub(r"[^a-z]", " ", "".join(map(chr, range(128))))

#: The stem of all words of rules that are not written in ASCII.
_BEYOND = "é"

#: Words without a stem, up to so many: those of a text are mostly those of the texts before.
_plain: set[str] = set()
_MOST_PLAIN = 1 << 15

#: Keys that may have no digit begin with these.
_LETTERS_ALONE = ("AKIA", "ASIA", "GOCSPX-")

#: Of what is left of a word without these at its ends, a key has digits.
_WRITTEN = string.ascii_letters + string.punctuation

#: Between the words of a list of patterns.
_BETWEEN = re.compile(r" \|[ \n]|\n\| ")

#: A run that is a key only when it looks drawn, or when its kind and the words in front of it say so.
_RUN = re.compile(r"(?<![A-Za-z0-9_+/.~%@?-])[A-Za-z0-9_+/.~%-]{16,400}={0,2}(?![A-Za-z0-9_+/.~%@?-])")
_DIGIT = re.compile("[0-9]")
_NO_KEY = re.compile(
    r"(?i)(?:\.{0,2}|~)/|[-+]?0x|_Z[NK]|sha\d|md5|AAAA[BCE]3Nza|[\w.-]+\.[a-z]{2,8}(?:/|$)|v?\d+\.\d|.*\.\w{1,5}$"
)
_HASHLIKE = re.compile(
    r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,128}|(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9_-]{15,128}"
)

#: A part of a name that was written: nothing around it is drawn.
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}")

#: Characters before a run in which a name makes it a key.
_NEAR_CHARS = 56

#: Characters of a line on which only a name stands, of the value on the next.
_NAME_CHARS = 24

#: Places of a text and what is written there.
_Secrets = list[tuple[int, int, str]]

_Judge = Callable[[re.Match[str]], Span | None]

#: A pattern whose words of other languages are filled in when they are known, and what judges its matches.
_Rule = tuple[str, _Judge]

#: Tells by the stems of a text, and the text in lower case, whether rules are tried.
_Gate = Callable[[set[str], str], object]

#: Words with their stems, what is searched for first, the pattern, and what judges its matches.
_Searched = tuple[list[tuple[str, str]], re.Pattern[str], re.Pattern[str], _Judge]

#: The place of a word in the table, the word in lower case, and the rules whose patterns begin with it.
_Word = tuple[int, str, list[_Rule]]


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
    has_letters_alone = any(begin in text for begin in _LETTERS_ALONE)
    words = [
        word
        for word in text.split()
        if len(word) >= KEY_FROM_CHARS
        and (
            (not (word.isalpha() and word.isascii()) and (word.strip(_WRITTEN) or "_" in word))
            or has_letters_alone
        )
    ]
    if not words:
        return []
    found: _Secrets = []
    # Searched among the long words first, since few texts have a key.
    long_words = "\n".join(words)
    quick, forms, others, tails = _forms()
    for form in forms if quick.search(f"\n{long_words}") else ():
        if next(_issued(form, long_words), None):
            found += [(*match.span(), _shown(match)) for match in _issued(form, text)]
    longest = "\n".join(word for word in words if len(word) >= OPEN_FROM_CHARS)
    for part, pattern in others if longest else ():
        if part in longest and pattern.search(longest):
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
        is_key = not body or is_known or secret_shapes.is_issued(body)
        if is_key:
            yield match
        place = match.end() if is_key else match.start("body")


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
    if secret_shapes.is_code_name(run):
        return False
    if not is_drawn and (not any(map(str.isdigit, run)) or not _HASHLIKE.fullmatch(run)):
        return False
    before = text[max(line_start, match.start() - _NEAR_CHARS) : match.start()]
    if not before.strip() and line_start:
        # A name on a line of its own.
        before = text[max(0, line_start - _NAME_CHARS) : line_start].rstrip("\r\n").rpartition("\n")[2]
    near, not_near = _nearby()
    if not_near.search(before) or not (named := near.search(before)):
        return False
    return (
        is_drawn
        or secret_shapes.is_hash(run)
        or (secret_shapes.is_issued(run) and named.end() > len(before) - 24)
    )


@cache
def _nearby() -> tuple[re.Pattern[str], re.Pattern[str]]:
    forms = tables()["forms"]
    return re.compile(_filled_in(forms["near"])), re.compile(forms["not_near"])


def _is_drawn(run: str) -> bool:
    if not _DIGIT.search(run) or _NO_KEY.match(run):
        return False
    parts = re.split(r"[^A-Za-z0-9]+", run)
    words = sum(1 for part in parts if _WORD.fullmatch(part)) if "_" in run else 0
    if words > 1:
        return False
    if any(secret_shapes.is_random(part) for part in parts if not words or len(part) > 23):
        return True
    if any(map(_WORD.fullmatch, parts)):
        return False
    joined = "".join(parts)
    return len(joined) >= 24 and max(map(len, parts)) >= 8 and secret_shapes.is_random(joined)


def _shown(match: re.Match[str]) -> str:
    token = match["token"]
    if len(token) < SHOWN_FROM_CHARS:
        return REDACTED
    # With a piece on the next line the end of this one is the middle of the key.
    return f"{token[:6]}…{'' if match['rest'] else token[-4:]}"


def _announced(text: str) -> _Secrets:
    lowered = _lowered(text)
    stems = _stems(lowered)
    secrets: _Secrets = []
    announced, searched = _rules()
    padded = f" {lowered}"
    for gate, by_stem in announced:
        if gate(stems, padded):
            # Of two secrets at one place the first rule counts.
            for _, word, rules in sorted(chain.from_iterable(by_stem.get(stem, ()) for stem in stems)):
                if (first := lowered.find(word)) >= 0:
                    secrets += _named(text, lowered, word, first, rules)
    for words, quick, pattern, judge in searched:
        if _has_word(words, stems, lowered) and quick.search(text):
            for match in pattern.finditer(text):
                if span := judge(match):
                    secrets.append((*span, REDACTED))
    return secrets


def _stems(lowered: str) -> set[str]:
    """Return the stems that a text has, the empty one among them."""
    found = {""}
    if not lowered.isascii():
        found.add(_BEYOND)
        lowered = lowered.encode("ascii", "replace").decode("ascii")
    for word in {*lowered.translate(_BLANKS).split()} - _plain:
        if stems := _stems_of(word):
            found.update(stems)
        else:
            if len(_plain) >= _MOST_PLAIN:
                _plain.clear()
            _plain.add(word)
    return found


@lru_cache(1 << 11)
def _stems_of(word: str) -> tuple[str, ...]:
    stems, any_stem = _all_stems()
    return tuple(stem for stem in stems if stem in word) if any_stem.search(word) else ()


@cache
def _all_stems() -> tuple[list[str], re.Pattern[str]]:
    announced, searched = tables()["announced"], tables()["searched"]["rules"]
    lists = [each["gate"] for each in announced]
    lists += [_words(rule[0]) for each in announced for rule in each["rules"]]
    lists += [_words(rule[0]) for rule in searched]
    stems = sorted({_stem(word) for words in lists for word in words} - {"", _BEYOND})
    return stems, re.compile(_by_letter([(stem[0], stem[1:]) for stem in stems]))


def _words(listed: str) -> list[str]:
    """Return the words of a rule, those of other languages last."""
    own, is_open, _ = listed.partition(", FOREIGN")
    foreign = " ".join(tables()["words"]["FOREIGN"].split("\n")).strip()
    return [*own.split(", "), *foreign.split(", ") * bool(is_open)]


def _has_word(words: list[tuple[str, str]], stems: set[str], text: str) -> bool:
    for word, stem in words:  # noqa: SIM110  a generator takes twice as long, and this runs for every message
        if stem in stems and word in text:
            return True
    return False


def _stem(word: str) -> str:
    """Return the longest run of letters of a rule's word: where no word has it, its rules are not tried."""
    if not word.isascii():
        return _BEYOND
    longest = max(_LETTERS.findall(word), key=len, default="")
    return longest if len(longest) > 2 else ""


def _named(text: str, lowered: str, word: str, first: int, rules: list[_Rule]) -> _Secrets:
    """Find what patterns that begin with a word announce; `first` is the first place of the word."""
    secrets: _Secrets = []
    for rule, judge in rules:
        pattern = _compiled(rule)
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


@cache
def _compiled(rule: str) -> re.Pattern[str]:
    return re.compile(_filled_in(f"(?i){rule}"))


@cache
def _foreign(first: str) -> str:
    """Return the pattern of the words of other languages that begin with a letter."""
    found = [
        f"{condition}(?:{'|'.join(chosen)}){end}"
        for condition, words, end in tables()["words"]["foreign"]
        if (chosen := [word for word in _BETWEEN.split(words.strip()) if word[0] == first])
    ]
    return f"(?:{'|'.join(found)})" if found else "(?!)"


def _hidden(match: re.Match[str], span: Span) -> str:
    if match.re.groupindex.get("items") and match["items"]:
        return _ITEM.sub(rf"\g<1>{REDACTED}\g<2>", match.string[slice(*span)])
    return REDACTED


@cache
def _rules() -> tuple[list[tuple[_Gate, dict[str, list[_Word]]]], list[_Searched]]:
    """Read the rules of names, by what has to be in a text, and compile the others."""
    announced = []
    for table in tables()["announced"]:
        own: dict[str, list[_Rule]] = {}
        foreign: dict[str, list[_Rule]] = {}
        for listed, kind, pattern in table["rules"]:
            count = listed.partition(", FOREIGN")[0].count(", ") + 1
            for number, word in enumerate(_words(listed)):
                rule = pattern.replace("{FOREIGN}", _foreign(word[0]))
                known = own if number < count else foreign
                known.setdefault(word, []).append((rule, secret_values.JUDGES[kind]))
        by_stem: dict[str, list[_Word]] = {}
        for number, (word, rules) in enumerate((*own.items(), *foreign.items())):
            by_stem.setdefault(_stem(word), []).append((number, word, rules))
        announced.append((_gate(table), by_stem))
    searched = [
        (
            [(word, _stem(word)) for word in _words(listed)],
            re.compile(quick),
            re.compile(_filled_in(pattern)),
            secret_values.JUDGES[kind],
        )
        for listed, quick, kind, pattern in tables()["searched"]["rules"]
    ]
    return announced, searched


def _gate(table: dict[str, Any]) -> _Gate:
    """Return what tells by the stems of a text, and by itself, whether the rules of a table are tried."""
    words = [(word, _stem(word)) for word in table["gate"]]
    if "or_pattern" not in table:
        return lambda stems, text: _has_word(words, stems, text)
    search = re.compile(table["or_pattern"]).search
    return lambda stems, text: search(text) or _has_word(words, stems, text)


@cache
def _forms() -> tuple[
    re.Pattern[str],
    list[re.Pattern[str]],
    list[tuple[str, re.Pattern[str]]],
    list[re.Pattern[str]],
]:
    """Compile the keys with a prefix and a form of their own, those of another form, and the open ones.

    The first pattern finds what any of the former needs: few characters of a text are such that a key can
    begin behind them.
    """
    forms = tables()["forms"]
    listed = sorted(forms["prefixes"].split(), key=len, reverse=True)
    prefixes = _by_letter([(prefix[0], re.escape(prefix[1:])) for prefix in listed])
    patterns = _by_letter([(pattern[0], pattern[1:]) for pattern in forms["patterns"]])
    body, end = "[A-Za-z0-9_+/=.-]", "(?![A-Za-z0-9])"
    behind = r"[^A-Za-z0-9](?:(?<=\\)[nrt]|(?<=%)[0-9A-Fa-f]{2})?"
    others = []
    for parts, pattern in forms["open_patterns"]:
        form = _form(f"{pattern}{end}")
        others += [(part, form) for part in parts.split(", ")]
    return (
        re.compile(f"{behind}(?:{prefixes}{body}{{12}}|{patterns}{end})"),
        [_form(f"{prefixes}(?P<body>{body}{{12,1024}})"), _form(f"{patterns}(?P<body>){end}")],
        others,
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
