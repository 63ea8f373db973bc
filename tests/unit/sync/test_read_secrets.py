"""Secrets of transcripts reach nothing that is kept or sent."""

import json
from contextlib import closing

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from memline.shared.clock import ManualClock
from memline.shared.config.schema import Chunking
from memline.shared.index_writer import IndexWriter
from memline.shared.queue.messages import StoreFiles
from memline.shared.sessions import read_session
from memline.shared.sync.read_file import FileReader
from tests.support.index_rows import MODEL_A, lease_all, retarget
from tests.support.transcripts import opening, said, session_settings, sessions_folder

#: Behind every prefix: letters of both cases and digits, as keys have them.
SECRETS = st.from_regex(r"[a-z][A-Z][0-9][A-Za-z0-9]{21,50}", fullmatch=True)
PLANTED = st.sampled_from(
    [
        "sk-{}", "ghp_{}", "xoxb-{}", "AIza{}", "Bearer {}", "Authorization: Basic {}", "API_KEY={}",
        "password: {}", '{{"token": "{}"}}', '{{\\"secret\\": \\"{}\\"}}', "--api-key {}", "https://me:{}@example.org/x",
        "Cookie: sid={}", "?access_token={}&x=1",
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    ]
)  # fmt: skip
WORDS = st.text(alphabet="aeiou ,.;\n中é\"'", max_size=600)


@settings(max_examples=20, deadline=None)
@given(SECRETS, PLANTED, WORDS, WORDS, st.sampled_from(["user", "assistant"]), st.sampled_from([400, 20]))
def test_a_planted_secret_reaches_no_chunk_no_index_no_message_and_no_request(
    tmp_path_factory,
    secret,
    around,
    before,
    after,
    role,
    tokens,
):
    clock = ManualClock()
    folder = tmp_path_factory.mktemp("t")
    file = sessions_folder(folder / "state") / "a.jsonl"
    planted = said(role, f"{before} {around.format(secret)} {after}")
    name = json.dumps({"type": "session_info", "name": around.format(secret)}) + "\n"
    file.write_text(opening() + planted + name + said("user", "and then") + planted)

    with closing(IndexWriter(folder / "index.sqlite", clock=clock)) as writer:
        retarget(writer, MODEL_A)
        chunking = Chunking(tokens=tokens, overlap=tokens // 5)
        reader = FileReader(session_settings(folder / "state", chunking=chunking), clock=clock)
        row = reader.read("sessions/a.jsonl", entry=None)
        writer.store_file(row)
        requests = lease_all(writer)
    message = msgspec.msgpack.encode(StoreFiles(agent="main", files=(row,)))
    kept = (folder / "index.sqlite").read_bytes()
    sent = "".join(text.text for request in requests for text in request.texts)

    assert sent
    for haystack in (sent.encode(), message, kept):
        assert secret.encode() not in haystack
        # Neither a part of it that tells more than its ends.
        assert secret[6:-4].encode() not in haystack


def test_an_error_that_quotes_a_message_does_not_reach_the_ledger(tmp_path, monkeypatch):
    def take(text):
        raise ValueError(f"what is {text!r}?")

    monkeypatch.setattr(read_session, "mask", take)
    file = sessions_folder(tmp_path) / "a.jsonl"
    file.write_text(said("user", "password: opensesame"))

    row = FileReader(session_settings(tmp_path), clock=ManualClock()).read("sessions/a.jsonl", entry=None)

    assert row.outcome == "failed" and row.reason.startswith("ValueError in take (")
    assert "opensesame" not in row.reason
