"""Mask secrets in what people and agents wrote, before anything is hashed, stored or sent.

Keys are known by their form: a prefix that a service gives them, or a run of characters that looks drawn.
Other values are known by the name in front of them (`password=`, `Authorization:`). Patterns and words are a
table, `secrets.toml`; whether a value can be a secret is judged here.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from memline.shared.tables import read_table

#: What stands for a secret.
MASK = "***"

#: Shortest key of a known form of which something is shown: the first six and the last four characters.
_SHOWN_FROM_CHARS = 18

#: Characters of a line that are looked at before and behind a match, which keeps the time linear.
_LINE_CHARS = 256

#: Characters before a run in which a name makes it a key.
_NEAR_CHARS = 56

_RUN = re.compile(r"(?<![A-Za-z0-9_+/.~%@?-])[A-Za-z0-9_+/.~%-]{16,400}={0,2}(?![A-Za-z0-9_+/.~%@?-])")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？؟।]|[;\r\n]")
_TOKEN = re.compile(r"[!-~]{5,}|[^\s，。、；！？「」“”»«()]+")
_IDENTIFIER = re.compile(r"[&*!@$]?[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)*[!?]?")
_CODE = re.compile(r"(?i)\bself\.|\b(?:def|const|let|var|return|if|self)\b")
#: How a value begins that is a call, a variable or an address of code.
_CALL = re.compile(
    r"""0x|--|\\&|[a-z]+:`|[&*!@$\w.:>?-]*[\w>][(\[{]|[rbf]{0,2}["'`(\[{]|.*[^=]=[^=]|[a-z]+://|(?:\.{0,2}|~)/[\w.]"""
)
#: Values in quotes that are filled in later, and numbers, paths and addresses.
_FORMATTED = re.compile(r"%[sdr(]|\{[\w.!:]*\}|\.\.\.$|…$")
_NO_SECRET = re.compile(r"[\d.]{1,5}$|(?:\.{0,2}|~)/|https?://|[\w-]+\.(?:pem|key|crt)$")
#: Names of what may be shown.
_NO_NAME = re.compile(r"(?i)pub(?:lic)?[ _-]?[a-z]+$|session[ _-]?key$")
#: What stands around a word and is no part of it.
_EDGES = " \t\r\n\"'`,;.)]}>:!?。，、；！？»”’"
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
#: md5, SHA and UUID, as many keys are written.
_HASH = re.compile(r"(?i)(?=.*\d)(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,128})")
#: How names of classes and variables end: `Ed25519PrivateKey`.
_CODE_NAME = re.compile(r"[a-z0-9](?:Key|Token|Secret|Password|Credentials?|Auth|Config|Type|Name|Info)$")
#: Places where the kind of character changes: many in what is drawn.
_CHANGES = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
#: A part of a name of code, a word of one kind of letters; and a piece of one, of which a drawn run has few.
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}")
_PIECE = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{5,}")
_SIGNS = re.compile(r"[^A-Za-z0-9]+")
_NO_KEY = re.compile(
    r"(?i)(?:\.{0,2}|~)/|[-+]?0x|_Z[NK]|sha\d|md5|AAAA[BCE]3Nza|[\w.-]+\.[a-z]{2,8}(?:/|$)|v?\d+\.\d|.*\.\w{1,5}$"
)

#: First place of a secret, the one behind it, and what is shown instead (empty: `***`).
_Secret = tuple[int, int, str]
_Match = re.Match[str]


def mask(text: str) -> str:
    """Return `text` with `***` for every secret that can be recognised."""
    pieces, done = list[str](), 0
    for start, stop, shown in _joined(sorted([*_keys(text), *_announced(text)])):
        pieces += (text[done:start], shown or MASK)
        done = stop
    return "".join((*pieces, text[done:]))


def _joined(secrets: list[_Secret]) -> list[_Secret]:
    """Join secrets that overlap; nothing is shown of a key that a name announces too."""
    joined: list[_Secret] = []
    for first, behind, shown in secrets:
        if joined and first < joined[-1][1]:
            start, stop, other = joined.pop()
            first, behind, shown = (
                start,
                max(stop, behind),
                MASK if MASK in (shown, other) else other or shown,
            )
        joined.append((first, behind, shown))
    return joined


