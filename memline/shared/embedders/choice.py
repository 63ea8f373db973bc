"""Choose the provider that embeds, and when none can, say why and what to do about it.

Cheap on purpose: every search comes here, so nothing here imports a provider, httpx or numpy.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from memline.shared.config.schema import AgentSettings, Remote
from memline.shared.embedders.endpoint import Endpoint, endpoint_of
from memline.shared.embedders.protocol import Embedder, Identity
from memline.shared.errors import ConfigError, ProviderError, ProviderStop
from memline.shared.providers import LOCAL, PROVIDERS, Provider, RequestCaps, load

#: The provider of a choice that embeds nothing.
NONE = "none"

#: Requests that a minute's budget of tokens, or of texts, is good for at least.
BUDGET_PARTS = 20

#: Errors that mean that a provider cannot be used with these settings.
_UNUSABLE = (ConfigError, ProviderError)

_SET_UP = (
    "export OPENAI_API_KEY=… (or GEMINI_API_KEY, VOYAGE_API_KEY); "
    "without a key: memline init --provider local (or ollama)"
)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `choose`. With provider `none` there is no identity and search uses keywords alone."""

    #: `memorySearch.provider` as configured.
    requested: str
    provider: str
    model: str = ""
    #: Why it is not the requested provider, or why there is none; empty when all is as asked.
    reason: str = ""
    #: What to do about `reason`.
    action: str = ""
    #: The provider that this one is the fallback of.
    fallback_from: str = ""
    identity: Identity | None = None
    caps: RequestCaps | None = None
    #: Address in normal form, fit to be shown.
    base_url: str = ""
    timeout_s: float = 60
    endpoint: Endpoint | None = None

    @property
    def mark(self) -> str:
        """Tell its address and secrets from others; see `shared.index.accounts.account_id`."""
        return self.endpoint.secrets_mark if self.endpoint is not None else ""

    def build(self, *, vector_dims: int = 0) -> Embedder:
        """Build the embedder, without a network call. Raises ProviderStop when there is none.

        `vector_dims`: dimensions of the vectors that the index holds already; 0 when it holds none.
        """
        if self.identity is None or self.endpoint is None:
            raise ProviderStop(self.reason, hint=self.action)
        embedder: Embedder = load(PROVIDERS[self.provider].embedder)(
            identity=self.identity,
            endpoint=self.endpoint,
            timeout_s=self.timeout_s,
            vector_dims=vector_dims,
        )
        return embedder


def choose(settings: AgentSettings) -> Choice:
    """Choose the provider of an agent by its settings: the requested one, else the fallback, else none."""
    requested = settings.memory.provider
    if requested == NONE:
        return Choice(requested=requested, provider=NONE, reason="memorySearch.provider is none")
    try:
        return _auto(settings) if requested == "auto" else _choice(settings, requested)
    except _UNUSABLE as primary:
        reason = primary.message
        try:
            fallback = _fallback(settings, requested, reason, primary.hint)
        except _UNUSABLE as second:
            fallback = None
            reason = f"{reason}\n\nFallback to {settings.memory.fallback} failed: {second.message}"
        return fallback or Choice(requested=requested, provider=NONE, reason=reason, action=primary.hint)


def choose_fallback(settings: AgentSettings, stopped: Choice) -> Choice | None:
    """Choose the fallback of a provider that stopped for good; None when there is none that works."""
    if stopped.requested == NONE:
        return None
    try:
        return _fallback(settings, stopped.provider)
    except _UNUSABLE:
        return None


def choose_for_identity(settings: AgentSettings, identity: Identity, base_url: str) -> Choice:
    """Choose what leads to an identity that is not the configured one (an older model, another host's).

    Raises ProviderStop when these settings no longer lead to its provider and endpoint: a key is never sent,
    and vectors are never compared, across endpoints. `base_url` only names the old place in that message.
    """
    choice = choose(settings)
    fallback = choose_fallback(settings, choice)
    for candidate in (choice, fallback):
        if candidate is None or candidate.identity is None:
            continue
        if (candidate.provider, candidate.identity.endpoint) == (identity.provider, identity.endpoint):
            return replace(candidate, model=identity.model, identity=identity)
    place = f" at {base_url}" if base_url else ""
    raise ProviderStop(
        f"the settings do not lead to {identity.provider} {identity.model}{place}"
        + (f": {choice.reason}" if choice.identity is None else ""),
        hint=choice.action or "set provider, remote.baseUrl and remote.headers back, or run: memline index",
    )


