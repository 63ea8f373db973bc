"""Judge whether what stands behind a name can be a secret.

A value in code is most often a name, a call, an index or a format; in prose it is a word. A secret is what
has letters and digits mixed, or stands as it is written where only a literal can: in quotes, on a command
line, in a file of settings. The words are data: `secret_patterns.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from memline.shared.sources.secret_shapes import (
    CALL,
    CHANGES,
    EDGES,
    HEX,
    PIECE,
    is_code_name,
    is_issued,
    is_literal,
    is_prose,
    is_random,
    looks,
    pattern_of,
    tables,
    words_of,
)

#: First place of a secret and the one behind it.
Span = tuple[int, int]

#: Longest value that is judged; of a longer one the rest goes with it.
MAX_VALUE_CHARS = 1024
#: Of a line, what is looked at before and behind a match: the time stays linear.
LINE_CHARS = 256
_WORD_REST = re.compile(r"\S*")

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？؟।]|[;\r\n]")
_TOKEN = re.compile(r"[!-~]{5,}|[^\s，。、；！？「」“”»«()]+")
_IDENTIFIER = re.compile(r"[&*!@$]?[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.)[A-Za-z_$][\w$]*)*[!?]?")
#: The parts of a name of code.
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAME_BEFORE = re.compile(
    r"""(?i)(?:key|name|id)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?[\w.:-]{0,64}"""
    r"""(?:key|token|secret|passw(?:or)?d|passphrase|pwd|credential)s?(?:[_.-][\w.-]{0,24})?\\?["']?[,>]?\s{1,80}(?:<|\\?["'])?$"""
    r"""|(?i:name=["'][\w.:-]{0,64}(?:key|token|secret|password|pwd)[\w.-]{0,24}["']>\s{0,80}<)$"""
)
#: A cookie, if its value can be a key: no shorter one is.
_COOKIE = re.compile(r"(?:([^\s;,=]*+)=)?([^\s;,=]{8,})")
#: The beginning of another header, as the rule has it that stands without quotes.
_NEXT_COOKIES = re.compile(
    r"""(?i)cookie2?(?:\\{0,8}["'`])?\s{0,8}[:=]\s{0,8}(?!\\{0,8}["'`])[^\s=;]{1,128}="""
)
#: What is left of a key that was known by its form.
_SHORTENED = re.compile(r"[\w./+=-]{6}…[\w./+=-]{0,4}")
_FED = re.compile(
    r"(?i)chpasswd|passwd|sudo\b.*-\w*S|-stdin\b|passphrase-fd|pass(?:in|out)?\s+stdin|kinit|cryptsetup|\bsu\b"
)


def _value(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return (groups.get("inner") or groups.get("bare") or "")[:256]


def _line_before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - LINE_CHARS) : match.start()].rpartition("\n")[2]


def _assigned(match: re.Match[str]) -> bool:
    """`name = value` in code, files of settings and prose."""
    groups = match.groupdict()
    word, strong = groups["word"], _is_strong(match)
    if block := groups["block"]:
        lines = [line.strip() for line in block.splitlines()[1:] if line.strip()]
        if strong:
            return not is_prose(" ".join(lines))
        return all(len(line.split()) == 1 and looks(line) for line in lines)
    if groups["items"]:
        return strong and not is_prose(groups["items"])
    if (inner := groups["inner"]) is not None:
        if "`" in groups["quote"] and _is_code_span(inner):
            return False
        return _is_quoted_secret(inner, strong=strong, word=word)
    return _is_bare_secret(match, strong=strong)


def _is_code_span(inner: str) -> bool:
    """Whether what is between backticks in prose is a name of code, or stands between two spans."""
    is_dotted = re.search(r"[._]|[a-z][A-Z]", inner) and not re.search(r"\d", inner)
    return bool(re.match(r"[\s,.;:)]|--", inner) or (_IDENTIFIER.fullmatch(inner) and is_dotted))


def _is_strong(match: re.Match[str]) -> bool:
    """Whether a name is that of a secret and of nothing else."""
    word = match["word"]
    before = match.string[max(0, match.start("word") - 40) : match.start("word")]
    if re.search(r"(?i)pub(?:lic)?[ _-]?$", before):
        return False
    if word.lower() not in tables()["values"]["weak"]:
        return True
    last = re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[A-Z])", before.rstrip(" _-").lower())[-1]
    if word.lower() == "key" and last.endswith("session"):
        # By which a session is known, as others by an id.
        return False
    return last.endswith(tuple(words_of("prefixes"))) or bool(_service().search(before[-20:]))


