"""The providers there are: their names, keys, default models and caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from urllib.parse import urlsplit

from shared.embedders.protocol import RequestCaps
from shared.values import value


@value
class Provider:
    """What is known about a provider before anything is configured."""

    name: str
    #: Module whose `build(identity=, endpoint=, caps=, timeout_s=, vector_dims=)` makes its embedder.
    module: str
    #: Module whose `build_batch(identity=, endpoint=, timeout_s=, vector_dims=)` makes its Batch API; empty:
    #: it has none.
    batch_module: str = ""
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
    #: Header of the key; in `authorization` it stands behind `Bearer`.
    key_header: str = "authorization"
    #: Path of an address that belongs to another protocol of the same service; it is cut off with all behind.
    foreign_path: str = ""
    #: Path added to an address that has none.
    bare_path: str = ""
    #: How texts are told from questions, the scheme of its identities; see the module.
    scheme: str = ""
    #: Models (by the beginning of their name) with another scheme.
    model_schemes: Mapping[str, str] = field(default_factory=dict)
    #: Models with other caps.
    model_caps: Mapping[str, RequestCaps] = field(default_factory=dict)
    #: Whether `auto` looks for its key.
    in_auto: bool = False

    def caps_of(self, model: str, *, public: bool) -> RequestCaps:
        """The largest request for a model, at the provider's own service or at another."""
        if not public and self.compatible_caps:
            return self.compatible_caps
        return self.model_caps.get(model, self.caps)

    def scheme_of(self, model: str) -> str:
        """The scheme of a model's identities."""
        schemes = (name for beginning, name in self.model_schemes.items() if model.startswith(beginning))
        return next(schemes, self.scheme)

    @property
    def needs_key(self) -> bool:
        return bool(self.key_variable)


#: OpenAI's documented cap is 300,000 real tokens a request. Ours are estimated, four characters each, and
#: code or Cyrillic has twice as many: half of a cap needs no second try even then.
_OPENAI_MAX_TOKENS = 150_000

#: Gemini's schemes: the task types of its requests, or, for models that know none, prompts before the texts.
GEMINI_TASKS = "RETRIEVAL_DOCUMENT/RETRIEVAL_QUERY"
GEMINI_PROMPTS = "title-text/search-result"


def _voyage_caps(max_tokens: int) -> RequestCaps:
    """Half of a cap of Voyage's, for the same reason as above.

    The caps are those of docs.voyageai.com/reference/embeddings-api (2026-02): 1,000 texts, and 120,000
    tokens for most models, 320,000 and 1,000,000 for the smaller ones.
    """
    return RequestCaps(max_rows=1000, max_tokens=max_tokens // 2, max_text_tokens=32_000)


_TABLE = (
    Provider(
        name="local",
        module="shared.embedders.local",
        default_model="hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf",
        # Texts are computed one by one, so a large request saves nothing: small ones show progress, and come
        # back long before their lease ends also with a large model.
        caps=RequestCaps(max_rows=16, max_tokens=4096, max_text_tokens=2048),
    ),
    Provider(
        name="openai",
        module="shared.embedders.openai",
        batch_module="shared.embedders.batch_openai",
        default_model="text-embedding-3-small",
        caps=RequestCaps(max_rows=2048, max_tokens=_OPENAI_MAX_TOKENS, max_text_tokens=8192),
        compatible_caps=RequestCaps(max_rows=256, max_tokens=_OPENAI_MAX_TOKENS, max_text_tokens=8192),
        public_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        entry_names=("openai",),
        model_prefixes=("openai/",),
        in_auto=True,
    ),
    Provider(
        name="gemini",
        module="shared.embedders.gemini",
        batch_module="shared.embedders.batch_gemini",
        default_model="gemini-embedding-001",
        # 100 requests in one is documented and enforced. A free key has 30,000 tokens in a minute.
        caps=RequestCaps(max_rows=100, max_tokens=20_000, max_text_tokens=2048),
        public_url="https://generativelanguage.googleapis.com/v1beta",
        key_variable="GEMINI_API_KEY",
        entry_names=("google", "gemini"),
        model_prefixes=("models/", "gemini/", "google/"),
        key_header="x-goog-api-key",
        foreign_path="/openai",
        scheme=GEMINI_TASKS,
        model_schemes={"gemini-embedding-2": GEMINI_PROMPTS},
        in_auto=True,
    ),
    Provider(
        name="voyage",
        module="shared.embedders.voyage",
        batch_module="shared.embedders.batch_voyage",
        default_model="voyage-4-large",
        caps=_voyage_caps(120_000),
        public_url="https://api.voyageai.com/v1",
        key_variable="VOYAGE_API_KEY",
        entry_names=("voyage",),
        model_prefixes=("voyage/",),
        scheme="document/query",
        model_caps={
            "voyage-4": _voyage_caps(320_000),
            "voyage-3.5": _voyage_caps(320_000),
            "voyage-2": _voyage_caps(320_000),
            "voyage-4-lite": _voyage_caps(1_000_000),
            "voyage-3.5-lite": _voyage_caps(1_000_000),
        },
        in_auto=True,
    ),
    Provider(
        name="mistral",
        module="shared.embedders.openai",
        default_model="mistral-embed",
        # 16,384 tokens a request is enforced; half of it as above.
        caps=RequestCaps(max_rows=128, max_tokens=8192, max_text_tokens=8192),
        public_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        entry_names=("mistral",),
        model_prefixes=("mistral/",),
    ),
    Provider(
        name="ollama",
        module="shared.embedders.openai",
        default_model="nomic-embed-text",
        caps=RequestCaps(max_rows=256, max_tokens=_OPENAI_MAX_TOKENS, max_text_tokens=2048),
        public_url="http://127.0.0.1:11434/v1",
        entry_names=("ollama",),
        model_prefixes=("ollama/",),
        # OpenClaw's own address of it is that of another protocol, without a path.
        bare_path="/v1",
    ),
)

#: All providers by name, in the order in which `auto` looks at them.
CATALOG: Mapping[str, Provider] = {provider.name: provider for provider in _TABLE}


def url_hint(provider: str) -> str:
    """What to do about an address where nobody speaks the protocol of this provider."""
    known = CATALOG.get(provider)
    ending = urlsplit(known.public_url).path if known else ""
    return f"check memorySearch.remote.baseUrl: it usually ends in {ending or '/v1'}"
