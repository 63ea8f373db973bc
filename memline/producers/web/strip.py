"""Lead from each finding to its page and its button, and make the status strip of every page.

The button of a finding is that of the command which it advises, where the table of calls has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode

from memline.producers.calls.rows import OWNER
from memline.producers.calls.table import CALLS
from memline.producers.reports.fleet_state import amount
from memline.producers.web.rendering import ROOT, Renderer
from memline.producers.web.snapshot import Snapshot
from memline.shared.finding import PROBLEM, WARNING, Finding
from memline.shared.values import field, replace, value
from memline.shared.words import counted

#: Pages of findings whose subject is named in the address of its own page.
_OF_ONE = {"jobs": "jobs", "batches": "batches"}

#: Pages of findings that are of one agent.
_OF_AGENT = ("files", "sessions")

#: What ends a finding whose own command only shows its cause.
_ENDS = {"file_failed": "memline index"}


@value
class Link:
    """A finding, the address of the page that shows its cause, and the form that ends it."""

    finding: Finding
    href: str
    #: The call of its button, the fields of the form, and the command; empty without one.
    call: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Say whether another page than the overview shows more."""
        return not self.href.startswith(f"{ROOT}/#")


@value
class Strip:
    """What the strip says, for a token that opens one agent or all."""

    problems: int
    warnings: int
    #: Most urgent first; none is a note.
    links: tuple[Link, ...]
    #: What is under way, what was spent, and whether the fleet is whole: sentences without a full stop.
    facts: tuple[str, ...]

    @property
    def counts(self) -> str:
        """The counts in words, as the title of a tab has them; empty when nothing is wrong."""
        if self.problems:
            return counted(self.problems, "problem")
        return counted(self.warnings, "warning") if self.warnings else ""

    @property
    def level(self) -> str:
        """The worst level; empty when nothing is wrong."""
        return PROBLEM if self.problems else WARNING if self.warnings else ""


def strip_of(snapshot: Snapshot, only: str, *, has_page: Callable[[str], bool]) -> Strip:
    """Make the strip. `only`: as in `Snapshot`; `has_page`: whether a page opens for the token."""
    found = [each for each in snapshot.told(only) if each.is_trouble]
    kinds = {(each.code, each.agent, each.subject): each.level for each in reversed(found)}
    return Strip(
        problems=sum(level == PROBLEM for level in kinds.values()),
        warnings=sum(level == WARNING for level in kinds.values()),
        links=tuple(Link(finding=each, href=address(each, has_page)) for each in found),
        facts=tuple(dict.fromkeys(_facts(snapshot, only))),
    )


def address(found: Finding, has_page: Callable[[str], bool]) -> str:
    """Return the address of the page that shows the cause of a finding and what ends it."""
    page = found.page
    if page == "overview" or not has_page(f"/{page}"):
        return f"{ROOT}/#{found.code}"
    if found.code == "text_refused":
        return f"{ROOT}/failed?{urlencode({'agent': found.agent or ''})}"
    if page in _OF_ONE and found.subject:
        return f"{ROOT}/{page}/{found.subject}"
    if page in _OF_AGENT and found.agent:
        where = {"agent": found.agent} | ({"outcome": "problems"} if found.code == "file_failed" else {})
        return f"{ROOT}/{page}?{urlencode(where)}"
    return f"{ROOT}/{page}#{found.code}"


def link_of(
    found: Finding, *, has_page: Callable[[str], bool], is_owner: bool = False, has_queue: bool = False
) -> Link:
    """Lead from a finding to its page, and to the form that does what it advises, where there is one."""
    link = Link(finding=found, href=address(found, has_page))
    # What stands after a command is a remark.
    command = _ENDS.get(found.code, found.action).partition("   (")[0]
    words = command.split()[1:] if command.startswith("memline ") else []
    name = next((each for each in (" ".join(words[:2]), *words[:1]) if each in CALLS), "")
    call, rest = CALLS.get("reindex" if name == "index" and has_queue else name), words[len(name.split()) :]
    is_known = call is not None and call.button
    if call is None or not is_known or not found.agent or (call.rights == OWNER and not is_owner):
        return link
    fields = {"agent": found.agent}
    for each in call.parameters:
        if each.option in rest[:-1]:
            at = rest.index(each.option)
            fields[each.name] = rest[at + 1]
            del rest[at : at + 2]
        elif each.argument and len(rest) == 1:
            fields[each.name] = rest.pop()
    return link if rest else replace(link, call=call.name, fields=fields, command=command)


def news(strip: Strip, renderer: Renderer) -> dict[str, object]:
    """Return what the script of a page shows of the strip, in the title of the tab and as its icon."""
    return {
        "problems": strip.problems,
        "warnings": strip.warnings,
        "words": strip.counts,
        "icon": renderer.icon(strip.level),
        "counts": renderer.macro("strip.html", "counts", strip),
        "rest": renderer.macro("strip.html", "rest", strip),
    }


def _facts(snapshot: Snapshot, only: str) -> Iterable[str]:
    figures = snapshot.figures(only)
    yield figures["pace"]
    if only:
        return
    yield f"{amount(snapshot.spending['today'], snapshot.spending['limits'])} spent today"
    if not snapshot.has_queue:
        return
    if snapshot.fleet is None:
        yield "Redis does not answer"
        return
    yield "Redis answers"
    yield snapshot.roles
