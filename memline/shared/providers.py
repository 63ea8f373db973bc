"""Hold every fact about the embedding providers: names, keys, addresses, models, caps and prices.

The only table of them: configuration, embedders, batches, memory flush and cost plans read it. A new provider
is a row here, a protocol module below `shared.embedders` unless it speaks one that is there, and its docs.
Prices are in `prices.toml` beside this module, read only when something asks for a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from memline.shared.values import read_table, to_json


class RequestCaps(msgspec.Struct, frozen=True, kw_only=True):
    """The largest request a provider takes; the dispatcher packs up to these."""

    max_rows: int
    #: Tokens of all texts together, by the estimate of `shared.sources.tokens`.
    max_tokens: int


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a provider that hold before anything is configured."""

    name: str
    #: Class of its embedder, see `shared.embedders.protocol` and `load`.
    embedder: str
    #: Hours within which its Batch API promises to finish a job; 0: it has none.
    batch_hours: int = 0
    default_model: str
    caps: RequestCaps
    #: Caps of other servers that speak the same protocol.
    compatible_caps: RequestCaps | None = None
    #: Address of the provider's own service; empty: it has none (local models).
    public_url: str = ""
    #: Whether that address speaks OpenAI's chat protocol too, for memory flush.
    has_chat: bool = False
    #: Environment variables of its key, the first that is set counts; empty: it needs no key.
    key_variables: tuple[str, ...] = ()
    #: Its names below `models.providers`, the usual one first.
    entry_names: tuple[str, ...] = ()
    #: Prefixes that name the provider in a model's name and are not part of it.
    model_prefixes: tuple[str, ...] = ()
    #: Header of the key; in `authorization` it follows `Bearer`.
    key_header: str = "authorization"
    #: Path of an address that belongs to another protocol of the same service; it is cut off with all behind.
    foreign_path: str = ""
    #: Path added to an address that has none.
    bare_path: str = ""
    #: How a request tells texts from questions, the scheme of its identities; see the module.
    scheme: str = ""
    #: Models (by the beginning of their name) with another scheme.
    model_schemes: Mapping[str, str] = {}
    #: Whether it counts each text of a request as a request.
    counts_texts: bool = False
    #: Whether `auto` looks for its key.
    in_auto: bool = False

    def caps_at(self, *, public: bool) -> RequestCaps:
        """Return the largest request at the provider's own service or at another."""
        return self.caps if public else self.compatible_caps or self.caps

    def scheme_of(self, model: str) -> str:
        """Return the scheme of a model's identities."""
        schemes = (name for beginning, name in self.model_schemes.items() if model.startswith(beginning))
        return next(schemes, self.scheme)


#: The provider that is a model in this process.
LOCAL = "local"

#: OpenAI's documented cap is 300,000 real tokens a request. Ours are estimated, four characters each, and
#: code or Cyrillic has twice as many: half of a cap needs no second try even then.
_OPENAI_MAX_TOKENS = 150_000

#: Gemini's schemes: the task types of its requests, or, for models that know none, prompts before the texts.
GEMINI_TASKS = "RETRIEVAL_DOCUMENT/RETRIEVAL_QUERY"
GEMINI_PROMPTS = "title-text/search-result"


