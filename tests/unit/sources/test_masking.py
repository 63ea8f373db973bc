"""Secrets are masked wherever they stand in what people and agents write."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.sources.masking import mask

#: Behind every prefix: letters of both cases and digits, as keys have them.
BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7"

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
]


def leaks(secret: str, text: str) -> bool:
    """Whether seven characters of the secret in a row can be read; of known forms six may be shown."""
    return any(secret[place : place + 7] in text for place in range(len(secret) - 6))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "use {}, please", "`{}`", '{{"x": "{}"}}', "a\\n{}\\nb", "x={}", "<{}>", "%3D{}"]
)
def test_a_key_of_a_known_form_is_masked_wherever_it_stands(key: str, around: str) -> None:
    masked = mask(around.format(key))

    # In front of these stands the number of a bot, which is no secret.
    secret = key.removeprefix("123456789:").removeprefix("MTk4NjIyNDgzNDcxOTI1MjQ4.")
    assert not leaks(secret, masked)


@pytest.mark.parametrize("around", ANNOUNCED)
def test_what_a_name_announces_is_masked(around: str) -> None:
    assert not leaks(BODY, mask(around.format(BODY)))


@pytest.mark.parametrize(
    "kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", " "])
def test_a_private_key_is_masked_over_its_lines(kind: str, newline: str) -> None:
    lines = [f"-----BEGIN {kind}-----", BODY, BODY + "==", f"-----END {kind}-----"]

    assert mask(f"here{newline}{newline.join(lines)}{newline}there") == (
        f"here{newline}{lines[0]}…redacted…{lines[3]}{newline}there"
    )
    assert not leaks(BODY, mask(newline.join(lines[:3])))


@pytest.mark.parametrize("before", ["password", "密码", "**Password**", "passwort"])
@pytest.mark.parametrize("says", [": ", "：", " = ", ":\n", "=> "])
def test_a_word_that_a_name_announces_is_masked_without_any_form(before: str, says: str) -> None:
    assert "opensesame" not in mask(f"{before}{says}opensesame")


def test_a_key_that_a_line_break_cut_is_masked_as_a_whole() -> None:
    assert not leaks(BODY, mask(f"the key is sk-{BODY}\n    {BODY}\nand more"))
    assert mask(f"sk-{BODY}\nand more").endswith("\nand more")


def test_of_a_key_enough_is_shown_to_tell_it_from_others() -> None:
    assert mask(f"use sk-proj-{BODY} now") == "use sk-pro…5vW7 now"
    assert mask("use sk-12345678 now") == "use *** now"


@pytest.mark.parametrize(
    "name", ["API_KEY", "stripe_key", "apikey", "secret key", "KEY", "x-api-key", "signingKey"]
)
def test_a_key_is_masked_also_when_it_is_a_plain_word(name: str) -> None:
    assert mask(f"{name}=opensesame") == f"{name}=***"
    assert mask(f"{name}: opensesame") == f"{name}: ***"


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
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert mask(text) == text


@given(st.text())
def test_any_text_can_be_masked_and_masked_again(text: str) -> None:
    assert isinstance(mask(mask(text)), str)


@given(
    st.text(alphabet="abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", min_size=20, max_size=60),
    st.sampled_from(["password={}", '{{"token":"{}"}}', "Bearer {}1", "sk-{}", "ghp_{}", "--secret {}"]),
    st.text(alphabet=" .,;:!?-_/\\\n\"'öß中", max_size=30),
    st.text(alphabet=" .,;:!?-_/\\\n\"'öß中", max_size=30),
)
def test_a_planted_secret_is_never_readable(secret: str, around: str, before: str, after: str) -> None:
    masked = mask(f"{before} {around.format(secret)} {after}")

    assert secret not in masked and secret[6:-4] not in masked


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
        "\n",
        "x=1&",
        "key" + " " * 80,
        "token (",
        "密码",
        "key A1" + "b" * 20 + " ",
    ],
)
def test_bad_input_takes_no_more_than_time_in_proportion(unit: str) -> None:
    began = time.process_time()
    mask(unit * (20_000 // len(unit)))
    short = time.process_time() - began
    began = time.process_time()
    mask(unit * (400_000 // len(unit)))

    # Twenty times as much; something quadratic takes four hundred times as long.
    assert time.process_time() - began < 80 * short + 0.5