@cache
def _service() -> re.Pattern[str]:
    return re.compile(rf"(?i)(?:{services()})[ _-]?$")


def services() -> str:
    """Return the names of services as one pattern."""
    return "|".join(tables()["values"]["services"].split())


def _is_quoted_secret(inner: str, *, strong: bool, word: str) -> bool:
    if _SHORTENED.fullmatch(inner):
        return True
    if not is_literal(inner) or re.search(r"%[sdr(]|\{[\w.!:]*\}", inner):
        return False
    if inner.endswith(("...", "…")):
        return False
    if re.search(r"\s", inner.strip()):
        return word.lower() == "psk" or (
            strong
            and not is_prose(inner)
            and (
                looks(inner.split()[0])
                or inner == inner.lower()
                or "phrase" in word.lower()
                or _is_numbered_phrase(inner)
            )
        )
    if not strong:
        return _is_key(inner) or (
            len(inner) >= 20
            and inner.isalnum()
            and inner.isascii()
            and (any(map(str.isdigit, inner)) or not _is_name(inner))
        )
    if re.fullmatch(r"\d{6,}", inner):
        return word.lower().startswith(("pass", "pw", "psk"))
    return not re.match(r"[\d.]+$|(?:\.{0,2}|~)/|https?://|[\w-]+\.(?:pem|key|crt)$", inner)


def _is_numbered_phrase(value: str) -> bool:
    """Whether words with capital letters and a number are a phrase, and not the label of a field."""
    words = value.split()
    return (
        len(words) > 2
        and any(map(str.isdigit, words))
        and all(word.isdigit() or (word.isalpha() and word[0].isupper()) for word in words)
        and (words_of("named") | words_of("counted")).isdisjoint(value.lower().split())
    )


def _is_name(value: str) -> bool:
    """Whether a run is one of code, made of written pieces."""
    return sum(map(len, PIECE.findall(value))) > 0.55 * len(value) and value.lower() != value


def _is_key(value: str) -> bool:
    """Whether a value is a secret although its name has other meanings: only mixed letters and digits are."""
    value = value.strip(EDGES)
    if is_code_name(value):
        return False
    if HEX.fullmatch(value):
        return len(value) >= 24 and not value.isdigit()
    parts = re.split(r"[^A-Za-z0-9]+", value)
    return looks(value) and (
        any(map(is_random, parts))
        or (len(value) >= 8 and len(CHANGES.findall(value)) >= 0.3 * len(value) and len(parts) < 4)
    )


def _is_bare_secret(match: re.Match[str], *, strong: bool) -> bool:
    text, says = match.string, match["says"]
    value = (match["bare"] or "")[:256].rstrip(EDGES)
    line = _line_before(match)
    if (match.start() and text[match.start() - 1 : match.start()] in "?&") or "?" in line[-40:]:
        value = value.partition("&")[0]
    if _SHORTENED.fullmatch(value):
        return True
    if not is_literal(match["bare"]) or not is_literal(value) or value.lower() in words_of("stop"):
        return False
    if CALL.match(value) or (says[:1].isspace() and re.match(r"[a-z]+:", match["bare"])):
        return False
    if "\n" in says and (says.count("\n") > 1 or ("=" in says and "\\" not in says)):
        return _is_key(value)
    if not strong and match["word"] not in ("KEY", "TOKEN"):
        return _is_key(value)
    if value.isdigit():
        return strong and match["word"].lower().startswith(("pass", "pw"))
    if value[:2].lower() == "0x" or pattern_of("term").fullmatch(value):
        return False
    if not _IDENTIFIER.fullmatch(value):
        return bool(
            looks(value)
            or (re.search(r"[^\W\d_]", value) and re.search(r"[^\w./:,|\\-]", value))
            or not value.isascii()
            or ("-" in value[1:-1] and _is_literal_place(match, line))
        )
    parts = {part.lower() for part in _PARTS.findall(value)}
    named = parts & words_of("named")
    if (
        "." in value
        or parts == named
        or is_code_name(value)
        or (named and ("_" in value or (len(value) < 20 and not re.search(r"\d", value))))
    ):
        return False
    return bool(re.search(r"\d", value)) or _is_literal_place(match, line)


