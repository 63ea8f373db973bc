"""What decides who sees what: rules for chats, and the settings of the HTTP server.

Only commands that answer agents need these values, so they are not part of `schema.py`, which every command
imports.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.config.block import Block, key
from shared.values import value

#: What may be said of a chat in a rule; a chat that cannot be told apart is of no type.
CHAT_TYPES = ("direct", "group", "channel")

ACTIONS = ("allow", "deny")


@value
class ChatRule(Block):
    """One rule of a scope: what a chat must be, and what then holds. Empty fields fit every chat."""

    action: str = key("allow", choices=ACTIONS, doc="allow or deny")
    channel: str = key("", doc="where the chat is: discord, telegram …")
    chat_type: str = key("", choices=("", *CHAT_TYPES), doc="direct, group or channel")
    key_prefix: str = key("", doc="how the session key begins, without `agent:<id>:`")
    raw_key_prefix: str = key("", doc="how the whole session key begins")


@value
class ChatScope(Block):
    """`memory.scope`: in which chats memory may be used. The first rule that fits decides, else `default`."""

    default: str = key("allow", choices=ACTIONS, doc="what holds when no rule fits")
    rules: tuple[ChatRule, ...] = ()


@value
class ChatLimits(Block):
    """What `memory` says of the answers that agents get, beside `citations`."""

    max_injected_chars: int = key(0, low=0, doc="characters of all snippets of an answer; 0: no limit")


@value
class Serve(Block):
    """`serve`: the HTTP server."""

    host: str = key("127.0.0.1", doc="address; anything but loopback needs a token")
    port: int = key(7843, low=0, high=65_535, doc="port; 0: any that is free")
    token: str = key("", secret=True, doc="bearer token for all agents")
    tokens: Mapping[str, str] = key(factory=dict, secret=True, doc="bearer token of each agent, by its id")
    allowed_hosts: tuple[str, ...] = key((), doc="names in the Host header beside loopback and `host`")
    allowed_origins: tuple[str, ...] = key((), doc="origins of web pages that may ask, https://… each")
    requests_per_minute: int = key(0, low=0, doc="requests of one client in any minute; 0: no limit")
    max_body_bytes: int = key(65_536, low=1_024, high=16_777_216, doc="size of a request at most")
    timeout_seconds: int = key(30, low=1, high=3_600, doc="time limit of a request")
    threads: int = key(4, low=1, high=64, doc="searches at a time")