def _keys(text: str) -> Iterator[_Secret]:
    """Find keys by their form alone."""
    prefixed, others, private_key = _forms()
    if "PRIVATE KEY" in text:
        yield from ((*match.span("v"), MASK) for match in private_key.finditer(text))
    place = 0
    while match := prefixed.search(text, place):
        # What only begins like a key may have another one inside.
        place = match.end() if (is_key := _is_issued(match)) else match.start("body")
        if is_key:
            yield *match.span(), _shown(match[0])
    for pattern in others:
        yield from ((*match.span(), _shown(match[0])) for match in pattern.finditer(text))
    for match in filter(_is_run, _RUN.finditer(text)):
        yield match.start(), match.start() + len(match[0].rstrip(".")), ""


def _shown(key: str) -> str:
    return f"{key[:6]}…{key[-4:]}" if len(key) >= _SHOWN_FROM_CHARS else MASK


def _is_issued(match: _Match) -> bool:
    """Tell whether what follows the prefix of a service can be a key: letters and digits that change."""
    body = match["body"][:_LINE_CHARS]
    if match.string[match.start("body") - 1] in "_-." and len(body) >= 20 and body.isalnum():
        return True
    letters = _SIGNS.sub("", body)
    words = sum(map(len, _WORD.findall(body)))
    changes, digits = len(_CHANGES.findall(letters)), sum(map(str.isdigit, letters))
    is_name = "_" in body and len(body) <= 40 and words > 0.5 * len(letters)
    if is_name or len(letters) < (12 if digits or body.isalnum() else 20):
        return False
    return changes >= 0.3 * len(letters) or (digits > 1 and changes >= 0.15 * len(letters))


def _is_run(match: _Match) -> bool:
    """Tell whether a run is a key: it looks drawn, or a name in front says so and nothing else does."""
    run, before = match[0], _line_before(match)
    is_drawn = _is_drawn(run)
    if not (is_drawn or _HASH.fullmatch(run)) or "://" in before.rpartition(" ")[2]:
        return False
    # A line of base64 is as often a part of a file.
    if is_drawn and not (run.endswith("=") or (len(run) > 55 and not before.strip(" \t\"'b+"))):
        return True
    near, before = _table()["near"], before[-_NEAR_CHARS:]
    is_named = re.search(_filled(near["named"]), before) and not re.search(near["not"], before)
    return bool(is_named) and not _CODE_NAME.search(run)


def _is_drawn(run: str) -> bool:
    """Tell whether a run with signs in it looks drawn, and is no path, number or name."""
    if _NO_KEY.match(run) or not any(map(str.isdigit, run)):
        return False
    parts = _SIGNS.split(run)
    words = sum(1 for part in parts if _WORD.fullmatch(part))
    if words > ("_" not in run):
        return any(len(part) > 23 and _is_random(part) for part in parts) and words < 2
    return any(map(_is_random, parts)) or (not words and len(run) >= 24 and _is_random("".join(parts)))


def _is_random(run: str) -> bool:
    """Tell whether a run of 16 letters and digits or more looks drawn: its kinds change all the time."""
    size = len(run)
    if size < 16 or _HEX.fullmatch(run):
        return False
    digits, changes = sum(map(str.isdigit, run)), len(_CHANGES.findall(run)) / size
    if run.lower() == run or run.upper() == run:
        return size >= 20 and digits >= 4 and changes >= 0.25
    pieces = sum(map(len, _PIECE.findall(run)))
    return 2 <= digits < 0.7 * size and changes >= 0.34 and pieces < 0.55 * size


def _announced(text: str) -> Iterator[_Secret]:
    """Find what a name announces."""
    lowered = text.lower()
    if len(lowered) != len(text):
        # A letter that is two in lower case would move all places behind it.
        lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    for word, rules in _rules().items():
        for pattern, judge in rules if word in lowered else ():
            place = lowered.find(word)
            while place >= 0:
                match = pattern.match(text, place)
                if match and (span := _judge(match, judge)):
                    yield *span, MASK
                    place = max(span[1] - 1, place)
                place = lowered.find(word, place + 1)


