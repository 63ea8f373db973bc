"""Define a finding: one thing that is wrong or worth knowing now, and what to do about it.

`memline.shared.findings` finds what rows, disk and Redis show; what a call meets by itself, it makes itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from memline.shared.errors import MemlineError

#: What was asked for will not come without a person; an answer may be incomplete now; worth knowing.
PROBLEM, WARNING, NOTE = LEVELS = ("problem", "warning", "note")

#: A row of `memline doctor` that names what is well.
OK = "ok"

#: Seconds that findings are good for, and what Redis said that they are made of: one after the other, so that
#: what is shown is at most a second old.
GOOD_FOR_S = 0.5

#: An action that can be typed as it is; others a person has to understand first.
_COMMAND = r"(?:memline|pip|uv|sudo|chmod|redis-cli|rm|mv) [^…;(]+"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong or worth knowing."""

    code: str
    level: str
    #: One sentence.
    what: str
    #: The command or step that ends it; empty when nothing is to be done.
    action: str = ""
    #: None for what is of a whole fleet, or of this machine.
    agent: str | None = None
    #: What it is about: an agent, a provider account, a role, a file, a job.
    subject: str = ""

    @property
    def action_kind(self) -> str:
        """Return `command`, `sentence`, or `none`."""
        if re.fullmatch(_COMMAND, self.action):
            return "command"
        return "sentence" if self.action else "none"

    @property
    def is_trouble(self) -> bool:
        """Say whether it is more than a note."""
        return self.level in (PROBLEM, WARNING)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a finding."""
        return {**msgspec.structs.asdict(self), "actionKind": self.action_kind}


def problem(code: str, what: str, action: str = "", subject: str = "") -> Finding:
    return Finding(code=code, level=PROBLEM, what=what, action=action, subject=subject)


def warning(code: str, what: str, action: str = "", subject: str = "") -> Finding:
    return Finding(code=code, level=WARNING, what=what, action=action, subject=subject)


def note(code: str, what: str, action: str = "", subject: str = "") -> Finding:
    return Finding(code=code, level=NOTE, what=what, action=action, subject=subject)


def of_error(error: MemlineError, *, level: str = PROBLEM, agent: str | None = None) -> Finding:
    """Return the finding that an error is: its code, its words and its hint."""
    return Finding(code=error.code, level=level, what=error.message, action=error.hint, agent=agent)


def by_urgency(*parts: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put findings of several readings into one list: problems, warnings, notes, then what is well."""
    levels = (*LEVELS, OK)
    return tuple(sorted((each for part in parts for each in part), key=lambda each: levels.index(each.level)))


def worst(findings: Iterable[Finding]) -> tuple[str, str]:
    """Return the words and the action of the first problem or warning; two empty texts without one."""
    return next(((each.what, each.action) for each in findings if each.is_trouble), ("", ""))
