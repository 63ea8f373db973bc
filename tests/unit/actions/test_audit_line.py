"""Audit lines: one for each action, whatever ended it."""

import logging

import pytest

from memline.producers.actions.perform import audited
from memline.shared.errors import BadRequest


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BadRequest("no such agent"), "no such agent"),
        (OSError("/home/user/notes"), "OSError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_action_that_is_cut_off_has_its_line_once(caplog, error, words):
    caplog.set_level(logging.INFO)

    with pytest.raises(type(error)), audited("pause", "ann") as line:
        line["agent"] = "main"
        raise error

    (fields,) = [
        each.__dict__["memline_fields"] for each in caplog.records if each.getMessage() == "audit.pause"
    ]
    assert fields == {"by": "ann", "agent": "main", "error": words}