_TABLE = (
    Provider(
        name="openai",
        embedder="memline.shared.embedders.remote.OpenAIEmbedder",
        batch_hours=24,
        default_model="text-embedding-3-small",
        caps=RequestCaps(max_rows=2048, max_tokens=_OPENAI_MAX_TOKENS),
        compatible_caps=RequestCaps(max_rows=256, max_tokens=_OPENAI_MAX_TOKENS),
        public_url="https://api.openai.com/v1",
        has_chat=True,
        key_variables=("OPENAI_API_KEY",),
        entry_names=("openai",),
        model_prefixes=("openai/",),
        in_auto=True,
    ),
    Provider(
        name="gemini",
        embedder="memline.shared.embedders.remote.GeminiEmbedder",
        batch_hours=24,
        default_model="gemini-embedding-001",
        # 100 requests in one is documented and enforced. A free key has 30,000 tokens in a minute.
        caps=RequestCaps(max_rows=100, max_tokens=20_000),
        public_url="https://generativelanguage.googleapis.com/v1beta",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        entry_names=("google", "gemini"),
        model_prefixes=("models/", "gemini/", "google/"),
        key_header="x-goog-api-key",
        foreign_path="/openai",
        scheme=GEMINI_TASKS,
        model_schemes={"gemini-embedding-2": GEMINI_PROMPTS},
        counts_texts=True,
        in_auto=True,
    ),
    Provider(
        name="voyage",
        embedder="memline.shared.embedders.remote.VoyageEmbedder",
        batch_hours=12,
        default_model="voyage-4-large",
        # Of docs.voyageai.com/reference/embeddings-api (2026-02): 1,000 texts, and 120,000 tokens for most
        # models; half of it as above.
        caps=RequestCaps(max_rows=1000, max_tokens=60_000),
        public_url="https://api.voyageai.com/v1",
        key_variables=("VOYAGE_API_KEY",),
        entry_names=("voyage",),
        model_prefixes=("voyage/",),
        scheme="document/query",
        in_auto=True,
    ),
    Provider(
        name="mistral",
        embedder="memline.shared.embedders.remote.OpenAIEmbedder",
        default_model="mistral-embed",
        # 16,384 tokens a request is enforced; half of it as above.
        caps=RequestCaps(max_rows=128, max_tokens=8192),
        public_url="https://api.mistral.ai/v1",
        has_chat=True,
        key_variables=("MISTRAL_API_KEY",),
        entry_names=("mistral",),
        model_prefixes=("mistral/",),
    ),
    Provider(
        name="ollama",
        embedder="memline.shared.embedders.remote.OpenAIEmbedder",
        default_model="nomic-embed-text",
        caps=RequestCaps(max_rows=256, max_tokens=_OPENAI_MAX_TOKENS),
        public_url="http://127.0.0.1:11434/v1",
        has_chat=True,
        entry_names=("ollama",),
        model_prefixes=("ollama/",),
        # OpenClaw's own address of it is that of another protocol, without a path.
        bare_path="/v1",
    ),
    Provider(
        name=LOCAL,
        embedder="memline.shared.embedders.local.model.LocalEmbedder",
        default_model="hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf",
        # Texts are computed one by one, so a large request saves nothing: small ones show progress, and are
        # done long before their lease ends also with a large model.
        caps=RequestCaps(max_rows=16, max_tokens=4096),
    ),
)

#: All providers by name; `auto` tries those with `in_auto` in this order.
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _TABLE}


def load(name: str) -> Any:
    """Import a class that the table names: no provider's module is loaded before it is used."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


#: Origins of a price: the user's configuration, `prices.toml`, or a model on this machine.
OWN, LISTED, FREE = "config", "list", "local"


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a million tokens."""

    #: OWN, LISTED or FREE.
    source: str
    per_million: float
    #: None when it is not known, or there is no Batch API.
    batch_per_million: float | None = None
    currency: str = "USD"
    #: Day it was looked up; empty when the configuration does not say.
    as_of: str = ""

    def to_json(self) -> dict[str, Any]:
        return to_json(self) | {"asOf": self.as_of or None}

    def cost(self, tokens: int, *, by_batch: bool) -> float | None:
        """Return the cost of so many tokens; None when that is not known."""
        price = self.batch_per_million if by_batch else self.per_million
        return None if price is None else price * tokens / 1_000_000

    def words(self, cost: float | None) -> str:
        """Say a cost for a reader."""
        if self.source == FREE:
            return "free, on this machine"
        if cost is None:
            return "no price known"
        if not cost:
            return "nothing to pay"
        sign = "$" if self.currency == "USD" else f"{self.currency} "
        return f"about {sign}{cost:.4f}" if cost >= 0.0001 else f"less than {sign}0.0001"


def price_of(provider: str, model: str, *, public: bool, own: Mapping[str, Any]) -> Price | None:
    """Return the price of a provider's model; None when it is not known.

    `own` is `prices` of the configuration (of `PriceEntry`), by `provider/model` or `model`. List prices hold
    for a provider's own address alone (`public`): another service of the same model has another price.
    """
    configured = own.get(f"{provider}/{model}") or own.get(model)
    if configured is not None:
        batch = configured.batch_per_million
        return Price(source=OWN, per_million=configured.per_million, batch_per_million=batch)
    if provider == LOCAL or (provider == "ollama" and public):
        # A program on this machine.
        return Price(source=FREE, per_million=0.0)
    return list_prices().get(f"{provider}/{model}") if public else None


@cache
def list_prices() -> dict[str, Price]:
    """Read the list prices of `prices.toml`, by `provider/model`."""
    table = read_table(__file__, "prices.toml")
    return {
        f"{provider}/{model}": Price(
            source=LISTED,
            per_million=price["requests"],
            batch_per_million=price.get("batches"),
            as_of=table["as_of"],
        )
        for provider, listed in table["providers"].items()
        for model, price in listed["models"].items()
    }
