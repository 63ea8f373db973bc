"""Which provider embeds, and when none can, why and what to do about it.

Cheap on purpose: a search asks this every time, so nothing here imports a provider, httpx or numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from shared.config.schema import AgentSettings
from shared.embedders.catalog import CATALOG, Provider
from shared.embedders.endpoint import Endpoint, fallback_endpoint, primary_endpoint
from shared.embedders.protocol import Embedder, Identity, RequestCaps
from shared.errors import ConfigError, ProviderError, ProviderStop
from shared.values import value

if TYPE_CHECKING:
    from shared.embedders.batch import BatchApi

#: The provider of a choice that embeds nothing.
NONE = "none"

#: The provider that is a model in this process.
LOCAL = "local"

#: Requests that a minute's budget of tokens is good for at least.
BUDGET_PARTS = 20

_SET_UP = (
    "export OPENAI_API_KEY=… (or GEMINI_API_KEY, VOYAGE_API_KEY), or set "
    "agents.defaults.memorySearch.remote.baseUrl to a server of your own, e.g. http://127.0.0.1:11434/v1"
)


@value
class Choice:
    """What `choose` decided. With provider `none` there is no identity and search uses keywords alone."""

    #: `memorySearch.provider` as configured.
    requested: str
    provider: str
    model: str = ""
    #: Why it is not the requested provider, or why there is none; empty when all is as asked.
    reason: str = ""
    #: What to do about `reason`.
    action: str = ""
    #: The provider this one stands in for.
    fallback_from: str = ""
    identity: Identity | None = None
    caps: RequestCaps | None = None
    #: Address in normal form, fit to be shown.
    base_url: str = ""
    timeout_s: float = 60
    endpoint: Endpoint | None = field(default=None, repr=False)

    def build(self, *, vector_dims: int = 0) -> Embedder:
        """The embedder, without a network call. Raises ProviderStop when there is none.

        `vector_dims`: dimensions of the vectors that the index holds already; 0 when it holds none.
        """
        if self.identity is None or self.endpoint is None or self.caps is None:
            raise ProviderStop(self.reason, hint=self.action)
        embedder: Embedder = import_module(CATALOG[self.provider].module).build(
            identity=self.identity,
            endpoint=self.endpoint,
            caps=self.caps,
            timeout_s=self.timeout_s,
            vector_dims=vector_dims,
        )
        return embedder

    def build_batch(self, *, vector_dims: int = 0) -> BatchApi | None:
        """The provider's Batch API, without a network call; None where there is none.

        A compatible server may or may not have one; it is asked only where the user enabled batches.
        """
        module = CATALOG[self.provider].batch_module if self.provider in CATALOG else ""
        if self.identity is None or self.endpoint is None or not module:
            return None
        api: BatchApi = import_module(module).build_batch(
            identity=self.identity,
            endpoint=self.endpoint,
            timeout_s=self.timeout_s,
            vector_dims=vector_dims,
        )
        return api


class _Unworkable(Exception):
    """This provider cannot be used with these settings."""

    def __init__(self, reason: str, action: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.action = action


def choose(settings: AgentSettings) -> Choice:
    """The provider of an agent by its settings: the requested one, else the fallback, else none."""
    requested = settings.memory.provider
    if requested == NONE:
        return Choice(requested=requested, provider=NONE, reason="memorySearch.provider is none")
    try:
        return _auto(settings) if requested == "auto" else _primary(CATALOG[requested], settings)
    except _Unworkable as primary:
        try:
            fallback = _fallback(settings, requested, primary.reason, primary.action)
        except _Unworkable as second:
            reason = f"{primary.reason}\n\nFallback to {settings.memory.fallback} failed: {second.reason}"
            return Choice(requested=requested, provider=NONE, reason=reason, action=primary.action)
        if fallback is not None:
            return fallback
        return Choice(requested=requested, provider=NONE, reason=primary.reason, action=primary.action)


def choose_fallback(settings: AgentSettings, stopped: Choice, *, reason: str, action: str) -> Choice | None:
    """The fallback for a provider that stopped for good while working; None when there is none that works."""
    if stopped.requested == NONE:
        return None
    try:
        return _fallback(settings, stopped.provider, reason, action)
    except _Unworkable:
        return None


def build_for_identity(
    settings: AgentSettings, identity: Identity, base_url: str, *, vector_dims: int = 0
) -> Embedder:
    """The embedder of an identity that is not the chosen one; see `choice_of`."""
    return choice_of(settings, identity, base_url).build(vector_dims=vector_dims)


def choice_of(settings: AgentSettings, identity: Identity, base_url: str) -> Choice:
    """The way to an identity that is not the chosen one (an older model, or another host's choice).

    Raises ProviderStop when these settings no longer lead to its provider and endpoint: a key is never sent,
    and vectors are never compared, across endpoints. `base_url` only names the old place in that message.
    """
    choice = choose(settings)
    stand_in = choose_fallback(settings, choice, reason="", action="")
    for candidate in (choice, stand_in):
        if candidate is None or candidate.identity is None:
            continue
        if (candidate.provider, candidate.identity.endpoint) == (identity.provider, identity.endpoint):
            return replace(candidate, model=identity.model, identity=identity)
    place = f" at {base_url}" if base_url else ""
    raise ProviderStop(
        f"the settings do not lead to {identity.provider} {identity.model}{place}"
        + (f": {choice.reason}" if choice.identity is None else ""),
        hint=choice.action or "set memorySearch.provider and remote.baseUrl back, or run: memline index",
    )


def _auto(settings: AgentSettings) -> Choice:
    """The first provider that can work; `local` first, so that notes stay here when a model is here."""
    if _is_local_model(settings.memory.local.model_path):
        return _primary(CATALOG[LOCAL], settings)
    owner = _owner_of_key(settings)
    for provider in CATALOG.values():
        if not provider.in_auto or owner not in ("", provider.name):
            continue
        try:
            endpoint = primary_endpoint(provider, settings)
        except ConfigError as error:
            raise _Unworkable(error.message, error.hint) from None
        if endpoint.opens or not endpoint.public:
            return _primary(provider, settings)
    raise _Unworkable("no embedding provider is configured: no key was found, and no baseUrl", _SET_UP)


def _owner_of_key(settings: AgentSettings) -> str:
    """The provider whose key `remote.apiKey` is, when the environment tells; no other one is shown it."""
    key = settings.memory.remote.api_key.strip()
    owners = (name for name, value in settings.environment_keys.items() if key and value.strip() == key)
    return next(owners, "")


def _is_local_model(path: str) -> bool:
    if not path or path.startswith(("hf:", "http:", "https:")):
        return False
    return Path(path).expanduser().is_file()


def _primary(provider: Provider, settings: AgentSettings) -> Choice:
    if provider.name == LOCAL:
        return _local(provider, settings, dims=settings.memory.output_dimensionality)
    endpoint = _usable(provider, primary_endpoint, settings)
    return _choice(settings, provider, endpoint, own=True)


def _fallback(settings: AgentSettings, failed: str, reason: str, action: str) -> Choice | None:
    """The fallback's choice; None when none is set. Nothing of the first provider's `remote` is handed on."""
    name = settings.memory.fallback
    if name in (NONE, failed):
        return None
    provider = CATALOG[name]
    if name == LOCAL:
        choice = _local(provider, settings, dims=0)
        return replace(choice, reason=reason, action=action, fallback_from=failed)
    endpoint = _usable(provider, fallback_endpoint, settings)
    return _choice(
        settings,
        provider,
        endpoint,
        own=False,
        reason=reason,
        action=action,
        fallback_from=failed,
    )


def _local(provider: Provider, settings: AgentSettings, *, dims: int) -> Choice:
    """The choice of a model file on this machine; its address is that of the file."""
    # Only those who have such a model pay for looking at it.
    from shared.embedders.local_files import model_file

    memory = settings.memory
    try:
        model = model_file(memory.local, settings.home)
    except ProviderError as error:
        raise _Unworkable(error.message, error.hint) from None
    url = model.path.as_uri()
    name = model.path.name
    return Choice(
        requested=memory.provider,
        provider=LOCAL,
        model=name,
        identity=Identity(
            provider=LOCAL, model=name, endpoint=model.digest, dims=dims, scheme=model.prompt_family
        ),
        caps=_caps(provider.caps, settings, own=False),
        base_url=url,
        timeout_s=memory.remote.timeout_seconds,
        endpoint=Endpoint(provider=LOCAL, base_url=url, public=False),
    )


def _usable(
    provider: Provider, maker: Callable[[Provider, AgentSettings], Endpoint], settings: AgentSettings
) -> Endpoint:
    try:
        endpoint = maker(provider, settings)
    except ConfigError as error:
        raise _Unworkable(error.message, error.hint) from None
    if provider.needs_key and endpoint.public and not endpoint.opens:
        raise _Unworkable(
            f'No API key found for provider "{provider.name}"',
            f"export {provider.key_variable}=…; the key is looked for in {endpoint.key_places}",
        )
    return endpoint


def _choice(
    settings: AgentSettings,
    provider: Provider,
    endpoint: Endpoint,
    *,
    own: bool,
    reason: str = "",
    action: str = "",
    fallback_from: str = "",
) -> Choice:
    """`own`: the model, dimensions and caps of the settings are meant for this provider."""
    memory = settings.memory
    model = _model(provider, memory.model if own else "", endpoint)
    identity = Identity(
        provider=provider.name,
        model=model,
        endpoint=endpoint.digest,
        dims=memory.output_dimensionality if own else 0,
        scheme=provider.scheme_of(model),
    )
    return Choice(
        requested=memory.provider,
        provider=provider.name,
        model=model,
        reason=reason,
        action=action,
        fallback_from=fallback_from,
        identity=identity,
        caps=_caps(provider.caps_of(model, public=endpoint.public), settings, own=own),
        base_url=endpoint.shown_url,
        timeout_s=memory.remote.timeout_seconds,
        endpoint=endpoint,
    )


def _model(provider: Provider, configured: str, endpoint: Endpoint) -> str:
    model = configured.strip() or provider.default_model
    if "//openrouter.ai/" in endpoint.base_url:
        # There the prefix is part of the name.
        return model
    for prefix in provider.model_prefixes:
        model = model.removeprefix(prefix)
    return model


def _caps(usual: RequestCaps, settings: AgentSettings, *, own: bool) -> RequestCaps:
    remote = settings.memory.remote
    max_tokens = (remote.max_tokens if own else 0) or usual.max_tokens
    if own and remote.tokens_per_minute:
        # Small beside the budget of a minute, or what is left of it fits no request and is lost.
        parts = min(remote.requests_per_minute or BUDGET_PARTS, BUDGET_PARTS)
        max_tokens = max(1, min(max_tokens, remote.tokens_per_minute // parts))
    return RequestCaps(
        max_rows=(remote.max_rows if own else 0) or usual.max_rows,
        max_tokens=max_tokens,
        max_text_tokens=usual.max_text_tokens,
    )
