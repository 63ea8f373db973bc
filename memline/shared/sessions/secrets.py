"""Mask secrets in what people and agents wrote, before anything is hashed, stored or sent.

Keys are known by their form: a prefix that a service gives them, or a run of characters that looks drawn.
Other values are known by the name in front of them (`password=`, `Authorization:`). Patterns and words are a
table, `secrets.toml`; whether a value can be a secret is judged here.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain

from memline.shared.values import read_table

#: What stands for a secret.
MASK = "***"

#: Shortest key of a known form of which something is shown: the first six and the last four characters.
_SHOWN_FROM_CHARS = 18

#: Characters of a line that are looked at before and behind a match, which keeps the time linear.
_LINE_CHARS = 256

#: Characters before a run in which a name makes it a key.
_NEAR_CHARS = 56

_RUN = re.compile(
    r"(?<![A-Za-z0-9_+/.~%@?-])[A-Za-z0-9_+/.~%-]{16,400}(?<!\.)={0,2}(?!\.?[A-Za-z0-9_+/~%@?-])"
)
#: A key has so many characters, and a digit or a capital letter among them, or one of two beginnings. Most
#: messages have no such word.
_LONG_WORD, _MIXED = re.compile(r"[!-~]{9,}"), re.compile(r"[0-9A-Z]|sk-|xox")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？؟।]|[;\r\n]")
_TOKEN = re.compile(r"[!-~]{5,}|[^\s，。、；！？「」“”»«()]+")
_IDENTIFIER = re.compile(r"[&*!@$]?[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)*[!?]?")
#: How a value begins that is a call, a variable or an address of code.
_CALL = re.compile(
    r"""0x|--|\\&|[a-z]+:`|[&*!@$\w.:>?-]*[\w>][(\[{]|[rbf]{0,2}["'`(\[{]|.*[^=]=[^=]|[a-z]+://|(?:\.{0,2}|~)/[\w.]"""
)
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
    secrets = list[_Secret]()
    for start, stop, shown in sorted([*_keys(text), *_announced(text)]):
        if secrets and start < secrets[-1][1]:
            first, end, other = secrets.pop()
            # Nothing is shown of a key that a name announces too.
            start, stop, shown = first, max(stop, end), MASK if MASK in (shown, other) else other or shown
        secrets.append((start, stop, shown))
    pieces, done = list[str](), 0
    for start, stop, shown in secrets:
        pieces += (text[done:start], shown or MASK)
        done = stop
    return "".join((*pieces, text[done:]))


def _keys(text: str) -> Iterator[_Secret]:
    """Find keys by their form alone."""
    if not any(map(_MIXED.search, _LONG_WORD.findall(text))):
        return
    table = _table()
    if "PRIVATE KEY" in text:
        yield from ((*match.span("v"), MASK) for match in table.private_key.finditer(text))
    keys = [pattern.finditer(text) for pattern in table.forms]
    for match in chain(filter(_is_issued, table.prefixed.finditer(text)), *keys):
        key = match[0]
        yield *match.span(), f"{key[:6]}…{key[-4:]}" if len(key) >= _SHOWN_FROM_CHARS else MASK
    for match in filter(_is_run, _RUN.finditer(text)):
        # A full stop behind it is the sentence's.
        yield match.start(), match.start() + len(match[0].rstrip(".")), ""


def _is_issued(match: _Match) -> bool:
    """Tell whether what follows the prefix of a service can be a key: letters and digits that change."""
    body = match["body"][:_LINE_CHARS]
    letters = _SIGNS.sub("", body)
    words = sum(map(len, _WORD.findall(body)))
    changes, digits = len(_CHANGES.findall(letters)), sum(map(str.isdigit, letters))
    if ("_" in body and words > 0.5 * len(letters)) or len(letters) < (
        12 if digits or body.isalnum() else 20
    ):
        return False
    return changes >= 0.3 * len(letters) or (digits > 1 and changes >= 0.15 * len(letters))


def _is_run(match: _Match) -> bool:
    """Tell whether a run is a key: it looks drawn, or a name in front says so and nothing else does."""
    run, before = match[0], _line_before(match)
    is_drawn = _is_drawn(run)
    if not (is_drawn or _HASH.fullmatch(run)) or "://" in before.rpartition(" ")[2]:
        return False
    table, before = _table(), before[-_NEAR_CHARS:]
    return is_drawn or (table.near.search(before) is not None and not table.not_near.search(before))


def _is_drawn(run: str) -> bool:
    """Tell whether a run looks drawn, its kinds of characters change often, and is no path or name."""
    parts = _SIGNS.split(run)
    letters = "".join(parts)
    size, digits = len(letters), sum(map(str.isdigit, letters))
    if _NO_KEY.match(run) or sum(1 for part in parts if _WORD.fullmatch(part)) > 1:
        return False
    pieces = sum(map(len, _PIECE.findall(letters)))
    is_mixed = len(_CHANGES.findall(letters)) >= 0.34 * size and not _HEX.fullmatch(letters)
    return is_mixed and size >= 16 and 2 <= digits < 0.7 * size and pieces < 0.55 * size


def _announced(text: str) -> Iterator[_Secret]:
    """Find what a name announces."""
    lowered = text.lower()
    if len(lowered) != len(text):
        # A letter that is two in lower case would move all places behind it.
        lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    for word, rules in _table().rules.items():
        for pattern, judge in rules if word in lowered else ():
            place = lowered.find(word)
            while place >= 0:
                match = pattern.match(text, place)
                if match and (span := _judge(match, judge)):
                    yield *span, MASK
                    place = max(span[1] - 1, place)
                place = lowered.find(word, place + 1)


def _judge(match: _Match, judge: str) -> tuple[int, int] | None:
    """Return the place of the value of a match, when the rule's judge takes it for a secret."""
    if judge == "sentence":
        return _sentence(match)
    group = next(each for each in ("block", "inner", "bare") if match.groupdict().get(each))
    return match.span(group) if _JUDGES[judge](match, match[group][:_LINE_CHARS]) else None


def _line_before(match: _Match) -> str:
    return match.string[max(0, match.start() - _LINE_CHARS) : match.start()].rpartition("\n")[2]


def _is_strong(match: _Match) -> bool:
    """Tell whether a name is that of a secret: `key` is one of many things, `api_key` is not."""
    before, word = match.string[max(0, match.start("word") - 40) : match.start("word")], match["word"].lower()
    if _NO_NAME.search(before + word):
        return False
    return word not in _table().words["weak"] or _table().strong.search(before) is not None


def _is_assigned(match: _Match, value: str) -> bool:
    """Judge `name = value` in code, files of settings and prose."""
    strong = _is_strong(match)
    if match["block"] is not None:
        return strong
    if match["inner"] is None:
        return _is_bare_secret(match, strong=strong)
    if not _is_literal(value):
        return False
    if match["quote"][-1] == "`" and re.match(r"[\s,.;:)]|--", value):
        return False
    if re.search(r"\s", value.strip()):
        return strong and (value == value.lower() or _looks(value.split()[0]))
    return strong or _is_key(value)


def _is_bare_secret(match: _Match, *, strong: bool) -> bool:
    line = _line_before(match)
    value = match["bare"][:_LINE_CHARS].rstrip(_EDGES)
    if not _is_literal(value):
        return False
    if not strong:
        return _is_key(value)
    if value.isdigit():
        return match["word"].lower().startswith(("pass", "pw"))
    if not _IDENTIFIER.fullmatch(value):
        return _looks(value) or not value.isascii()
    if "." in value or _CODE_NAME.search(value):
        return False
    if re.search(r"\d", value):
        return True
    # A plain word: only where no name of code can stand.
    rest = match.string[match.end() : match.end() + _LINE_CHARS].partition("\n")[0].strip()
    return not rest and "(" not in line


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
    if len(value) < 5 or _table().placeholder.fullmatch(value) or "://" in value:
        return False
    if not re.search(r"\d", value):
        return bool(re.search(r"[^\W_][!#$%^&*+?][^\W_]", value)) and "/" not in value
    is_code = _table().term.fullmatch(value) or _CALL.match(value)
    return bool(re.search(r"[^\W\d_]", value)) and not is_code


def _is_key(value: str) -> bool:
    """Tell whether a value is a secret although its name has other meanings: mixed letters and digits are."""
    value = value.strip(_EDGES)
    if _HEX.fullmatch(value):
        return len(value) >= 24 and not value.isdigit()
    is_mixed = len(value) >= 8 and len(_CHANGES.findall(value)) >= 0.3 * len(value)
    is_long = len(value) >= 20 and value.isalnum()
    return (is_mixed or is_long) and _looks(value) and not _CODE_NAME.search(value)


def _is_literal(value: str) -> bool:
    """Tell whether a value that stands as it is written is one, and not a variable or a mark for one."""
    value = value.strip(" \t\r\n\"'`,;")
    if len(value) < 4 or _table().placeholder.fullmatch(value):
        return False
    words = [word for word in _SIGNS.split(value.lower()) if word]
    is_mark = (
        len(words) > 1 and all(map(str.isalpha, words)) and not _table().words["marks"].isdisjoint(words)
    )
    return not is_mark and value.lower() not in _table().words["stop"]


#: Whether the value of a match can be a secret, by the name that a rule of the table gives.
_JUDGES: dict[str, Callable[[_Match, str], bool]] = {
    "all": lambda match, value: True,
    "assigned": _is_assigned,
    "literal": lambda match, value: _is_literal(value),
    "looks": lambda match, value: _looks(value) or _is_key(value),
    "option": lambda match, value: (_is_literal if _is_strong(match) else _is_key)(value),
}


class _Table:
    """The patterns and words of `secrets.toml`."""

    def __init__(self) -> None:
        table = read_table(__file__, "secrets.toml")
        self._fragments: dict[str, str] = table["fragments"]
        values, forms, near = table["values"], table["forms"], table["near"]
        self.words = {name: frozenset(values[name].split()) for name in ("stop", "marks", "weak")}
        self.term, self.placeholder = re.compile(values["term"]), re.compile(values["placeholder"])
        self.strong, self.near = self._compiled(values["strong"]), self._compiled(near["named"])
        self.not_near, self.private_key = re.compile(near["not"]), re.compile(forms["private_key"])
        prefixes = "|".join(map(re.escape, sorted(forms["prefixes"].split(), key=len, reverse=True)))
        self.prefixed = self._compiled(
            rf"{{START}}(?:{prefixes})(?P<body>[A-Za-z0-9_+/=.-]{{12,1024}}(?<!\.))"
        )
        keys = rf"{{START}}(?:{'|'.join(forms['patterns'])})(?![A-Za-z0-9])"
        self.forms = [self._compiled(each) for each in (keys, *forms["tails"])]
        #: The patterns that are tried where a word stands (in lower case), and the judges of their values.
        self.rules = dict[str, list[tuple[re.Pattern[str], str]]]()
        for words, judge, written in table["announced"]["rules"]:
            pattern = self._compiled(f"(?i){written}")
            for word in re.split(r",\s+", self._filled(words)):
                self.rules.setdefault(word, []).append((pattern, judge))

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        return re.compile(self._filled(pattern))

    def _filled(self, pattern: str) -> str:
        """Put the fragments into a pattern; one may contain another."""
        while (
            filled := re.sub(r"\{([A-Z]+)\}", lambda match: self._fragments[match[1]].strip(), pattern)
        ) != pattern:
            pattern = filled
        return pattern


@cache
def _table() -> _Table:
    return _Table()