def _is_literal_place(match: re.Match[str], line: str) -> bool:
    """Whether a plain word behind a name can only be meant as it is written, and not as a name of code."""
    text, says = match.string, match["says"]
    name = text[match.start() : match.start("says")]
    rest = text[match.end() : match.end() + LINE_CHARS].partition("\n")[0].strip()
    if "\n" in says:
        return not rest and match["bare"].islower()
    if (
        name.endswith(('"', "'"))
        or "(" in line.rsplit(")", 1)[-1]
        or (says != "=" and re.search(r"[\w\])]\.$", line))
        or re.search(r"(?i)\bself\.|\b(?:def|const|let|var|return|if|self)\b", line)
    ):
        return False
    if says == "=" and (name.isupper() or (";" in line and match["bare"].endswith(";"))):
        return True
    ended = not rest or rest[0] in "#(|`" or match["bare"][-1] in ",;."
    if "=" in says and "=>" not in says:
        return match["bare"][-1] not in ";)," and ended and (says == "=" or not line.strip("*_>"))
    return ended and not match["bare"].endswith((")", "};"))


def _sentence(match: re.Match[str]) -> Span | None:
    """Find the first word of the sentence that looks like a password, in any language."""
    said = _SENTENCE_END.split(match["bare"], 1)[0]
    start = match.start("bare")
    for number, word in enumerate(_TOKEN.finditer(said)):
        if number > 8 or word[0][-1] in "([{=<" or word[0][0] in "=<>|+":
            return None
        if looks(word[0]) or (number < 2 and re.fullmatch(r"\d{6,12}", word[0].strip(EDGES))):
            value = word[0].strip(EDGES.replace("!", "").replace("?", ""))
            first = start + word.start() + word[0].index(value)
            return first, first + len(value)
    return None


def _set(match: re.Match[str]) -> bool:
    """`ENV API_KEY x`; "env API-key fallback" is prose."""
    value = _value(match)
    is_said = re.search(r"\b[A-Z0-9_]+\s+$|_\w+\s+$|requirepass|masterauth|wpa_|\buser\b", match["name"])
    return is_literal(value) and bool(is_said or looks(value) or match.groupdict()["inner"])


def _piped(match: re.Match[str]) -> bool:
    """What is printed into a program, but for a variable."""
    return not re.match(
        r"""(?:["']?%\w(?:\\n)?["']?\s+)?["']?\$""", match[0][match.end("name") - match.start() :]
    )


def _given(match: re.Match[str]) -> bool:
    """`define('DB_PASSWORD', 'x')`: a name and its value are given to a call that sets it."""
    call = re.search(r"(?i)(?:define|set\w*|put\w*|add\w*|config\w*)\s*\([^()]*$", _line_before(match))
    return (
        bool(call)
        and is_literal(match["inner"])
        and (not re.search(r"\s", match["inner"]) and (_is_strong(match) or _is_key(match["inner"])))
    )


def _named(match: re.Match[str]) -> bool:
    """`key="ApiKey" value="…"`: the name stands in another attribute."""
    if match.groupdict()["bare"] and match["bare"].endswith((")", "),")):
        return False
    before = match.string[max(0, match.start() - 200) : match.start()]
    return bool(_NAME_BEFORE.search(before)) and is_literal(_value(match))


def _fed(match: re.Match[str]) -> bool:
    return bool(_FED.search(_line_before(match))) and is_literal(_value(match))


def _cookies(match: re.Match[str]) -> bool:
    """Whether one of the cookies of a header is a key, or is named like one and has a digit."""
    groups = match.groupdict()
    written: str = groups["inner"] or groups["bare"]
    # The next header is judged by itself, or each would be again for every one in front of it.
    behind = _NEXT_COOKIES.search(written)
    for name, value in _COOKIE.findall(written[: behind.start() if behind else None]):
        value = value.strip(EDGES)
        if _is_key(value):
            return True
        if not re.search(r"\d", value) or not is_literal(value):
            continue
        if len(value) >= 12 and not value.isdigit() and HEX.fullmatch(value):
            return True
        if len(value) >= 8 and pattern_of("cookie").search(name):
            return True
    return False


def _header(match: re.Match[str]) -> bool:
    value = _value(match)
    return is_literal(value) and (looks(value) or is_issued(value))


def _option(match: re.Match[str]) -> bool:
    """`--password x`; `--key x` is most often a name or a file."""
    return is_literal(_value(match)) if _is_strong(match) else _is_key(_value(match))


def _sql(match: re.Match[str]) -> bool:
    """A value in quotes; a bare one only in capital SQL, since people are identified by many things."""
    if "`" in (match["quote"] or ""):
        return False
    before = match.string[max(0, match.start() - LINE_CHARS) : match.start()]
    is_sure = match["name"].startswith("IDENTIFIED")
    is_said = is_sure or re.search(r"(?i)\b(?:user|role|login|alter|create|grant)\b", before)
    is_sure = is_sure or match["bare"] is None
    return bool(is_said) and (is_literal(_value(match)) if is_sure else looks(_value(match)))


