"""Audit lines: one for each action, whatever ended it."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.actions.perform import audited
from memline.producers.calls.table import CALLS
from memline.shared.errors import BadRequest
from memline.shared.figures.kept_actions import listed
from memline.shared.index.accounts import AccountFile

PAUSE = next(call for call in CALLS.values() if call.audit == "pause")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BadRequest("no such agent"), "no such agent"),
        (OSError("/home/user/notes"), "OSError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_action_that_is_cut_off_has_its_line_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, error: BaseException, words: str
) -> None:
    caplog.set_level(logging.INFO)

    with pytest.raises(type(error)), audited(PAUSE, "ann", tmp_path / "accounts.sqlite") as line:
        line["agent"] = "main"
        raise error

    (fields,) = [
        each.__dict__["memline_fields"] for each in caplog.records if each.getMessage() == "audit.pause"
    ]
    assert fields == {"by": "ann", "agent": "main", "error": words}
    with closing(AccountFile(tmp_path / "accounts.sqlite")) as file:
        (kept,) = listed(file, "main", count=9)
    assert (kept.by, kept.action, kept.error) == ("ann", "jobs pause", words)


def test_a_home_that_cannot_keep_a_line_hinders_no_action(tmp_path: Path) -> None:
    file = tmp_path / "accounts.sqlite"
    file.mkdir()

    for path in (file, tmp_path / "none" / "accounts.sqlite"):
        with audited(PAUSE, "ann", path) as line:
            line["agent"] = "main"

    assert not (tmp_path / "none").exists()
