"""Declare the keys that are not of an agent: `memory`, `queue`, `serve`, `limits` and `prices`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from memline.shared.note_names import ANY_MARKDOWN

#: The highest whole number: that of 32 bits; larger ones fit into no timer and no file.
HIGHEST = 2**31 - 1

#: Keys whose values are never shown; of headers and tokens the names are.
_SECRET = ("apiKey", "headers", "token", "tokens")


class Block(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object of the file. Attributes are the snake_case of its keys; any other key is a mistake."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({visible(msgspec.to_builtins(self, enc_hook=str))})"


class OpenBlock(Block, frozen=True):
    """An object in which OpenClaw has keys that Memline does not read."""


def visible(content: Any, key: str = "") -> Any:
    """Return a JSON value without its secrets: they become `(set)` or `(not set)`."""
    if isinstance(content, Mapping):
        return {name: visible(each, key if key in _SECRET else name) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return [visible(each) for each in content]
    if key in _SECRET and isinstance(content, str):
        return "(set)" if content else "(not set)"
    return mask_url(content) if isinstance(content, str) and "://" in content else content


def mask_url(url: str) -> str:
    """Hide what may be secret in a URL: user, password, and the values of its query."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    # The last "@" ends the password even when it holds a "/" that is not escaped.
    rest = f"***@{rest.rpartition('@')[2]}" if "@" in rest else rest
    address, question, query = rest.partition("?")
    hidden = "&".join(f"{pair.partition('=')[0]}=***" for pair in query.split("&")) if question else ""
    return f"{scheme}{mark}{address}{question}{hidden}"


def one_of(*words: str) -> Meta:
    """Allow these words alone."""
    pattern = "|".join(map(re.escape, words))
    return Meta(pattern=rf"\A(?:{pattern})\Z", description=", ".join(filter(None, words)))


Minutes = Annotated[float, Meta(ge=0, le=HIGHEST)]
Count = Annotated[int, Meta(ge=0, le=HIGHEST)]
Positive = Annotated[int, Meta(ge=1, le=HIGHEST)]
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]
TimeLimit = Annotated[int, Meta(ge=1, le=86_400_000)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
#: A text that may be part of a file's name.
Text = Annotated[str, Meta(pattern=r"\A[^\0\ud800-\udfff]*\Z", description="a text without NUL")]
#: A line break in a header would end it and begin another.
Line = Annotated[str, Meta(pattern=r"\A[^\0\r\n\ud800-\udfff]*\Z", description="one line of text")]
Token = Annotated[
    str,
    Meta(
        pattern=r"\A(?:[!-~]{8,})?\Z", description="at least 8 visible ASCII characters: openssl rand -hex 24"
    ),
]
RedisUrl = Annotated[
    str,
    Meta(
        pattern=r"\A(?:(?:rediss?|unix)://|\Z)",
        description="redis://HOST:6379/0, rediss://HOST:6379/0 or unix:///SOCKET, of one server: neither"
        " Sentinel nor Cluster is supported",
    ),
]
Host = Annotated[
    str,
    Meta(
        pattern=r"\A(?:[^\s/:\[\]]+|(?:[0-9A-Fa-f.]*:){2,}[0-9A-Fa-f.]*)\Z",
        description="a host's name or address, without scheme and port",
    ),
]
FleetName = Annotated[
    str, Meta(pattern=r"\A[A-Za-z0-9._-]{0,64}\Z", description="up to 64 letters, digits, '.', '_' and '-'")
]


class ChatMatch(Block, frozen=True):
    """The chats that a rule is about. Empty fields fit every chat."""

    channel: str = ""  # discord, telegram …
    chat_type: Annotated[str, one_of("", "direct", "group", "channel")] = ""
    key_prefix: str = ""  # of the session key without `agent:<id>:`
    raw_key_prefix: str = ""  # of the whole session key


class ChatRule(Block, frozen=True):
    action: Annotated[str, one_of("allow", "deny")]
    match: ChatMatch = ChatMatch()


class ChatScope(Block, frozen=True):
    """`memory.scope`: the chats that may use memory. The first rule that fits decides, else `default`."""

    default: Annotated[str, one_of("allow", "deny")] = "allow"
    rules: tuple[ChatRule, ...] = ()


class QmdPath(Block, frozen=True):
    path: Text
    pattern: str = ANY_MARKDOWN
    name: str = ""


class QmdSessions(OpenBlock, frozen=True):
    """`memory.qmd.sessions`: transcripts, written as Markdown for qmd, with their secrets hidden."""

    enabled: bool = False
    export_dir: Text = ""  # empty: one in qmd's own home
    retention_days: Count = 0  # older sessions are left out; 0: none is


class QmdUpdate(OpenBlock, frozen=True):
    interval: Minutes = 5.0
    debounce_ms: Milliseconds = 15_000
    on_boot: bool = True
    wait_for_boot_sync: bool = False
    embed_interval: Minutes = 60.0
    command_timeout_ms: TimeLimit = 30_000
    update_timeout_ms: TimeLimit = 120_000
    embed_timeout_ms: TimeLimit = 120_000


class QmdLimits(OpenBlock, frozen=True):
    max_results: Positive = 6
    max_snippet_chars: Positive = 700
    max_injected_chars: Count = 4_000  # of all snippets of an answer
    timeout_ms: TimeLimit = 4_000


class Qmd(OpenBlock, frozen=True):
    """`memory.qmd`: the other back end, used with `memory.backend: "qmd"`."""

    command: str = "qmd"  # only the first word counts, in quotes if it has blanks
    search_mode: Annotated[str, one_of("query", "search", "vsearch")] = "query"
    include_default_memory: bool = True
    paths: tuple[QmdPath, ...] = ()
    sessions: QmdSessions = QmdSessions()
    update: QmdUpdate = QmdUpdate()
    limits: QmdLimits = QmdLimits()
    scope: ChatScope | None = None  # with this back end that of `memory` unless it has its own


class QueueAddress(Block, frozen=True, kw_only=False):
    """`queue`: where a fleet is, its Redis and its name there. False without a queue."""

    url: RedisUrl = ""  # empty: everything in one process
    name: FleetName = ""  # of the fleet on its Redis; empty: derived from host and home

    def __bool__(self) -> bool:
        return bool(self.url)


NO_QUEUE = QueueAddress()


class Serve(Block, frozen=True):
    host: str = "127.0.0.1"  # anything but loopback needs a token
    port: Annotated[int, Meta(ge=0, le=65_535)] = 7843  # 0: any that is free
    token: Token = ""  # for all agents
    tokens: Mapping[str, Token] = {}  # the token of each agent, by its id
    allowed_hosts: tuple[Host, ...] = ()  # in the Host header, beside loopback and `host`


class Ceilings(Block, frozen=True):
    """`limits`: what all agents together may spend for embedding on a day (UTC). 0 is no limit."""

    max_cost_per_day: Amount = 0.0  # dollars, for models with a price
    max_tokens_per_day: Count = 0  # for models without one


class PriceEntry(Block, frozen=True):
    """`prices.<model>`: the price of a model; it wins over the table of list prices."""

    per_million: Amount  # dollars for a million tokens
    batch_per_million: Amount | None = None  # by batches; absent: not known
