"""Feed broken input to everything that reads what others wrote, and stop at the first exception.

    python -m tests.fuzz [--cases 1000000] [--seed 1] [--only redaction,http]

Each target splices, repeats, cuts and flips seeds, checks what must hold for any
input, and counts its cases. A case that fails prints its seed and input; `--seed` and `--only` repeat it.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from memline.producers.bridges import import_chats
from memline.shared.config.load import Options, load
from memline.shared.errors import MemlineError
from memline.shared.sessions.said import Records
from memline.shared.sessions.secrets import mask
from memline.shared.sessions.transcripts import PROGRAMS, messages_of
from memline.shared.sources import about as note_links
from memline.shared.sources.chunking import split
from memline.shared.sources.markdown import outline
from memline.shared.sources.tokens import CHARS_PER_TOKEN, weighted_length
from tests.support.http_api import serving
from tests.support.workspace import Place

#: Seconds one case may take: far above any that is honest, far below what a quadratic pattern takes.
MAX_CASE_S = 2.0

_WORDS = r"""
password= secret: | token Authorization: Bearer sk-abcdefghijklmnop1234 -----BEGIN PRIVATE KEY-----
pw: x PIN: 4938 mot de passe : X mysql -phunter2 " ' ` ``` ~~~ # ## --- - [ ] | a | b | \ / .. . ~
../ // MEMORY.md memory/ .md #L1-L9 #L0 %2e%2e �� é ß 磁盘 ｆｕｌｌ {"type":"message"} {"role":"user"}
null true -1 1e309 NaN [] {} "" 0 99999999999999999999
""".split()  # noqa: SIM905
_WORDS += ["\x00", "\x1b[31m", "\r\n", "\n\n", "\t", "\u2028", "\ufeff"]


def mutated(dice, seed):
    """The seed, changed in one to four places."""
    text = seed
    for _ in range(dice.randint(1, 4)):
        at, until = sorted(dice.randint(0, len(text)) for _ in range(2))
        until = min(until, at + 40)
        match dice.randrange(6):
            case 0:
                text = text[:at] + text[until:]
            case 1:
                text = text[:at] + dice.choice(_WORDS) + text[at:]
            case 2:
                text = text[:until] + text[at:until] * dice.randint(1, 30) + text[until:]
            case 3:
                text = (
                    text[:at] + chr(dice.choice((dice.randrange(128), dice.randrange(0xD000)))) + text[until:]
                )
            case 4:
                text = dice.choice(_WORDS).join((text[:at], text[at:]))
            case _:
                text = text[at:] + text[:at]
    return text[:4_000]


_RECORD = {
    "type": "message",
    "timestamp": "2026-02-10T10:00:00Z",
    "message": {"role": "user", "content": [{"type": "text", "text": "Deploy failed, password: hunter2"}]},
}


def odd(dice, value, depth=0):
    """A JSON value with some of its parts replaced by others of any type."""
    if dice.random() < 0.12:
        leaves = (None, True, -1, 2**70, 1e300, "", "x" * dice.randrange(50), [], {}, ["x"], {"a": None})
        return dice.choice(leaves)
    if isinstance(value, dict):
        return {
            mutated(dice, k) if dice.random() < 0.03 else k: odd(dice, v, depth + 1) for k, v in value.items()
        }
    if isinstance(value, list):
        return [odd(dice, item, depth + 1) for item in value for _ in range(dice.choice((1, 1, 1, 0, 2)))]
    return mutated(dice, value) if isinstance(value, str) and dice.random() < 0.3 else value


_AT = "2026-11-23T03:27:13.592Z"
_ITEM = {"type": "UserMessage", "content": [{"type": "text", "text": "Deploy, password: hunter2"}]}
_ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}

#: Records of the programs whose sessions are lines, by their names.
_SESSIONS = {
    "openclaw": (_RECORD,),
    "codex": (
        {"timestamp": _AT, "type": "event_msg", "payload": {"type": "item_completed", "item": _ITEM}},
        {"timestamp": _AT, "type": "event_msg", "payload": {"type": "user_message", "message": "Deploy"}},
        {"timestamp": _AT, "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
        {"timestamp": _AT, "type": "response_item", "payload": _ANSWER},
    ),
    "gemini": (
        {"id": "a", "timestamp": _AT, "type": "user", "content": [{"text": "Deploy"}]},
        {"id": "b", "timestamp": _AT, "type": "gemini", "content": "Done."},
        {"$rewindTo": "a"},
    ),
}


def formats():
    """Sessions of OpenClaw, Codex and Gemini CLI."""

    def run(dice):
        name = dice.choice(list(_SESSIONS))
        lines = list[bytes]()
        for record in dice.choices(_SESSIONS[name], k=dice.randint(1, 8)):
            text = json.dumps(odd(dice, record), ensure_ascii=dice.random() < 0.5)
            line = mutated(dice, text) if dice.random() < 0.2 else text
            lines.append(line.encode("utf-8", "surrogatepass") + b"\n")
        records = Records(lines, PROGRAMS[name].relevant, PROGRAMS[name].identity)
        for message in messages_of(PROGRAMS[name].said(records), now=1.77e9):
            assert 1 <= message.line <= len(lines)

    yield run


_EXPORTS = {
    "chatgpt": {
        "id": "c",
        "title": "Deploy",
        "create_time": 1.77e9,
        "current_node": "b",
        "mapping": {
            "a": {
                "parent": None,
                "children": ["b"],
                "message": {
                    "author": {"role": "user"},
                    "create_time": 1.77e9,
                    "content": {"content_type": "text", "parts": ["Deploy"]},
                    "metadata": {"attachments": [{"name": "a.txt"}]},
                },
            },
            "b": {
                "parent": "a",
                "message": {
                    "author": {"role": "assistant"},
                    "content": {"content_type": "multimodal_text", "parts": ["Done", {"text": "x"}]},
                },
            },
        },
    },
    "claude": {
        "uuid": "c",
        "name": "Deploy",
        "created_at": _AT,
        "updated_at": _AT,
        "current_leaf_message_uuid": "b",
        "chat_messages": [
            {"uuid": "a", "sender": "human", "text": "Deploy", "created_at": _AT},
            {
                "uuid": "b",
                "parent_message_uuid": "a",
                "sender": "assistant",
                "content": [{"type": "text", "text": "Done."}],
                "attachments": [{"file_name": "a.txt"}],
            },
        ],
    },
}


def exports():
    """Conversations in exports of ChatGPT and Claude."""

    def run(dice):
        name = dice.choice(list(_EXPORTS))
        record = odd(dice, _EXPORTS[name])
        _, title, said = import_chats.PROGRAMS[name](record if isinstance(record, dict) else {})
        assert isinstance(f"{title}{import_chats._text(said, '')}", str)

    yield run


def links():
    def run(dice):
        seeds = ("[[Note#Part|alias]]", "![[a/b.md]]", "[x](memory/a%20b.md#L1)", "[x](<a b.md>)", "[[a]]")
        text = " ".join(dice.choice((*seeds, *_WORDS)) for _ in range(dice.randint(1, 12)))
        lines = mutated(dice, text).split("\n")
        for link in note_links.links(dict(enumerate(lines))):
            assert 1 <= link.line <= len(lines) and link.target
            assert isinstance(link.key, str)

    yield run


def redaction():
    def run(dice):
        seed = " ".join(dice.choices(_WORDS, k=dice.randint(1, 12)))
        text = mutated(dice, seed)
        assert isinstance(mask(text), str)

    yield run


def chunker():
    def run(dice):
        lines = (" ".join(dice.choices(_WORDS, k=dice.randint(0, 40))) for _ in range(dice.randint(0, 40)))
        text = mutated(dice, "\n".join(lines)).replace("\r", "")
        tokens = dice.choice((1, 8, 50, 400))
        all_lines = text.split("\n")
        overlap = dice.choice((0, tokens // 5, tokens))
        chunks = split(all_lines, outline(all_lines), max_tokens=tokens, overlap_tokens=overlap)
        covered = set[int]()
        for chunk in chunks:
            assert 1 <= chunk.start_line <= chunk.end_line <= len(all_lines), "lines out of range"
            assert weighted_length(chunk.text) <= max(tokens * CHARS_PER_TOKEN, 4), "a chunk above the limit"
            covered.update(range(chunk.start_line, chunk.end_line + 1))
        missing = [n for n, line in enumerate(all_lines, 1) if line.strip() and n not in covered]
        assert not missing, f"lines in no chunk: {missing[:5]}"

    yield run


def configuration():
    content = {
        "agents": {
            "defaults": {
                "workspace": "notes",
                "memorySearch": {
                    "provider": "openai",
                    "remote": {"baseUrl": "http://127.0.0.1:1", "apiKey": "k", "batch": {"enabled": True}},
                    "query": {"maxResults": 6, "hybrid": {"vectorWeight": 0.5, "mmr": {"enabled": True}}},
                    "chunking": {"tokens": 400, "overlap": 80},
                    "extraPaths": ["x", {"path": "y", "pattern": "**/*.md"}],
                    "sources": ["memory", "sessions"],
                },
            },
            "list": [{"id": "main", "default": True}, {"id": "other", "memorySearch": {"enabled": False}}],
        },
        "memory": {"citations": "auto", "backend": "builtin", "qmd": {"limits": {"maxResults": 4}}},
        "serve": {"port": 0, "tokens": {"main": "t" * 20}},
        "prices": {"m": {"request": 0.1}},
        "queue": {"url": "redis://127.0.0.1:1/0"},
        "models": {"providers": {"openai": {"apiKey": "${OPENAI_API_KEY}"}}},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json5")

        def run(dice):
            text = json.dumps(odd(dice, content))
            if dice.random() < 0.2:
                text = mutated(dice, text)
            file.write_bytes(text.encode("utf-8", "surrogatepass"))
            try:
                load(Options(config=file), {"HOME": folder}).chosen_agents()
            except MemlineError as error:
                assert error.message

        yield run


def paths():
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = _place(Path(folder))
        client = stack.enter_context(_client(place))

        def run(dice):
            seed = dice.choice(
                ("MEMORY.md", "memory/a.md#L1-L2", "../secret.md", "/etc/passwd", "memory/link.md")
            )
            answer = client.post("/get", json={"path": mutated(dice, seed)})
            assert answer.status_code < 500, answer.text
            assert "do not tell" not in answer.text, "a file outside the memory was read"

        yield run


def http():
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        client = stack.enter_context(_client(_place(Path(folder))))
        calls = {
            "/search": {"query": "invoices", "maxResults": 3, "since": "2026-01-01", "path": "**/*.md"},
            "/get": {"path": "MEMORY.md", "from": 1, "lines": 5},
            "/append": {"text": "x"},
            "/context": {"private": True},
            "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_search"}},
        }

        def run(dice):
            path, body = dice.choice(list(calls.items()))
            text = json.dumps(odd(dice, body))
            if dice.random() < 0.3:
                text = mutated(dice, text)
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            answer = client.post(path, content=text.encode("utf-8", "surrogatepass"), headers=headers)
            assert answer.status_code < 500, answer.text

        yield run


def _place(folder):
    place = Place(folder=folder / "user")
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    place.write("memory/a.md", "one\ntwo\n")
    (folder / "user" / "secret.md").write_text("do not tell\n")
    (place.workspace / "memory" / "link.md").symlink_to(folder / "user" / "secret.md")
    place.index()
    return place


@contextmanager
def _client(place):
    """An HTTP client of a server over the place."""
    with serving(place.settings) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


#: Targets, and their share of all cases in percent.
SHARES = {
    formats: 22, exports: 6, links: 8, redaction: 24, paths: 12, configuration: 8, chunker: 12, http: 8
}  # fmt: skip
TARGETS = {each.__name__: each for each in SHARES}


def fuzz(name, cases, seed):
    """Run cases of a target; give the seconds of the slowest. Raises AssertionError at the first failure."""
    slowest = 0.0
    for case in TARGETS[name]():
        for number in range(cases):
            dice = random.Random(f"{seed}:{name}:{number}")
            began = time.thread_time()
            try:
                case(dice)
            except Exception as error:
                raise AssertionError(f"{name}, case {number} of seed {seed}: {error!r}") from error
            slowest = max(slowest, time.thread_time() - began)
            assert slowest < MAX_CASE_S, f"{name}, case {number} of seed {seed} took {slowest:.1f} s"
    return slowest


def main():
    """Run all targets, each its share of the cases; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(TARGETS))
    options = parser.parse_args()
    os.environ.setdefault("MEMLINE_LOG_LEVEL", "ERROR")
    status = 0
    for name in options.only.split(","):
        cases = options.cases * SHARES[TARGETS[name]] // 100
        began = time.monotonic()
        try:
            slowest = fuzz(name, cases, options.seed)
        except AssertionError as error:
            status = 1
            print(f"{name}: {error}", flush=True)
            continue
        print(
            f"{name}: {cases} cases, {time.monotonic() - began:.0f} s, slowest {slowest * 1000:.0f} ms",
            flush=True,
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