def _pair(match: re.Match[str]) -> bool:
    return is_literal(match["inner"]) and not is_prose(match["inner"]) and "/" not in match["inner"][:1]


def _oracle(match: re.Match[str]) -> bool:
    value, host = match["bare"].strip('"'), match["host"]
    line = match.string[max(0, match.start() - 64) : match.start()].rpartition("\n")[2]
    if not is_literal(value):
        return False
    named = re.search(
        r"(?i)conn|sqlplus|sqlldr|rman|expdp|impdp|\b(?:exp|imp)\b|login|oracle|jdbc|database|\bdb\b", line
    )
    at = re.fullmatch(r"(?i)//.*|(?:orcl|xe|pdb|prod|test|dev|localhost|[\w.-]*db)[\w.-]*(?::\d+)?", host)
    return bool(named or at) and not re.fullmatch(r"(?i)v?\d.*|main|master|latest|next", host)


def _seed(match: re.Match[str]) -> bool:
    run = re.sub(r"[ -]", "", match["bare"])
    around = match.string[max(0, match.start() - 64) : match.end() + 24].lower()
    if not re.search(r"otp|2fa|mfa|seed|authenticator|factor|secret", around) or HEX.fullmatch(
        run.rstrip("=")
    ):
        return False
    return len(CHANGES.findall(run.rstrip("="))) >= 2


def _groups(match: re.Match[str]) -> bool:
    """Groups of letters that no sentence has: one without a vowel, digits among them, or a name in front."""
    groups = match["bare"].split(match["sep"])
    joined = "".join(groups)
    if len({len(group) for group in groups}) > 1 or joined.isdigit():
        return False
    before = match.string[max(0, match.start() - 64) : match.start()].lower()
    named = re.search(
        r"pass|kennwort|\bapp\b|gmail|recovery|backup code|[^\x00-\u024f]{3}|contrase|senha|parol|heslo|hasł",
        before,
    )
    if joined.isalpha():
        drawn = sum(not re.search(r"[aeiouy]", group) for group in groups)
        return (
            joined.islower()
            and len(groups) == 4
            and len(joined) == 16
            and bool(drawn or (named and not is_prose(match["bare"])))
        )
    return (
        not HEX.fullmatch(joined)
        and ((len(joined) > 19 and is_random(joined)) or bool(named))
        and bool(re.search("[A-Za-z]", joined))
    )


def _looks_or_plain(match: re.Match[str]) -> bool:
    value = match["bare"].rstrip(EDGES)
    rest = match.string[match.end() : match.end() + LINE_CHARS].partition("\n")[0].strip()
    if looks(value):
        return True
    is_word = value.isalpha() and not value.islower()
    return len(value) > 5 and not rest and is_literal(value) and not (is_word and match["bare"] == value)


def _if(test: Callable[[re.Match[str]], bool]) -> Callable[[re.Match[str]], Span | None]:
    """Give the place of the value of a match when a test holds."""

    def judge(match: re.Match[str]) -> Span | None:
        if not test(match):
            return None
        groups = match.groupdict()
        for name in ("block", "items", "inner", "bare"):
            if groups.get(name) is not None:
                start, stop = match.span(name)
                # Patterns are bounded, a value is not.
                is_cut = name == "bare" and stop - start >= MAX_VALUE_CHARS and stop == match.end()
                return start, _WORD_REST.match(match.string, stop).end() if is_cut else stop  # type: ignore[union-attr]
        return match.end("name"), match.end()

    return judge


#: By the name that a rule gives: where the secret of a match is, or None.
JUDGES: dict[str, Callable[[re.Match[str]], Span | None]] = {
    "sentence": _sentence,
    "all": _if(lambda match: True),
    "set": _if(_set),
    "piped": _if(_piped),
    "given": _if(_given),
    "with_digits": _if(lambda match: bool(re.search(r"\d", match["bare"]))),
    "literal": _if(lambda match: is_literal(_value(match))),
    "looks": _if(lambda match: looks(_value(match)) or _is_key(_value(match))),
    "address": _if(lambda match: bool(re.search(r"\d", _value(match)))),
    "assigned": _if(_assigned),
    "header": _if(_header),
    "option": _if(_option),
    "sql": _if(_sql),
    "named": _if(_named),
    "fed": _if(_fed),
    "cookies": _if(_cookies),
    "pair": _if(_pair),
    "oracle": _if(_oracle),
    "seed": _if(_seed),
    "groups": _if(_groups),
    "looks_or_plain": _if(_looks_or_plain),
}
