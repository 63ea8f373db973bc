"""Mask secrets in what people and agents wrote, before anything is hashed, stored or sent.

Keys are known by their form: a prefix that a service gives them, or a run of characters that looks drawn.
Other values are known by the name in front of them (`password=`, `Authorization:`). The patterns are a table,
`secrets.toml`; whether a value can be a secret is judged here and in `secret_shapes.py`.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache

from memline.shared.sessions import secret_shapes as shapes
from memline.shared.sessions.secret_shapes import table

#: What stands for a secret.
MASK = "***"

#: Shortest word that can be a key by its form.
_KEY_FROM_CHARS = 11

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

#: First place of a secret, the one behind it, and what is shown instead (empty: `***`).
_Secret = tuple[int, int, str]
_Match = re.Match[str]
_Judge = Callable[[_Match], tuple[int, int] | None]


def mask(text: str) -> tuple[str, int]:
    """Return `text` with `***` for every secret that can be recognised, and the number of places masked."""
    pieces: list[str] = []
    done = count = 0
    for start, stop, shown in _joined(sorted([*_keys(text), *_announced(text)])):
        pieces += (text[done:start], shown)
        done, count = stop, count + 1
    return "".join((*pieces, text[done:])), count


def _joined(secrets: list[_Secret]) -> Iterator[_Secret]:
    """Join secrets that overlap; nothing is shown of a key that a name announces too."""
    start = stop = -1
    shown = ""
    for first, behind, text in secrets:
        if first < stop:
            stop, shown = max(stop, behind), MASK if MASK in (shown, text) else shown or text
            continue
        if stop > start:
            yield start, stop, shown or MASK
        start, stop, shown = first, behind, text
    if stop > start:
        yield start, stop, shown or MASK


def _keys(text: str) -> Iterator[_Secret]:
    """Find keys by their form alone."""
    if "PRIVATE KEY" in text:
        yield from ((*match.span("v"), MASK) for match in _forms()[2].finditer(text))
    words = "\n".join(word for word in text.split() if len(word) >= _KEY_FROM_CHARS and not word.isalpha())
    if not words:
        return
    prefixed, others, _ = _forms()
    if prefixed.search(words):
        for match in _issued(prefixed, text):
            yield *match.span(), _shown(match[0])
    for pattern in others:
        if pattern.search(words):
            yield from ((*match.span(), _shown(match[0])) for match in pattern.finditer(text))
    if any(map(shapes.is_drawn, runs := _RUN.findall(words))) or any(map(shapes.is_hashlike, runs)):
        for match in filter(_is_run, _RUN.finditer(text)):
            yield match.start(), match.start() + len(match[0].rstrip(".")), ""


def _shown(key: str) -> str:
    return f"{key[:6]}…{key[-4:]}" if len(key) >= _SHOWN_FROM_CHARS else MASK


def _issued(form: re.Pattern[str], text: str) -> Iterator[_Match]:
    """Find keys with a prefix; what only begins like one may have another inside."""
    place = 0
    while match := form.search(text, place):
        body = match["body"][:256]
        is_key = shapes.is_issued(body) or (
            text[match.start("body") - 1] in "_-." and len(body) >= 20 and body.isalnum()
        )
        if is_key:
            yield match
        place = match.end() if is_key else match.start("body")


def _is_run(match: _Match) -> bool:
    """Tell whether a run is a key: it looks drawn, or a name in front says so and nothing else does."""
    run, before = match[0], _line_before(match)
    if "://" in before.rpartition(" ")[2]:
        return False
    is_drawn = shapes.is_drawn(run)
    # A line of base64 is as often a part of a file.
    is_encoded = run.endswith("=") or (len(run) > 55 and not before.strip(" \t\"'b+"))
    if is_drawn and not is_encoded:
        return True
    if shapes.is_code_name(run) or not (is_drawn or shapes.is_hashlike(run)):
        return False
    near, not_near = re.compile(_filled(table("forms")["near"])), table("forms")["not_near"]
    before = before[-_NEAR_CHARS:]
    if not (named := near.search(before)) or re.search(not_near, before):
        return False
    return is_drawn or shapes.is_hash(run) or (shapes.is_issued(run) and named.end() > len(before) - 24)


def _announced(text: str) -> Iterator[_Secret]:
    """Find what a name announces."""
    lowered = text.lower()
    if len(lowered) != len(text):
        # A letter that is two in lower case would move all places behind it.
        lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    known = _rules(is_ascii=lowered.isascii())
    for word in [word for word in known if word in lowered]:
        for pattern, judge in known[word]:
            place = lowered.find(word)
            while place >= 0:
                match = pattern.match(text, place)
                if match and (span := judge(match)):
                    yield *span, MASK
                    place = lowered.find(word, max(span[1], place + 1))
                else:
                    place = lowered.find(word, place + 1)


@cache
def _rules(*, is_ascii: bool) -> dict[str, list[tuple[re.Pattern[str], _Judge]]]:
    """Return the rules by the words at which they are tried."""
    rules: dict[str, list[tuple[re.Pattern[str], _Judge]]] = {}
    for words, judge, written in table("announced")["rules"]:
        pattern = re.compile(f"(?i){_filled(written)}")
        for word in re.split(r",\s+", _filled(words)):
            if not is_ascii or word.isascii():
                rules.setdefault(word, []).append((pattern, _JUDGES[judge]))
    return rules


@cache
def _forms() -> tuple[re.Pattern[str], list[re.Pattern[str]], re.Pattern[str]]:
    """Compile the keys with a prefix, those of another form, and private keys."""
    forms = table("forms")
    by_letter: dict[str, list[str]] = {}
    for prefix in sorted(forms["prefixes"].split(), key=len, reverse=True):
        by_letter.setdefault(prefix[0], []).append(re.escape(prefix[1:]))
    prefixes = "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in by_letter.items())
    return (
        re.compile(_filled(rf"{{START}}(?:{prefixes})(?P<body>[A-Za-z0-9_+/=.-]{{12,1024}}(?<!\.))")),
        [
            re.compile(_filled(rf"{{START}}(?:{'|'.join(forms['patterns'])})(?![A-Za-z0-9])")),
            *map(re.compile, forms["tails"]),
        ],
        re.compile(forms["private_key"]),
    )


@cache
def _filled(pattern: str) -> str:
    """Put the fragments into a pattern; one may contain another."""
    fragments = table("fragments")
    while (filled := re.sub(r"\{([A-Z]+)\}", lambda match: fragments[match[1]].strip(), pattern)) != pattern:
        pattern = filled
    return pattern


def _line_before(match: _Match) -> str:
    return match.string[max(0, match.start() - _LINE_CHARS) : match.start()].rpartition("\n")[2]


def _value(match: _Match) -> str:
    groups = match.groupdict()
    return (groups.get("inner") or groups.get("bare") or "")[:_LINE_CHARS]


def _is_strong(match: _Match) -> bool:
    """Tell whether a name is that of a secret: `key` is one of many things, `api_key` is not."""
    word = match["word"].lower()
    before = match.string[max(0, match.start("word") - 40) : match.start("word")]
    if re.search(r"(?i)pub(?:lic)?[ _-]?$", before):
        return False
    if word not in table("values")["weak"]:
        return True
    last = re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[A-Z])", before.rstrip(" _-").lower())[-1]
    if word == "key" and last.endswith("session"):
        return False
    return last.endswith(tuple(shapes.words_of("prefixes"))) or bool(
        re.search(_filled(r"(?i)(?:{SERVICES})[ _-]?$"), before[-20:])
    )


def _is_assigned(match: _Match) -> bool:
    """Judge `name = value` in code, files of settings and prose."""
    strong = _is_strong(match)
    if block := match["block"]:
        return strong and not shapes.is_prose(block.partition("\n")[2])
    if (inner := match["inner"]) is None:
        return _is_bare_secret(match, strong=strong)
    if not shapes.is_literal(inner) or re.search(r"%[sdr(]|\{[\w.!:]*\}|\.\.\.$|…$", inner):
        return False
    if "`" in match["quote"] and re.match(r"[\s,.;:)]|--|[A-Za-z_][A-Za-z_]*[._A-Z][A-Za-z_.]*$", inner):
        return False
    if re.search(r"\s", inner.strip()):
        return (
            strong
            and not shapes.is_prose(inner)
            and (inner == inner.lower() or shapes.looks(inner.split()[0]))
        )
    if not strong:
        return shapes.is_key(inner)
    return not re.match(r"[\d.]{1,5}$|(?:\.{0,2}|~)/|https?://|[\w-]+\.(?:pem|key|crt)$", inner)


def _is_bare_secret(match: _Match, *, strong: bool) -> bool:
    text, says, line = match.string, match["says"], _line_before(match)
    value = _value(match).rstrip(shapes.EDGES)
    if "?" in line[-40:]:
        value = value.partition("&")[0]
    if not shapes.is_literal(value) or shapes.CALL.match(value):
        return False
    if says.count("\n") > 1 or ("\n" in says and "=" in says and "\\" not in says):
        return shapes.is_key(value)
    if not strong and match["word"] not in ("KEY", "TOKEN"):
        return shapes.is_key(value)
    if value.isdigit():
        return strong and len(value) > 3 and match["word"].lower().startswith(("pass", "pw"))
    if shapes.is_term(value):
        return False
    if not _IDENTIFIER.fullmatch(value):
        return shapes.looks(value) or bool(re.search(r"[^\w./:,|\\-]", value)) or not value.isascii()
    if "." in value or shapes.is_code_name(value) or shapes.is_named(value):
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
        if shapes.looks(word[0]):
            value = word[0].strip(shapes.EDGES.replace("!", "").replace("?", ""))
            first = start + word.start() + word[0].index(value)
            return first, first + len(value)
    return None


def _if(test: Callable[[_Match], bool]) -> _Judge:
    """Return a judge that gives the place of the value of a match when a test holds."""

    def judge(match: _Match) -> tuple[int, int] | None:
        groups = match.groupdict()
        name = next(name for name in ("block", "inner", "bare") if groups.get(name))
        return match.span(name) if test(match) else None

    return judge


_JUDGES = {
    "sentence": _sentence,
    "assigned": _if(_is_assigned),
    "all": _if(lambda match: True),
    "literal": _if(lambda match: shapes.is_literal(_value(match)) and not shapes.is_prose(_value(match))),
    "looks": _if(lambda match: shapes.looks(_value(match)) or shapes.is_key(_value(match))),
    "option": _if(
        lambda match: shapes.is_literal(_value(match)) if _is_strong(match) else shapes.is_key(_value(match))
    ),
}