def _auto(settings: AgentSettings) -> Choice:
    """Choose the first provider that can work; `local` first: notes stay here when a model is here."""
    memory = settings.memory
    if _is_there(memory.local.model_path):
        return _choice(settings, LOCAL)
    # When the environment tells whose key `remote.apiKey` is, no other provider gets it.
    key = memory.remote.api_key.strip()
    owners = [name for name, value in settings.environment_keys.items() if key and value.strip() == key]
    for provider in PROVIDERS.values():
        if not provider.in_auto or (owners and provider.name != owners[0]):
            continue
        endpoint = endpoint_of(provider, settings, own=True)
        if endpoint.has_credentials or not endpoint.public:
            return _choice(settings, provider.name)
    raise ProviderStop("no embedding provider is configured: no key was found, and no baseUrl", hint=_SET_UP)


def _is_there(model_path: str) -> bool:
    """Tell whether a local model, a file or a folder, exists."""
    return bool(model_path.strip()) and Path(model_path).expanduser().exists()


def _fallback(settings: AgentSettings, failed: str, reason: str = "", action: str = "") -> Choice | None:
    """Choose the fallback; None when none is set. Nothing of the first provider's `remote` is handed on."""
    name = settings.memory.fallback
    if name in (NONE, failed):
        return None
    choice = _choice(settings, name, own=False)
    return replace(choice, reason=reason, action=action, fallback_from=failed)


def _choice(settings: AgentSettings, name: str, *, own: bool = True) -> Choice:
    """Choose a provider by its name. `own`: `remote`, model and dimensions are meant for it."""
    provider, memory = PROVIDERS[name], settings.memory
    if name == LOCAL:
        # Here, because few configurations have such a model: 10 ms.
        from memline.shared.embedders.local.downloads import model_file

        file = model_file(memory.local, settings.home)
        endpoint = Endpoint(provider=LOCAL, base_url=file.path.as_uri(), public=False)
        model, digest, scheme = file.name, file.digest, file.family
    else:
        endpoint = endpoint_of(provider, settings, own=own)
        if provider.key_variables and endpoint.public and not endpoint.has_credentials:
            raise ProviderStop(
                f'No API key found for provider "{name}"',
                hint=f"export {provider.key_variables[0]}=…; the key is looked for in {endpoint.key_places}",
            )
        model = (memory.model.strip() if own else "") or provider.default_model
        # At OpenRouter the prefix is part of the name.
        if "//openrouter.ai/" not in endpoint.base_url:
            for prefix in provider.model_prefixes:
                model = model.removeprefix(prefix)
        digest, scheme = endpoint.digest, provider.scheme_of(model)
    dims = memory.output_dimensionality if own else 0
    usual = provider.caps_at(public=endpoint.public)
    return Choice(
        requested=memory.provider,
        provider=name,
        model=model,
        identity=Identity(provider=name, model=model, endpoint=digest, dims=dims, scheme=scheme),
        # The caps of `remote` are not meant for a model in this process.
        caps=_configured_caps(provider, usual, memory.remote) if own and name != LOCAL else usual,
        base_url=endpoint.shown_url,
        timeout_s=memory.remote.timeout_seconds,
        endpoint=endpoint,
    )


def _configured_caps(provider: Provider, usual: RequestCaps, remote: Remote) -> RequestCaps:
    max_rows, max_tokens = remote.max_rows or usual.max_rows, usual.max_tokens
    # Small against the budget of a minute, or the rest of it fits no request and is lost.
    if remote.tokens_per_minute:
        parts = min(remote.requests_per_minute or BUDGET_PARTS, BUDGET_PARTS)
        max_tokens = max(1, min(max_tokens, remote.tokens_per_minute // parts))
    if provider.counts_texts and remote.requests_per_minute:
        max_rows = max(1, min(max_rows, remote.requests_per_minute // BUDGET_PARTS))
    return replace(usual, max_rows=max_rows, max_tokens=max_tokens)
