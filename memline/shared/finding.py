"""Define a finding: one thing that is wrong or worth knowing now, and what to do about it.

The words are those of the table in `memline.shared.findings`; here is only the shape, which reading,
the faces and their tests share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from memline.shared.values import field, to_json, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What was asked for will not come without a person; an answer may be incomplete now; worth knowing.
PROBLEM, WARNING, NOTE = LEVELS = ("problem", "warning", "note")

#: Seconds that findings are good for, and what Redis said that they are made of: one after the other, so that
#: what is shown is at most a second old.
GOOD_FOR_S = 0.5

#: A row of `memline doctor` that names what is well.
OK = "ok"

#: Kinds of an action: what can be typed as it is, what a person has to understand first, nothing.
COMMAND, SENTENCE, NONE = "command", "sentence", "none"

_COMMAND = r"(?:memline|pip|uv|sudo|chmod|redis-cli|rm|mv) [^…;(]+"


@value
class Finding:
    """One thing that is wrong or worth knowing."""

    code: str
    level: str
    #: One sentence.
    what: str
    #: The command or step that ends it; empty when nothing is to be done.
    action: str = ""
    #: None for what is of a whole fleet, or of this machine.
    agent: str | None = None
    #: What it is about: an agent, a provider account, a queue, a role, a file.
    subject: str = ""
    #: What stands in place of rate and ETA while no text that waits is embedded for it; empty: it stops none.
    halts: str = ""
    #: Whether that ends by itself, soon.
    passes: bool = False

    @property
    def action_kind(self) -> str:
        if not self.action:
            return NONE
        return COMMAND if re.fullmatch(_COMMAND, self.action) else SENTENCE

    @property
    def is_trouble(self) -> bool:
        """Say whether it is more than a note."""
        return self.level in (PROBLEM, WARNING)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a finding."""
        return to_json(
            self,
            without=("agent", "halts", "passes"),
            agent=self.agent,
            actionKind=self.action_kind,
        )


@value
class Trouble:
    """What reading met by itself, before the table has put it into words."""

    code: str
    #: What stands in the words.
    details: Mapping[str, str] = field(default_factory=dict)
    action: str = ""


def worst(findings: Iterable[Finding]) -> tuple[str, str]:
    """Return the words and the action of the first problem or warning; two empty texts without one."""
    return next(((each.what, each.action) for each in findings if each.is_trouble), ("", ""))
