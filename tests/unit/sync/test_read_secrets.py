"""Secrets of transcripts reach nothing that is kept."""

from memline.shared.sessions import transcripts
from memline.shared.sync.read_file import FileReader
from tests.support.clock import ManualClock
from tests.support.transcripts import said, session_settings, sessions_folder


def test_an_error_that_quotes_a_message_does_not_reach_the_ledger(tmp_path, monkeypatch):
    def take(text):
        raise ValueError(f"what is {text!r}?")

    monkeypatch.setattr(transcripts, "mask", take)
    file = sessions_folder(tmp_path) / "a.jsonl"
    file.write_text(said("user", "password: opensesame"))

    row = FileReader(session_settings(tmp_path), clock=ManualClock()).read("sessions/a.jsonl", entry=None)

    assert row.outcome == "failed" and row.reason.startswith("ValueError in take (")
    assert "opensesame" not in row.reason
