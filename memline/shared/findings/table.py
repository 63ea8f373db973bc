"""Make the rows of the table of findings: code, level, words, action and condition in one place.

A row is a function below `finding`: its name is the code, it yields a `Seen` for each thing that it sees, and
its place in its module is its precedence among findings of one level.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module

from memline.shared.finding import LEVELS, NOTE, Finding, Trouble
from memline.shared.values import field, replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memline.shared.findings.facts import Facts, FleetFacts

    #: A condition: facts in, what it sees of them out.
    Test = Callable[[Any], Iterable["Seen"]]

#: What a row is about: one agent's memory, or what all agents of a home have in common.
AGENT, COMMON = "agent", "common"

#: The modules with rows of each kind, the most urgent first.
ROOMS = {AGENT: ("of_place", "of_paying", "of_work", "of_asking"), COMMON: ("of_fleet", "of_host")}


@value
class Seen:
    """One thing that a condition sees; what is None is as in the row."""

    #: What stands in the words.
    details: Mapping[str, str] = field(default_factory=dict)
    level: str | None = None
    action: str | None = None
    subject: str = ""
    #: Whether this one halts, and ends by itself, where its row can.
    halts: bool = True
    passes: bool = False

    def under_way(self) -> Seen:
        """Return it as a note without advice: a process is at work on it."""
        return replace(self, level=NOTE, action="")


@value
class Row:
    """One row of the table."""

    code: str
    level: str
    #: The sentence; `{name}` stands for a detail.
    what: str
    test: Test
    action: str = ""
    #: What its subject is.
    subject: str = "agent"
    #: As in a finding.
    halts: str = ""
    passes: bool = False

    def found(self, seen: Seen, agent: str | None) -> Finding:
        """Put what was seen into the words of this row."""
        words = self.what.format_map(seen.details)
        action = self.action.format_map(seen.details) if seen.action is None else seen.action
        return Finding(
            code=self.code,
            level=seen.level or self.level,
            what=words,
            action=action,
            agent=agent,
            subject=seen.subject or (agent or "" if self.subject == "agent" else ""),
            halts=self.halts if seen.halts else "",
            passes=self.passes or seen.passes,
        )


_ROWS: dict[str, dict[str, Row]] = {}


def finding(level: str, what: str, **columns: Any) -> Callable[[Test], Test]:
    """Make a row of the condition below; `columns`: the other fields of `Row`."""

    def add(test: Test) -> Test:
        row = Row(code=test.__name__, level=level, what=what, test=test, **columns)
        _ROWS.setdefault(test.__module__.rpartition(".")[2], {})[row.code] = row
        return test

    return add


def seen(
    *,
    level: str | None = None,
    action: str | None = None,
    subject: str = "",
    since: float | None = None,
    halts: bool = True,
    passes: bool = False,
    **details: object,
) -> Seen:
    """Make a `Seen` with details by their names."""
    texts = {name: str(detail) for name, detail in details.items()}
    return Seen(details=texts, level=level, action=action, subject=subject, halts=halts, passes=passes)


def rows(kind: str) -> list[Row]:
    """Load the rows of a kind, the most urgent first."""
    for room in ROOMS[kind]:
        import_module(f"memline.shared.findings.{room}")
    return [row for room in ROOMS[kind] for row in _ROWS[room].values()]


def find(
    kind: str, facts: Facts | FleetFacts, agent: str | None, codes: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Test the conditions of a kind (those with `codes`, or all); return what they see, most urgent first."""
    asked = [row for row in rows(kind) if not codes or row.code in codes]
    found = [row.found(each, agent) for row in asked for each in row.test(facts)]
    found = [replace(each, action=facts.helping(each.action)) for each in found]
    return tuple(sorted(found, key=lambda each: LEVELS.index(each.level)))


def met(troubles: Iterable[Trouble], code: str) -> Iterator[Seen]:
    """Yield what reading met by itself, for the row with this code."""
    for each in troubles:
        if each.code == code:
            yield Seen(details=each.details, action=each.action or None)
