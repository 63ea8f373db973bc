"""Secrets are masked wherever people and agents write them."""

import random
import re
import string
import sysconfig
import time
import tomllib
from pathlib import Path

import pytest

from memline.shared.sessions.secrets import mask

#: Behind every prefix: letters of both cases and digits, as keys have them.
BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7"

#: Commands, code and settings, sentences in sixty languages, and the keys of services as they document them.
EXAMPLES = tomllib.loads(Path(__file__).with_name("secret_examples.toml").read_text("utf-8"))
PASSWORDS = ["hunter2", "Winter2024!", "Tr0ub4dor&3", "s3cr3t-p4ss", "qwertz77"]
LETTERS = {
    "x": "0123456789abcdef",
    "a": string.ascii_lowercase + string.digits,
    "A": string.ascii_uppercase + string.digits,
    "b": string.ascii_letters + string.digits,
    "l": string.ascii_letters,
    "u": string.ascii_letters + string.digits + "-_",
}


def leaks(secret, text):
    """Tell whether seven characters of the secret in a row can be read; of known forms six are shown."""
    return any(secret[place : place + 7] in text for place in range(len(secret) - 6))


def services():
    """Return for each service: whether its keys have a form, a key, and texts with it."""
    dice = random.Random(7)
    for service, form in EXAMPLES["services"].items():
        key = re.sub(
            r"\{(\w)(\d+)\}", lambda kind: "".join(dice.choices(LETTERS[kind[1]], k=int(kind[2]))), form
        )
        has_form = not re.fullmatch(r"(?:\{\w\d+\}|-)+", form)
        named = [f"{service} = {key}", f"my {service} key is {key}", f'{service}: "{key}"']
        yield has_form, key.removeprefix("123456789:"), [f"please use {key} for it"] if has_form else named


@pytest.mark.parametrize(
    ("kind", "share"), [("code", 0.85), ("sentences", 0.98), ("forms", 0.95), ("by name", 0.65)]
)
def test_secrets_are_masked_as_people_and_programs_write_them(kind, share):
    if kind in ("code", "sentences"):
        written = EXAMPLES["announced" if kind == "code" else "sentences"]
        seen = [
            password not in mask(text.replace("{v}", password)) for text in written for password in PASSWORDS
        ]
    else:
        seen = [
            not leaks(key, mask(text))
            for has_form, key, texts in services()
            if has_form == (kind == "forms")
            for text in texts
        ]

    assert sum(seen) >= share * len(seen)


@pytest.mark.parametrize("text", EXAMPLES["stay"])
def test_code_comparisons_and_placeholders_stay(text):
    assert mask(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"use sk-proj-{BODY} now", "use sk-pro…5vW7 now"),
        ("use sk-12345678 now", "use *** now"),
        (f"api_key=sk-{BODY}; nothing else", "api_key=*** nothing else"),
        ("our key is sk-supersecretmasterkeyone", "our key is sk-sup…yone"),
        ("use xoxb-teamsecretbottoken", "use xoxb-t…oken"),
        ("token: k3b5y2q7v4n6w2x5c3z7m4t6p2", "token: ***"),
        ("mot de passe : soleil", "mot de passe : ***"),
        ("password:\n- opensesame", "password:\n- ***"),
        ("secret: |\n  one two\n  three\nafter", "secret: ***\nafter"),
        ("the password hunter2 works", "the password *** works"),
        ("mysql -phunter2 shop", "mysql -p*** shop"),
        ("PIN: 4938", "PIN: ***"),
        ("**API key**: opensesame", "**API key**: ***"),
        ("{'body': '{\\\"password\\\": \\\"opensesame\\\"}'}", "{'body': '{\\\"password\\\": \\\"***\\\"}'}"),
        ("postgres://me:hunter2@db.example.org/x", "postgres://me:***@db.example.org/x"),
    ],
)
def test_of_a_secret_the_rest_of_the_text_stays(text, shown):
    assert mask(text) == shown


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", " "])
def test_a_private_key_is_masked_over_its_lines(kind, newline):
    lines = [f"-----BEGIN {kind}-----", BODY, f"{BODY}==", f"-----END {kind}-----"]

    assert mask(f"here{newline}{newline.join(lines)}{newline}there") == (
        f"here{newline}{lines[0]}***{lines[3]}{newline}there"
    )


UNITS = [
    *("a", "A1", "key", "\\", "1", "\n", 'password="', "-----BEGIN PRIVATE KEY-----", "eyJ", "--", "cookie:"),
    *(
        "cookie: a=1 ",
        "x=1&",
        "token (",
        "密码",
        "mysql ",
        "password (",
        "turkey:",
        "=eyJ",
        "key:",
        "seed word ",
    ),
    *(
        "my pass is ",
        "password a1b2c ",
        "docker login ",
        "mot de passe ",
        "pin: 49",
        "key: |\n  ",
        "secret:\n- a",
    ),
]


@pytest.mark.parametrize("unit", UNITS)
def test_any_text_takes_no_more_than_time_in_proportion(unit):
    began = time.process_time()
    mask(unit * (10_000 // len(unit)))
    short = time.process_time() - began
    began = time.process_time()
    mask(unit * (100_000 // len(unit)))

    # Ten times as much; something quadratic takes a hundred times as long.
    assert time.process_time() - began < 30 * short + 0.25


def test_of_ten_thousand_lines_of_ordinary_code_three_change_at_most():
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [file for file in library.rglob("*.py") if not {"test", "tests", "site-packages"} & {*file.parts}]
    random.Random(1).shuffle(files)
    lines = [line for file in files[:60] for line in file.read_text("utf-8", "replace").splitlines()]

    changed = [line for line in lines if mask(line) != line]

    assert len(lines) > 10_000 and len(changed) * 10_000 <= 3 * len(lines), changed
