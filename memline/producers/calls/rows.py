"""Define what a row of the table of calls is, and a parameter of one.

Rows are plain values: `memline search` reads them before it has done anything. What checks arguments and
writes schemas is in `arguments` next to this module.
"""

from __future__ import annotations

from importlib import import_module

from memline.shared.values import value

# Not from typing: mypy knows the name, and reading the table does not pay for the import (8 ms).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Faces on which a parameter is given: the command line, Python (`Memory`), and JSON over MCP and HTTP.
CLI, PYTHON, JSON = "cli", "python", "json"
FACES = frozenset((CLI, PYTHON, JSON))

COMMAND, REMOTE = frozenset((CLI,)), frozenset((JSON,))


@value
class Parameter:
    """One parameter: `maxResults` in JSON, `--max-results` on the command line, `max_results` in Python."""

    name: str
    #: Its meaning, in a sentence.
    words: str
    #: Type in JSON Schema: string, integer, number, boolean or array (of strings).
    kind: str = "string"
    is_required: bool = False
    #: What holds when it is left out, in words.
    default: str = ""
    choices: tuple[str, ...] = ()
    #: `module:name` of its choices, where a table of another module has them.
    choices_of: str = ""
    minimum: float | None = None
    maximum: float | None = None
    #: Limits in JSON Schema for callers over MCP and HTTP alone.
    limits: tuple[tuple[str, Any], ...] = ()
    #: Other names of the same in JSON; they work but are not shown.
    aliases: tuple[str, ...] = ()
    faces: frozenset[str] = FACES
    #: On the command line: `required` or `optional` where it stands without the name of an option.
    argument: str = ""
    #: In Python, where that differs.
    python: str = ""

    @property
    def key(self) -> str:
        """Its name in Python."""
        return self.python or "".join(f"_{char.lower()}" if char.isupper() else char for char in self.name)

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return "--" + "".join(f"-{char.lower()}" if char.isupper() else char for char in self.name)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Its choices; empty when everything is allowed."""
        if not self.choices_of:
            return self.choices

        module, _, name = self.choices_of.partition(":")
        return tuple(getattr(import_module(module), name))

    @property
    def description(self) -> str:
        """Its meaning and what holds without it."""
        return f"{self.words} Default: {self.default}." if self.default else self.words

    @property
    def schema(self) -> dict[str, Any]:
        """Meaning, type and limits in JSON Schema."""
        schema: dict[str, Any] = {"type": self.kind, "description": self.description}
        if choices := self.allowed:
            schema["enum"] = list(choices)
        for name, limit in (("minimum", self.minimum), ("maximum", self.maximum)):
            if limit is not None:
                schema[name] = limit
        return schema | dict(self.limits)


@value
class Call:
    """One thing that can be asked of Memline; one with an `audit` line is an action: it changes something.

    A group of commands has a row too, and so has a process, whose only face is the command line.
    """

    #: As on the command line: `search`, `jobs pause`.
    name: str
    #: What it does, in a line: the summary of commands and routes.
    title: str
    #: For a model: when to call, with what, what to do with an empty answer. Empty: not a tool of MCP.
    tool: str = ""
    parameters: tuple[Parameter, ...] = ()
    #: `module:function` that does it, of `producers.actions.perform`; empty where the face has its own.
    run: str = ""
    #: Methods and path over HTTP, such as `POST /append`; empty: not over HTTP.
    http: str = ""
    #: Name of the schema of its answer in answers.json; empty: it has none as JSON.
    answer: str = ""
    #: The verb of its line in the audit log, `audit.<verb>`; empty: it only reads, or writes settings, which
    #: a user may edit as well, or is a process.
    audit: str = ""
    #: Words of its button on the dashboard.
    button: str = ""
    is_danger: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods over HTTP."""
        return tuple(self.http.split()[:-1])

    @property
    def path(self) -> str:
        """Path over HTTP; empty without one."""
        return self.http.rpartition(" ")[2]

    @property
    def takes_json(self) -> tuple[Parameter, ...]:
        """The parameters in JSON."""
        return tuple(each for each in self.parameters if JSON in each.faces)


def option(name: str, words: str, **more: Any) -> Parameter:
    """Make a parameter that is given by its name."""
    return Parameter(name=name, words=words, **more)


def flag(name: str, words: str, **more: Any) -> Parameter:
    """Make a parameter that is true or false."""
    return Parameter(name=name, words=words, kind="boolean", **more)


def argument(name: str, words: str, *, is_required: bool = True, **more: Any) -> Parameter:
    """Make a parameter that stands on the command line without the name of an option."""
    kind = "required" if is_required else "optional"
    return Parameter(name=name, words=words, argument=kind, is_required=is_required, **more)


#: What a list of texts holds, in JSON Schema.
TEXTS = (("items", {"type": "string"}), ("minItems", 1), ("maxItems", 20))
