"""Secrets are redacted wherever people and agents write them."""

import random
import re
import string
import sysconfig
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memline.shared.sources import redaction
from memline.shared.sources.redaction import redact, redact_counted

#: Behind every prefix: letters of both cases and digits, as keys have them.
BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7"

#: Forms of secrets, sentences and lines of code, and the keys of services as they document them.
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

KEYS = [
    f"sk-{BODY}",
    f"sk-proj-{BODY}",
    f"sk-ant-api03-{BODY}",
    f"sk_live_{BODY}",
    f"ghp_{BODY}",
    f"gho_{BODY}",
    f"github_pat_{BODY}",
    f"glpat-{BODY}",
    f"xoxb-{BODY}",
    f"xapp-1-{BODY}",
    f"gsk_{BODY}",
    f"AIza{BODY}",
    f"pplx-{BODY}",
    f"npm_{BODY}",
    f"hf_{BODY}",
    f"SG.{BODY}.{BODY}",
    f"AKIA{BODY[:16].upper()}",
    f"eyJhbGciOiJIUzI1NiJ9.{BODY}.{BODY}",
    f"123456789:{BODY}{BODY}",
    f"MTk4NjIyNDgzNDcxOTI1MjQ4.Gh7jK9.{BODY}ab3",
]

ANNOUNCED = [
    "OPENAI_API_KEY={}",
    "MY_TOKEN: {}",
    "export DB_PASSWD='{}'",
    "client_secret = {}",
    "password={}",
    "password: {}",
    "Password: '{} with spaces'",
    '{{"apiKey": "{}"}}',
    '{{"accessToken":"{}"}}',
    '{{"refreshToken" : "{}"}}',
    '{{"body": "{{\\"password\\": \\"{}\\"}}"}}',
    '{{"body": "{{\\\\\\"secret\\\\\\": \\\\\\"{}\\\\\\"}}"}}',
    '{{"password": "a\\"{}"}}',
    "config['db_password'] = '{}'",
    "deploy --token {}",
    "deploy --api-key={}",
    "deploy --db-password '{}'",
    "Authorization: Bearer {}",
    "Authorization: Basic {}==",
    "authorization: {}",
    "curl -H 'X-Api-Key: {}'",
    "curl -u me:{} https://example.org",
    "Bearer {}",
    "postgres://me:{}@db.example.org/x",
    "redis://:{}@127.0.0.1:6379",
    "https://{}@sentry.example.org/1",
    "https://example.org/a?access_token={}&page=2",
    "https://example.org/a?page=2&sig={}",
    "Cookie: theme=dark; sid={}",
    "Set-Cookie: sid={}; Path=/",
    "my password is {}",
    "set the PIN to {}",
    "machine x login me password {}",
    "password:\n{}",
    "aws_secret_access_key = {}",
    "https://hooks.slack.com/services/T0/B0/{}",
    "password:" + " " * 30 + "{}",
    "password\n\n\n=\n\n\n\n\n\n\n\n\n{}",
    "PASSWORD=\\\n{}",
    "**Password:** {}",
    "**API key**: {}",
    "<password>{}</password>",
    "| password | {} |",
    "password -> {}",
    "password (root): {}",
    "the password is: {}",
    "the token for the build server is {}",
    "password: |\n  {}",
    "password: !vault {}",
    "?apikey%3D{}",
    "API_KEY：{}",
    "Passwort: {}",
    "mot de passe : {}",
    "contraseña: {}",
    "пароль: {}",
    "密码：{}，谢谢",
    "密码是{}",
    "パスワード：{}",
    "Bearer: {}",
    "SECRET_KEY_BASE={}",
    "API_KEY_PROD={}",
    "pw: {}",
    "WIFI_PW={}",
    "my pass is {}",
    "password {}",
    "Passwort {}",
    "mot de passe {}",
    "the password ({}) works",
    "password:\n- {}",
    "passwords:\n- one\n- {} (production)",
    "secret: |\n  first line\n\n  {}\n",
    "mysql -u root -p{} shop",
    "mysqldump -p'{} with spaces' shop",
    "redis-cli -h cache -a {}",
    "docker login -u me -p {}",
]


def leaks(secret: str, text: str) -> bool:
    """Whether seven characters of the secret in a row can be read; of known forms six may be shown."""
    return any(secret[place : place + 7] in text for place in range(len(secret) - 6))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "use {}, please", "`{}`", '{{"x": "{}"}}', "a\\n{}\\nb", "x={}", "<{}>", "%3D{}"]
)
def test_a_key_of_a_known_form_is_redacted_anywhere(key: str, around: str) -> None:
    redacted = redact(around.format(key))

    # In front of these stands the number of a bot, which is no secret.
    secret = key.removeprefix("123456789:").removeprefix("MTk4NjIyNDgzNDcxOTI1MjQ4.")
    assert not leaks(secret, redacted)


