"""The silent turn itself: one request to a chat model, or one run of a program."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from shared.config.schema import AgentSettings, MemoryFlush, ProviderEntry
from shared.embedders.catalog import CATALOG
from shared.embedders.endpoint import Endpoint, normal_url
from shared.embedders.http import HttpClient
from shared.embedders.masking import shown
from shared.errors import (
    ConfigError,
    ProviderBrokenAnswer,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
)

#: Characters of an answer that is taken; a longer one is no list of what is worth keeping.
MAX_ANSWER_CHARS = 16_000

#: What errors call a turn: "openai memory flush failed: …".
WHAT = "memory flush"

_OPENAI = "openai"
_WHERE = "agents.defaults.compaction.memoryFlush"


def take(settings: AgentSettings, *, system: str, conversation: str, request: str) -> str:
    """The answer to a turn, by the configured program or model. Raises a ProviderError."""
    flush = settings.sessions.compaction.memory_flush
    if flush.command:
        answer = _run(flush, "\n\n".join((system, conversation, request)))
    else:
        answer = _ask(flush, settings, system, f"{conversation}\n\n{request}")
    if len(answer) > MAX_ANSWER_CHARS:
        raise ProviderRefused(
            f"{WHAT} failed: an answer of {len(answer)} characters is no note",
            hint=f"ask for less in {_WHERE}.prompt",
        )
    return answer


def _ask(flush: MemoryFlush, settings: AgentSettings, system: str, user: str) -> str:
    endpoint, model = _endpoint(flush, settings.providers, settings.environment_keys)
    client = HttpClient(endpoint, timeout_s=flush.timeout_seconds)
    try:
        body = {
            "model": model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        }
        # Not tried again blindly: a turn that was received is paid for.
        reply = client.post("/chat/completions", body, what=WHAT, once=True)
        return _content(client.json(reply), endpoint.provider)
    finally:
        client.close()


def _content(answer: Any, provider: str) -> str:
    """`choices[0].message.content`, as text or as parts of text; empty: nothing is to be kept."""
    try:
        content = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise ProviderBrokenAnswer(f"{provider} {WHAT} failed: the answer has no message") from None
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise ProviderBrokenAnswer(f"{provider} {WHAT} failed: the message is no text")
    return content or ""


def _endpoint(
    flush: MemoryFlush, providers: Mapping[str, ProviderEntry], keys: Mapping[str, str]
) -> tuple[Endpoint, str]:
    """Where the turn is sent, and the name of the model there.

    `id/model` means `models.providers.<id>`, unless an address is given. OpenAI's key of the environment goes
    to OpenAI's own address only.
    """
    name, slash, rest = flush.model.partition("/")
    entry = providers.get(name) if slash else None
    model = flush.model if entry is None or flush.base_url else rest
    if entry is None and slash and name == _OPENAI and not flush.base_url:
        entry, model = ProviderEntry(), rest
    entry = entry if entry is not None and not flush.base_url else ProviderEntry()
    public = CATALOG[_OPENAI].public_url
    try:
        url = normal_url(flush.base_url or entry.base_url or public, where=f"{_WHERE}.baseUrl")
    except ConfigError as error:
        raise ProviderStop(error.message, hint=error.hint) from None
    is_public = url == public
    key = flush.api_key or entry.api_key or (keys.get(_OPENAI, "") if is_public else "")
    if is_public and not key:
        raise ProviderStop(
            f"{WHAT} failed: no key for OpenAI's own address",
            hint=f"set {_WHERE}.baseUrl to another server, or export OPENAI_API_KEY=…",
        )
    headers = {k.strip().lower(): v for k, v in {**entry.headers, **flush.headers}.items()}
    endpoint = Endpoint(
        provider=name if slash and not flush.base_url else "chat",
        base_url=url,
        public=is_public,
        key=key,
        headers=headers,
        key_places=f"{_WHERE}.apiKey, then models.providers, then OPENAI_API_KEY for OpenAI's own address",
    )
    return endpoint, model


def _run(flush: MemoryFlush, text: str) -> str:
    """What the program writes to its standard output when it is given the text."""
    name = os.path.basename(flush.command[0])
    try:
        # A session of its own, so that what it started ends with it.
        process = subprocess.Popen(
            flush.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ProviderStop(
            f"{WHAT} failed: {name} cannot be started: {error.strerror}", hint=f"check {_WHERE}.command"
        ) from error
    try:
        out, said = process.communicate(text.encode("utf-8", "replace"), timeout=flush.timeout_seconds)
    except subprocess.TimeoutExpired:
        raise ProviderLater(
            f"{WHAT} failed: {name} gave no answer within {flush.timeout_seconds} s"
        ) from None
    finally:
        _end(process)
    if process.returncode:
        words = shown(said[-2_000:].decode("utf-8", "replace"))
        raise ProviderLater(f"{WHAT} failed: {name} ended with {process.returncode}: {words}")
    return out.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