def _value(match: _Match) -> str:
    return (match.groupdict().get("inner") or match.groupdict().get("bare") or "")[:_LINE_CHARS]


def _line_before(match: _Match) -> str:
    return match.string[max(0, match.start() - _LINE_CHARS) : match.start()].rpartition("\n")[2]


def _is_strong(match: _Match) -> bool:
    """Tell whether a name is that of a secret: `key` is one of many things, `api_key` is not."""
    before, word = match.string[max(0, match.start("word") - 40) : match.start("word")], match["word"].lower()
    if _NO_NAME.search(before + word):
        return False
    if word not in _words("weak"):
        return True
    last = re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[A-Z])", before.rstrip(" _-").lower())[-1]
    return last.endswith(tuple(_words("prefixes"))) or bool(
        re.search(_filled(r"(?i)(?:{SERVICES})[ _-]?$"), before[-20:])
    )


def _is_assigned(match: _Match) -> bool:
    """Judge `name = value` in code, files of settings and prose."""
    strong, inner = _is_strong(match), match["inner"]
    if match["block"] is not None:
        return strong
    if inner is None:
        return _is_bare_secret(match, strong=strong)
    if not _is_literal(inner) or _FORMATTED.search(inner):
        return False
    if "`" in match["quote"] and re.match(r"[\s,.;:)]|--|[A-Za-z_][A-Za-z_]*[._A-Z][A-Za-z_.]*$", inner):
        return False
    if re.search(r"\s", inner.strip()):
        return strong and not _is_prose(inner) and (inner == inner.lower() or _looks(inner.split()[0]))
    return not _NO_SECRET.match(inner) if strong else _is_key(inner)


def _is_bare_secret(match: _Match, *, strong: bool) -> bool:
    text, says, line = match.string, match["says"], _line_before(match)
    value = _value(match).rstrip(_EDGES)
    if "?" in line[-40:]:
        value = value.partition("&")[0]
    if not _is_literal(value) or _CALL.match(value):
        return False
    is_below = says.count("\n") > 1 or ("\n" in says and "=" in says and "\\" not in says)
    if is_below or (not strong and match["word"] not in ("KEY", "TOKEN")):
        return _is_key(value)
    if value.isdigit():
        return strong and len(value) > 3 and match["word"].lower().startswith(("pass", "pw"))
    if _pattern("term").fullmatch(value):
        return False
    if not _IDENTIFIER.fullmatch(value):
        return _looks(value) or bool(re.search(r"[^\w./:,|\\-]", value)) or not value.isascii()
    if "." in value or _CODE_NAME.search(value):
        return False
    if re.search(r"\d", value):
        return True
    # A plain word: only where no name of code can stand.
    rest = text[match.end() : match.end() + _LINE_CHARS].partition("\n")[0].strip()
    if rest or _CODE.search(line) or "(" in line or match["bare"][-1] in ");,":
        return False
    name = text[match.start() : match.start("says")]
    return (says == "=" and name.isupper()) or "=" not in says or not line.strip("*_> ")


def _sentence(match: _Match) -> tuple[int, int] | None:
    """Find the first word of the sentence that looks like a password, in any language."""
    start = match.start("bare")
    for number, word in enumerate(_TOKEN.finditer(_SENTENCE_END.split(match["bare"], maxsplit=1)[0])):
        if number > 8 or word[0][-1] in "([{=<" or word[0][0] in "=<>|+":
            return None
        if _looks(word[0]):
            value = word[0].strip(_EDGES.replace("!", "").replace("?", ""))
            first = start + word.start() + word[0].index(value)
            return first, first + len(value)
    return None


def _looks(value: str) -> bool:
    """Tell whether a word looks like a password: letters and digits, or a sign among letters, and no term."""
    value = value.strip(_EDGES)
    if len(value) < 5 or _pattern("placeholder").fullmatch(value) or "://" in value:
        return False
    if not re.search(r"[^\W\d_]", value):
        return False
    if re.search(r"\d", value):
        is_address = "@" in value[1:-1].rstrip("0123456789")
        return not (is_address or _pattern("term").fullmatch(value) or _CALL.match(value))
    return bool(re.search(r"[^\W_][!#$%^&*+?][^\W_]", value)) and "/" not in value