@pytest.mark.parametrize("around", ANNOUNCED)
def test_what_a_name_announces_is_redacted(around: str) -> None:
    assert not leaks(BODY, redact(around.format(BODY)))


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("mot de passe : soleil", "mot de passe : ***"),
        ("SECRET_KEY_BASE=opensesame", "SECRET_KEY_BASE=***"),
        ("password:\n- opensesame", "password:\n- ***"),
        ("passwords:\n- one (a)\n- two # b\n- some prose", "passwords:\n- *** (a)\n- *** # b\n- some prose"),
        ("secret: |\n  one two\n  three\n\n  four\nafter", "secret: ***\nafter"),
        ("senha: |\n  one two\n  three\nafter", "senha: ***\nafter"),
        ("Passwort: >-\nsommer", "Passwort: >-\n***"),
        ("пароль: !vault sommer", "пароль: !vault ***"),
        ("key: |\n  hunter2\nafter", "key: ***\nafter"),
        ("pw: xyzzy", "pw: ***"),
        ("my pass is x1y2z", "my pass is ***"),
        ("the password hunter2 works", "the password *** works"),
        ("mysql -phunter2 shop", "mysql -p*** shop"),
        ("PIN: 4938", "PIN: ***"),
        ("the pin code is 4938", "the pin code is ***"),
    ],
)  # fmt: skip
def test_secrets_without_any_form_are_redacted_as_people_write_them(text: str, redacted: str) -> None:
    assert redact(text) == redacted


@pytest.mark.parametrize(
    "kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", " "])
def test_a_private_key_is_redacted_over_its_lines(kind: str, newline: str) -> None:
    lines = [f"-----BEGIN {kind}-----", BODY, BODY + "==", f"-----END {kind}-----"]

    assert redact(f"here{newline}{newline.join(lines)}{newline}there") == (
        f"here{newline}{lines[0]}…redacted…{lines[3]}{newline}there"
    )
    assert not leaks(BODY, redact(newline.join(lines[:3])))


@pytest.mark.parametrize("before", ["password", "密码", "**Password**", "passwort"])
@pytest.mark.parametrize("says", [": ", "：", " = ", ":\n", "=> "])
def test_a_word_that_a_name_announces_is_redacted_without_any_form(before: str, says: str) -> None:
    assert "opensesame" not in redact(f"{before}{says}opensesame")


def test_a_key_that_a_line_break_cut_is_redacted_as_a_whole() -> None:
    assert not leaks(BODY, redact(f"the key is sk-{BODY}\n    {BODY}\nand more"))
    assert redact(f"sk-{BODY}\nand more").endswith("\nand more")


def test_of_a_key_enough_is_shown_to_tell_it_from_others() -> None:
    assert redact(f"use sk-proj-{BODY} now") == "use sk-pro…5vW7 now"
    assert redact("use sk-12345678 now") == "use *** now"


@pytest.mark.parametrize(
    "name", ["API_KEY", "stripe_key", "apikey", "secret key", "KEY", "x-api-key", "signingKey"]
)
def test_a_key_is_redacted_also_when_it_is_a_plain_word(name: str) -> None:
    assert redact(f"{name}=opensesame") == f"{name}=***"
    assert redact(f"{name}: opensesame") == f"{name}: ***"


