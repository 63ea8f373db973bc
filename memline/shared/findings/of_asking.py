"""Find what a search could not do, and what a configured part of it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.finding import PROBLEM, WARNING
from memline.shared.findings.facts import Facts
from memline.shared.findings.table import Seen, finding, met, seen
from memline.shared.index import driver
from memline.shared.packages import lack, remedy
from memline.shared.values import replace


@finding(WARNING, "qmd failed, the builtin index answers: {reason}", action="memline status")
def qmd_failing(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "qmd_failing")


@finding(
    WARNING,
    "only keywords were searched: the question could not be embedded: {reason}",
    action="check the embedding provider (memline doctor), then search again",
)
def question_not_embedded(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "question_not_embedded")


@finding(
    WARNING,
    "only keywords were searched: the model changes again and again",
    action="search again",
)
def model_switching(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "model_switching")


@finding(
    WARNING,
    "only keywords were searched: {reason}",
    action="memline index",
)
def dimensions_differ(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "dimensions_differ")


@finding(WARNING, "only keywords are searched: numpy {lack}, and sqlite-vec: {reason}")
def vectors_unavailable(facts: Facts) -> Iterator[Seen]:
    for each in met(facts.troubles, "vectors_unavailable"):
        details = {"lack": lack("numpy") or "is missing", **each.details}
        yield replace(each, details=details, action=remedy("numpy"))
    vector = facts.settings.memory.store.vector
    is_asked = facts.plan is not None and vector.enabled
    if is_asked and (error := driver.vec_error(vector.extension_path)) and (why := lack("numpy")):
        yield seen(reason=error, lack=why, action=remedy("numpy"))


@finding(
    PROBLEM,
    "store.vector.extensionPath cannot be loaded: {reason}",
    action="set store.vector.extensionPath to a file of sqlite-vec, or leave it out",
)
def extension_unusable(facts: Facts) -> Iterator[Seen]:
    vector = facts.settings.memory.store.vector
    is_configured = facts.plan is not None and vector.enabled and vector.extension_path
    if is_configured and (error := driver.vec_error(vector.extension_path)):
        yield seen(reason=error)


@finding(
    WARNING,
    "the index holds no notes",
    action="memline index",
)
def index_empty(facts: Facts) -> Iterator[Seen]:
    # That the folder is missing says more.
    if facts.settings.workspace.is_dir():
        yield from met(facts.troubles, "index_empty")


@finding(
    WARNING,
    "the source {source} is switched off for this agent",
    action="add it to memorySearch.sources (sessions also need experimental.sessionMemory), or search memory",
)
def source_off(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "source_off")


@finding(
    WARNING,
    "memory may not be used in this chat ({chat})",
    action="answer without memory; memory.scope in the configuration says where it may be used",
)
def chat_refused(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "chat_refused")