def _is_key(value: str) -> bool:
    """Tell whether a value is a secret although its name has other meanings: mixed letters and digits are."""
    value = value.strip(_EDGES)
    if _HEX.fullmatch(value):
        return len(value) >= 24 and not value.isdigit()
    is_mixed = len(value) >= 8 and len(_CHANGES.findall(value)) >= 0.3 * len(value)
    return (
        (is_mixed or (len(value) >= 20 and value.isalnum()))
        and _looks(value)
        and not _CODE_NAME.search(value)
    )


def _is_literal(value: str) -> bool:
    """Tell whether a value that stands as it is written is one, and not a variable or a mark for one."""
    value = value.strip(" \t\r\n\"'`,;")
    if len(value) < 4 or _pattern("placeholder").fullmatch(value):
        return False
    words = [word for word in _SIGNS.split(value.lower()) if word]
    is_mark = len(words) > 1 and all(map(str.isalpha, words)) and not _words("marks").isdisjoint(words)
    return not is_mark and value.lower().strip(_EDGES) not in _words("stop")


def _is_prose(text: str) -> bool:
    """Tell whether a text is a sentence or a part of one."""
    words = text.lower().split()
    return len(words) > 1 and not _words("prose").isdisjoint(words) and not any(map(_looks, words))


def _judge(match: _Match, name: str) -> tuple[int, int] | None:
    """Return the place of the value of a match, when the rule's judge takes it for a secret."""
    if name == "sentence":
        return _sentence(match)
    if name == "option":
        name = "literal" if _is_strong(match) else "key"
    group = next(each for each in ("block", "inner", "bare") if match.groupdict().get(each))
    return match.span(group) if _TESTS[name](match) else None


#: By the name that a rule of the table gives.
_TESTS: dict[str, Callable[[_Match], bool]] = {
    "all": lambda match: True,
    "assigned": _is_assigned,
    "key": lambda match: _is_key(_value(match)),
    "literal": lambda match: _is_literal(_value(match)) and not _is_prose(_value(match)),
    "looks": lambda match: _looks(_value(match)) or _is_key(_value(match)),
}


@cache
def _table() -> dict[str, Any]:
    return read_table(__file__, "secrets.toml")


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(_table()["values"][name].split())


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_table()["values"][name])


@cache
def _filled(pattern: str) -> str:
    """Put the fragments into a pattern; one may contain another."""
    fragments = _table()["fragments"]
    while (filled := re.sub(r"\{([A-Z]+)\}", lambda match: fragments[match[1]].strip(), pattern)) != pattern:
        pattern = filled
    return pattern


@cache
def _rules() -> dict[str, list[tuple[re.Pattern[str], str]]]:
    """Return the rules by the words at which they are tried."""
    rules: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for words, judge, written in _table()["announced"]["rules"]:
        pattern = re.compile(f"(?i){_filled(written)}")
        for word in re.split(r",\s+", _filled(words)):
            rules.setdefault(word, []).append((pattern, judge))
    return rules


@cache
def _forms() -> tuple[re.Pattern[str], list[re.Pattern[str]], re.Pattern[str]]:
    """Compile the keys with a prefix, those of another form, and private keys."""
    forms, by_letter = _table()["forms"], dict[str, list[str]]()
    for prefix in sorted(forms["prefixes"].split(), key=len, reverse=True):
        by_letter.setdefault(prefix[0], []).append(re.escape(prefix[1:]))
    prefixes = "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_letter.items())
    others = [_filled(rf"{{START}}(?:{'|'.join(forms['patterns'])})(?![A-Za-z0-9])"), *forms["tails"]]
    return (
        re.compile(_filled(rf"{{START}}(?:{prefixes})(?P<body>[A-Za-z0-9_+/=.-]{{12,1024}}(?<!\.))")),
        [re.compile(each) for each in others],
        re.compile(forms["private_key"]),
    )
