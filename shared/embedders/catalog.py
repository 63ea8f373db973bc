"""The providers there are: their names, keys, default models and caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.embedders.protocol import RequestCaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What is known about a provider before anything is configured."""

    name: str
    #: Module whose `build(identity=, endpoint=, caps=, timeout_s=, vector_dims=)` makes its embedder;
    #: empty: not in this release.
    module: str
    default_model: str
    caps: RequestCaps
    #: Caps of other servers that speak the same protocol.
    compatible_caps: RequestCaps | None = None
    #: Address of the provider's own service; empty: it has none (local models).
    public_url: str = ""
    #: Environment variable of its key; empty: it needs no key.
    key_variable: str = ""
    #: Its names below `models.providers`, the usual one first.
    entry_names: tuple[str, ...] = ()
    #: Prefixes that name the provider in a model's name and are no part of it.
    model_prefixes: tuple[str, ...] = ()

    @property
    def needs_key(self) -> bool:
        return bool(self.key_variable)

    @property
    def available(self) -> bool:
        return bool(self.module)


#: OpenAI's documented cap is 300,000 real tokens a request. Ours are estimated, four characters each, and
#: code or Cyrillic has twice as many: half of the cap needs no second try even then.
_OPENAI_MAX_TOKENS = 150_000

_TABLE = (
    Provider(
        name="local",
        module="",
        default_model="hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf",
        caps=RequestCaps(max_rows=32, max_tokens=16_384, max_text_tokens=2048),
    ),
    Provider(
        name="openai",
        module="shared.embedders.openai",
        default_model="text-embedding-3-small",
        caps=RequestCaps(max_rows=2048, max_tokens=_OPENAI_MAX_TOKENS, max_text_tokens=8192),
        compatible_caps=RequestCaps(max_rows=256, max_tokens=_OPENAI_MAX_TOKENS, max_text_tokens=8192),
        public_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        entry_names=("openai",),
        model_prefixes=("openai/",),
    ),
    Provider(
        name="gemini",
        module="",
        default_model="gemini-embedding-001",
        caps=RequestCaps(max_rows=100, max_tokens=20_000, max_text_tokens=2048),
        public_url="https://generativelanguage.googleapis.com/v1beta",
        key_variable="GEMINI_API_KEY",
        entry_names=("google", "gemini"),
        model_prefixes=("models/", "gemini/", "google/"),
    ),
    Provider(
        name="voyage",
        module="",
        default_model="voyage-4-large",
        caps=RequestCaps(max_rows=1000, max_tokens=60_000, max_text_tokens=32_000),
        public_url="https://api.voyageai.com/v1",
        key_variable="VOYAGE_API_KEY",
        entry_names=("voyage",),
        model_prefixes=("voyage/",),
    ),
)

#: All providers by name, in the order in which `auto` looks at them.
CATALOG: Mapping[str, Provider] = {provider.name: provider for provider in _TABLE}
