"""The silent turn itself: one request to a chat model, or one run of a program."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from shared.config.schema import AgentSettings, MemoryFlush, ProviderEntry
from shared.embedders.catalog import CATALOG
from shared.embedders.endpoint import Endpoint, normal_url
from shared.embedders.http import HttpClient
from shared.errors import (
    ConfigError,
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
)
from shared.flush import program, prompts

#: Characters of an answer that is taken, without what the model thought; a longer one is no list of what is
#: worth keeping.
MAX_ANSWER_CHARS = 16_000

#: Bytes of an answer with everything around it: thoughts, counts, and escapes of six bytes a character.
MAX_ANSWER_BYTES = 4 << 20

#: Seconds after the time limit at which a connection is closed that sends the beginning of an answer so
#: slowly that each byte still comes in time.
_GRACE_S = 1.0

#: What errors call a turn: "openai memory flush failed: …".
WHAT = "memory flush"

_OPENAI, _OLLAMA = "openai", "ollama"

#: Providers whose own address speaks OpenAI's protocol of chats.
_PUBLIC = (_OPENAI, "mistral", _OLLAMA)
_WHERE = "agents.defaults.compaction.memoryFlush"


def take(settings: AgentSettings, *, system: str, conversation: str, request: str) -> str:
    """The answer to a turn, by the configured program or model. Raises a ProviderError."""
    flush = settings.sessions.compaction.memory_flush
    if flush.command:
        answer = program.run(
            flush.command,
            "\n\n".join((system, conversation, request)),
            timeout_s=flush.timeout_seconds,
            max_bytes=MAX_ANSWER_BYTES,
            what=WHAT,
            where=f"{_WHERE}.command",
        )
    else:
        answer = _ask(flush, settings, system, f"{conversation}\n\n{request}")
    if prompts.is_unfinished(answer):
        raise ProviderBrokenAnswer(
            f"{WHAT} failed: the answer ends while the model is still thinking",
            hint="let it think less, or give it more tokens to answer",
        )
    answer = prompts.without_thoughts(answer)
    if len(answer) > MAX_ANSWER_CHARS:
        raise ProviderRefused(
            f"{WHAT} failed: an answer of {len(answer)} characters is no note",
            hint=f"ask for less in {_WHERE}.prompt",
        )
    return answer


def _ask(flush: MemoryFlush, settings: AgentSettings, system: str, user: str) -> str:
    endpoint, model = endpoint_of(settings)
    client = HttpClient(endpoint, timeout_s=flush.timeout_seconds)
    watch = threading.Timer(flush.timeout_seconds + _GRACE_S, client.close)
    watch.daemon = True
    watch.start()
    try:
        body = {
            "model": model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        }
        # Not tried again blindly: a turn that was received is paid for.
        reply = client.post("/chat/completions", body, what=WHAT, once=True)
        if len(reply.body) > MAX_ANSWER_BYTES:
            raise ProviderBrokenAnswer(
                f"{endpoint.provider} {WHAT} failed: an answer of {len(reply.body)} bytes"
            )
        return _content(client.json(reply), endpoint.provider)
    except ProviderError as error:
        if watch.finished.is_set():
            raise ProviderLater(
                f"{endpoint.provider} {WHAT} failed: no answer within {flush.timeout_seconds} s"
            ) from None
        if "memorySearch" in error.hint:
            # The client's own advice is about embeddings.
            error.hint = f"check {_WHERE}.model and baseUrl; an address usually ends in /v1"
        raise
    finally:
        watch.cancel()
        client.close()


def _content(answer: Any, provider: str) -> str:
    """`choices[0].message.content`, as text or as parts of text; empty: nothing is to be kept."""
    try:
        choice = answer["choices"][0]
        content = choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise ProviderBrokenAnswer(f"{provider} {WHAT} failed: the answer has no message") from None
    if not content and choice.get("finish_reason") == "length":
        raise ProviderBrokenAnswer(f"{provider} {WHAT} failed: the answer was cut before it said anything")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise ProviderBrokenAnswer(f"{provider} {WHAT} failed: the message is no text")
    return content or ""


def endpoint_of(settings: AgentSettings) -> tuple[Endpoint, str]:
    """Where the turn is sent, and the name of the model there. Raises ProviderStop when that is not said.

    `id/model` means `models.providers.<id>`, unless an address is given. A key of the environment goes to its
    provider's own address only.
    """
    flush = settings.sessions.compaction.memory_flush
    name, slash, rest = flush.model.partition("/")
    if flush.base_url:
        name, model, entry = "", flush.model, ProviderEntry()
    elif not slash:
        name, model, entry = _OPENAI, flush.model, ProviderEntry()
    else:
        model, entry = rest, _entry(name, settings)
    public = CATALOG[name].public_url if name in CATALOG else ""
    try:
        url = normal_url(flush.base_url or entry.base_url or public, where=f"{_WHERE}.baseUrl")
    except ConfigError as error:
        raise ProviderStop(f"{WHAT} failed: {error.message}", hint=error.hint) from None
    if name == _OLLAMA and not urlsplit(url).path:
        # OpenClaw's own address of it is that of another protocol, without a path.
        url = urlunsplit(urlsplit(url)._replace(path=CATALOG[_OLLAMA].bare_path))
    owner = next((each for each in _PUBLIC if url == CATALOG[each].public_url), "")
    own_key = settings.environment_keys.get(owner, "") if owner else ""
    key = flush.api_key or entry.api_key or own_key
    if owner and CATALOG[owner].key_variable and not key:
        raise ProviderStop(
            f"{WHAT} failed: no key for {owner}'s own address",
            hint=f"set {_WHERE}.baseUrl to another server, or export {CATALOG[owner].key_variable}=…",
        )
    headers = {k.strip().lower(): v for k, v in {**entry.headers, **flush.headers}.items()}
    endpoint = Endpoint(
        provider=name or "chat",
        base_url=url,
        public=bool(owner),
        key=key,
        headers=headers,
        key_places=f"{_WHERE}.apiKey, then models.providers, then the environment (own addresses only)",
    )
    return endpoint, model


def _entry(name: str, settings: AgentSettings) -> ProviderEntry:
    """Where the provider of a model is. Anything but a guess: a conversation goes there."""
    entry = settings.providers.get(name, ProviderEntry())
    if not entry.base_url and name not in _PUBLIC:
        raise ProviderStop(
            f"{WHAT} failed: models.providers.{name} has no address",
            hint=f"set {_WHERE}.baseUrl, or models.providers.{name}.baseUrl to a server that speaks"
            " OpenAI's protocol",
        )
    return entry