@pytest.mark.parametrize(
    "text",
    [
        "the key: simple design",
        "sorted(rows, key=len)",
        "max_tokens: 4096",
        "the task-management-system and its risk-assessment",
        "how do I reset my password?",
        "a bearer of bad news",
        "basic functionality of JavaScript",
        "commit a828e60deadbeefcafe1234567890abcdef12345 is in the aws branch",
        "at 2026-02-10T10:00:00.000Z we met",
        "see https://example.org:8080/path?page=2",
        "keyboard: qwerty, monkey: banana",
        "Turkey: Istanbul, hockey: Toronto 3",
        "Key: The main idea, `key:value` pairs",
        "Basic Installation and the Basic Multilingual Plane",
        "a token is 4 characters",
        "the key is in src/components/UserCard.tsx",
        "Key:\n- The first point\n- The second",
        "key: |\n  A paragraph of prose\n  and more",
        "credentials:\n- user: me",
        "passwords:\n- Use a manager\n- Rotate them",
        "PASSWORD_MIN_LENGTH=12, key_type: rsa, secret_name: db",
        "spw: x, pwned: yes",
        "the pass is 20 km long",
        "we pass to v2 now",
        "password manager, password sha256, password 2FA, password 12-digit",
        "password policy of 2026-02-10, the password 2026-02-10 asked for",
        "a password field in src/auth2.py",
        "le train passe 3 fois",
        "mysql -p shop, mysql -P3306 -h db, mysql --port=3306",
        "redis-cli -a -h cache",
        "PIN: 13, pin 4 of the board, pinned: 4938, pin 4938.5",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact(text) == text


@given(st.text())
def test_any_text_can_be_redacted_and_redacted_again(text: str) -> None:
    assert isinstance(redact(redact(text)), str)


@given(
    st.text(
        alphabet="abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", min_size=20, max_size=60
    ).map(lambda drawn: f"{drawn}x7Q"),
    st.sampled_from(["password={}", '{{"token":"{}"}}', "Bearer {}1", "sk-{}", "ghp_{}", "--secret {}"]),
    st.text(alphabet=" .,;:!?-_/\\\n\"'öß中", max_size=30),
    st.text(alphabet=" .,;:!?-_/\\\n\"'öß中", max_size=30),
)
def test_a_planted_secret_is_never_readable(secret: str, around: str, before: str, after: str) -> None:
    redacted = redact(f"{before} {around.format(secret)} {after}")

    assert secret not in redacted and secret[6:-4] not in redacted


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "A1",
        "key",
        "\\",
        "1",
        'password="',
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "--",
        "cookie:",
        "cookie: a=1 ",
        "cookie:a=",
        "cookie: sess=aaaaaaa;",
        "cookie=a'=",
        "\n",
        "x=1&",
        "key" + " " * 80,
        "token (",
        "密码",
        "key A1" + "b" * 20 + " ",
        "mysql ",
        "key: |\n  ",
        "key: |\n " + "x" * 500,
        "secret:\n- a\n",
        "password (",
        "turkey:",
        "=eyJ",
        "key:",
        "secret:- ",
        "my pass is ",
        "password a1b2c ",
        "docker login ",
        "mot de passe ",
        "pin: 49",
    ],
)
def test_bad_input_takes_no_more_than_time_in_proportion(unit: str) -> None:
    began = time.process_time()
    redact(unit * (10_000 // len(unit)))
    short = time.process_time() - began
    began = time.process_time()
    redact(unit * (100_000 // len(unit)))

    # Ten times as much; something quadratic takes a hundred times as long.
    assert time.process_time() - began < 30 * short + 0.25


def test_what_is_hidden_is_counted_once() -> None:
    text = f"sk-{BODY} and again sk-{BODY}, api_key=sk-{BODY}; nothing else"

    hidden, count = redact_counted(text)

    assert hidden == redact(text) and BODY not in hidden
    assert count == 3
    assert redact_counted("a plain sentence … with dots") == ("a plain sentence … with dots", 0)


@pytest.mark.parametrize("around", EXAMPLES["announced"])
def test_a_password_is_redacted_in_every_form_in_which_people_and_programs_write_it(around: str) -> None:
    for password in PASSWORDS:
        assert password not in redact(around.replace("{v}", password))


@pytest.mark.parametrize(("secret", "text"), EXAMPLES["own"])
def test_webhooks_tokens_app_passwords_and_seeds_are_redacted(secret: str, text: str) -> None:
    assert secret in text and secret not in redact(text)


def test_a_password_is_redacted_in_sentences_of_sixty_languages() -> None:
    assert len(EXAMPLES["sentences"]) > 60
    read = [
        text
        for text in EXAMPLES["sentences"]
        if any(password in redact(text.replace("{v}", password)) for password in PASSWORDS)
    ]

    assert read == []


def test_the_keys_of_services_are_redacted_by_their_documented_form() -> None:
    dice = random.Random(7)
    read: dict[str, str] = {}
    services: dict[str, str] = EXAMPLES["services"]
    for service, form in services.items():
        key = re.sub(
            r"\{(\w)(\d+)\}", lambda kind: "".join(dice.choices(LETTERS[kind[1]], k=int(kind[2]))), form
        )
        # What has no mark of its own is told by the name of the service.
        texts = [f"please use {key} for it"]
        if re.fullmatch(r"(?:\{\w\d+\}|-)+", form):
            texts = [f"{service} = {key}", f"my {service} key is {key}", f'{service}: "{key}"']
        # In front of the key of a bot stands its number, which is no secret.
        secret = key.removeprefix("123456789:")
        read |= {text: redact(text) for text in texts if leaks(secret, redact(text))}

    # Of what is drawn, some looks like a word.
    assert len(services) >= 150 and len(read) <= len(services) // 20, read


@pytest.mark.parametrize("text", EXAMPLES["stay"])
def test_code_comparisons_and_empty_values_stay(text: str) -> None:
    assert redact(text) == text


def changed_lines(files: Iterable[Path], enough: int) -> tuple[int, list[str]]:
    """How many lines there were, and those that changed."""
    count, changed = 0, list[str]()
    for file in files:
        lines = file.read_text("utf-8", "replace").splitlines()
        count += len(lines)
        changed += [f"{line} => {redacted}" for line in lines if (redacted := redact(line)) != line]
        if count > enough:
            break
    return count, changed


def test_of_ten_thousand_lines_of_ordinary_code_three_change_at_most() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [file for file in library.rglob("*.py") if not {"test", "tests", "site-packages"} & {*file.parts}]
    random.Random(1).shuffle(files)

    count, changed = changed_lines(files, 60_000)

    assert count > 20_000 and len(changed) * 10_000 <= 3 * count, changed


def test_of_ten_thousand_lines_of_prose_one_changes_at_most() -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    texts = [
        *Path("/usr/share/common-licenses").glob("*"),
        *Path("/usr/share/doc").glob("*/copyright"),
        *packages.glob("*/METADATA"),
        *(file for file in packages.rglob("*") if "LICENSE" in file.name),
    ]
    files = sorted({file.resolve() for file in texts if file.is_file()})
    random.Random(1).shuffle(files)

    count, changed = changed_lines(files, 60_000)

    assert count > 20_000 and len(changed) * 10_000 <= count, changed


def test_of_ten_thousand_lines_of_headers_three_change_at_most() -> None:
    """Those of OpenSSL name their stacks `sk_…`, as Stripe its keys."""
    files = [*Path("/usr/include").rglob("*.h"), *Path(sysconfig.get_paths()["include"]).rglob("*.h")]
    if not files:
        pytest.skip("no C headers here")
    random.Random(1).shuffle(files)
    openssl = [file for file in files if "openssl" in str(file)]

    for corpus in (files, openssl):
        count, changed = changed_lines(corpus, 60_000)
        assert len(changed) * 10_000 <= 3 * max(count, 10_000), changed


def test_of_docs_about_keys_only_examples_of_secrets_change() -> None:
    """Those of this project. One page lists what is hidden."""
    root = Path(__file__).parents[3]
    files = [file for file in sorted((root / "docs").glob("*.md")) if file.name != "sessions.md"]

    count, changed = changed_lines([*files, root / "README.md", root / "CONTRIBUTING.md"], 60_000)

    assert count > 2_000 and len(changed) <= 1, changed


def written(around: str, password: str = PASSWORDS[0]) -> str:
    """An example with a password, or a key of a service as it may be drawn."""
    dice = random.Random(around)
    text = around.replace("{v}", password)
    return re.sub(r"\{([xaAblu])(\d+)\}", lambda m: "".join(dice.choices(LETTERS[m[1]], k=int(m[2]))), text)


def test_what_spares_time_spares_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of a text, and what a key needs, decide which rules are tried; here all are."""
    dice = random.Random(3)
    examples = [
        *map(written, EXAMPLES["announced"] + EXAMPLES["sentences"] + EXAMPLES["stay"]),
        *(text for _, text in EXAMPLES["own"]),
        *(f"{service}: {written(form)}" for service, form in EXAMPLES["services"].items()),
        *(f"a{mark}{written(form)}" for mark in ("\\n", "%3D") for form in EXAMPLES["services"].values()),
    ]
    breaks = ["\n", " ", "\\n", "%3D", "; "]
    texts = [*examples, *(dice.choice(breaks).join(dice.choices(examples, k=4)) for _ in range(400))]
    texts += [text.upper() for text in texts]
    quick = list(map(redact_counted, texts))

    everything = {*redaction._all_stems()[0], "", redaction._BEYOND}
    monkeypatch.setattr(redaction, "_stems", lambda _: everything)
    (_, *forms), (announced, searched) = redaction._forms(), redaction._rules()
    monkeypatch.setattr(redaction, "_forms", lambda: (re.compile(""), *forms))
    monkeypatch.setattr(redaction, "OPEN_FROM_CHARS", 1)
    slow = [(words, re.compile(""), pattern, judge) for words, _, pattern, judge in searched]
    monkeypatch.setattr(redaction, "_rules", lambda: (announced, slow))

    assert list(map(redact_counted, texts)) == quick


def test_a_long_text_of_new_words_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_MOST_PLAIN", 50)

    for number in range(200):
        letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        redact(f"qq{letters} and password: {PASSWORDS[0]}")

    assert len(redaction._plain) <= 50
