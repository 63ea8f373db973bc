"""Declare the keys that are not of an agent: `memory`, `queue`, `serve`, `limits` and `prices`."""

from __future__ import annotations

from memline.shared.config.keys import WARN, WARN_IF_NEAR, Block, Day, Duration, key
from memline.shared.note_names import ANY_MARKDOWN
from memline.shared.patterns import late
from memline.shared.values import value

#: Other words for a chat between two.
_DIRECT = {"dm": "direct", "private": "direct"}

ACTIONS = ("allow", "deny")


@value
class ChatMatch(Block):
    """The chats that a rule is about. Empty fields fit every chat."""

    channel: str = key("", normal=str.lower, doc="where the chat is: discord, telegram …")
    chat_type: str = key(
        "",
        choices=("", "direct", "group", "channel"),
        normal=lambda text: _DIRECT.get(text, text),
        doc="type of the chat",
    )
    key_prefix: str = key("", normal=str.lower, doc="how the session key begins, without `agent:<id>:`")
    raw_key_prefix: str = key("", normal=str.lower, doc="how the whole session key begins")


@value
class ChatRule(Block):
    """One rule of a scope: which chats it fits, and what then holds."""

    action: str = key("allow", choices=ACTIONS, required=True, doc='"allow" or "deny"')
    match: ChatMatch = key(factory=ChatMatch)


@value
class ChatScope(Block):
    """`memory.scope`: in which chats memory may be used. The first rule that fits decides, else `default`."""

    default: str = key("allow", choices=ACTIONS, doc="what holds when no rule fits")
    rules: tuple[ChatRule, ...] = key((), of=ChatRule, doc="rules, the first that fits decides")


@value
class QmdPath(Block):
    """One entry of `memory.qmd.paths`: a collection."""

    path: str = key("", required=True, doc="a file or folder, relative to the workspace")
    pattern: str = key(ANY_MARKDOWN, doc="glob of the files in a folder")
    name: str = key("", doc="name of the collection; empty: custom-1, custom-2 …")


@value
class QmdSessions(Block):
    """`memory.qmd.sessions`: transcripts, written as Markdown for qmd, with their secrets hidden."""

    unknown = WARN

    enabled: bool = key(False, doc="past sessions are searched too")
    export_dir: str = key("", doc="folder they are written to; empty: one in qmd's own home")
    retention_days: int = key(0, low=0, doc="older sessions are left out; 0: none is")


@value
class QmdUpdate(Block):
    """`memory.qmd.update`: when qmd looks at the files, and how long its commands may take."""

    unknown = WARN

    interval: Duration = key(5.0, doc="minutes between two updates; 0: only at the start and on changes")
    debounce_ms: int = key(15_000, low=0, high=86_400_000, doc="between two updates on changes at least")
    on_boot: bool = key(True, doc="a process that stays updates when it starts")
    wait_for_boot_sync: bool = key(False, doc="its first question waits for that")
    embed_interval: Duration = key(60.0, doc="minutes between two runs of qmd embed")
    command_timeout_ms: int = key(30_000, low=1, high=86_400_000, doc="time limit of qmd collection")
    update_timeout_ms: int = key(120_000, low=1, high=86_400_000, doc="time limit of qmd update")
    embed_timeout_ms: int = key(120_000, low=1, high=86_400_000, doc="time limit of qmd embed")


@value
class QmdLimits(Block):
    """`memory.qmd.limits`: of an answer."""

    unknown = WARN

    max_results: int = key(6, low=1, doc="hits at most, whatever a question asks for")
    max_snippet_chars: int = key(700, low=1, doc="characters of a snippet")
    max_injected_chars: int = key(4_000, low=0, doc="becomes memory.maxInjectedChars")
    timeout_ms: int = key(4_000, low=1, high=86_400_000, doc="time limit of a question")


@value
class Qmd(Block):
    """`memory.qmd`: the other back end, used with `memory.backend: "qmd"`."""

    unknown = WARN
    command: str = key("qmd", doc="the program; only its first word counts, in quotes if it has blanks")
    search_mode: str = key("query", choices=("query", "search", "vsearch"), doc="command of a question")
    include_default_memory: bool = key(True, doc="the notes of the workspace are searched")
    paths: tuple[QmdPath, ...] = key((), of=QmdPath, shorthand="path", doc="more collections")
    sessions: QmdSessions = key(factory=QmdSessions)
    update: QmdUpdate = key(factory=QmdUpdate)
    limits: QmdLimits = key(factory=QmdLimits)
    scope: ChatScope | None = key(None, of=ChatScope, doc="becomes memory.scope")


@value
class MemoryBlock(Block):
    """`memory`."""

    unknown = WARN_IF_NEAR
    beside = ("search",)

    backend: str = key("builtin", choices=("builtin", "qmd"), doc="what answers questions")
    qmd: Qmd = key(factory=Qmd)
    citations: str = key("auto", choices=("auto", "on", "off"), doc="citations below snippets for agents")
    max_injected_chars: int = key(0, low=0, doc="characters of all snippets of an answer; 0: no limit")
    private_in_groups: bool = key(
        False, doc="groups may search and read MEMORY.md and past conversations too, as in OpenClaw"
    )
    scope: ChatScope | None = key(None, of=ChatScope, doc="chats that may use memory; absent: all")


@value
class QueueSettings(Block):
    """`queue`: Memline's own block."""

    unknown = WARN
    url: str = key("", url=True, doc="redis://…; empty: everything in one process")
    name: str = key("", doc="name of the fleet on its Redis; empty: derived from host and home")

    @property
    def address(self) -> str:
        """The URL with the fragment `name`; empty without a queue."""
        return f"{self.url}#{self.name}" if self.url else ""


@value
class Token(Block):
    """One entry of `serve.tokens`."""

    name: str = key("", doc="who has it: the asker in the log")
    token: str = key("", required=True, secret=True, doc="the bearer token")
    agent: str = key("", required=True, doc="the agent that it opens")


#: A host as people write it: with the scheme and the port of an address, an IPv6 address in brackets.
_HOST = late(r"^(?:https?://)?\[?([^\[\]/:]+|[0-9a-f:.]+)\]?(?::\d+)?/*$")


@value
class Serve(Block):
    """`serve`: the HTTP server."""

    host: str = key("127.0.0.1", doc="address; anything but loopback needs a token")
    port: int = key(7843, low=0, high=65_535, doc="port; 0: any that is free")
    token: str = key("", secret=True, doc="bearer token for all agents")
    tokens: tuple[Token, ...] = key((), of=Token, doc="an object: the token of each agent, by its id")
    allowed_hosts: tuple[str, ...] = key(
        (),
        normal=lambda text: _HOST.sub(r"\1", text.strip().lower()),
        doc="names in the Host header beside loopback and `host`",
    )


@value
class PriceEntry(Block):
    """`prices.<model>`: the price of one model; it wins over the table of list prices."""

    per_million: float = key(0.0, low=0, required=True, doc="price of a million tokens by requests")
    batch_per_million: float = key(0.0, low=0, doc="price of a million tokens by batches; absent: not known")
    currency: str = key("USD", doc="currency of both")
    as_of: Day = key("", doc="day the price was looked up, YYYY-MM-DD")


@value
class Ceilings(Block):
    """`limits`: what all agents together may spend for embedding. 0 is no ceiling."""

    max_cost_per_day: float = key(0.0, low=0, doc="dollars of a day (UTC), for models with a price; 0: none")
    max_tokens_per_day: int = key(0, low=0, doc="tokens of a day, for models without a price; 0: none")
