"""Every configuration key, its type, its default and its limits.

Attribute names are the snake_case of the JSON5 keys (`max_results` is `maxResults`); a field of a nested
dataclass type is an object in the file. Defaults follow the original (`agents.defaults.memorySearch`)
except where `docs/config.md` says otherwise. This module only declares; `load.py` reads and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROVIDERS = ("auto", "openai", "gemini", "voyage", "local", "none")
FALLBACKS = ("openai", "gemini", "voyage", "local", "none")
SOURCES = ("memory", "sessions")


def key(
    default: Any = None,
    *,
    factory: Callable[[], Any] | None = None,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    secret: bool = False,
    doc: str = "",
) -> Any:
    """A field with its limits: allowed words, lowest and highest number, and whether it is a secret."""
    limits = {"choices": choices, "low": low, "high": high, "secret": secret, "doc": doc}
    if factory is not None:
        return field(default_factory=factory, metadata=limits)
    return field(default=default, metadata=limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraPath:
    """One entry of `extraPaths`: a file, or a folder whose files match `pattern`."""

    path: str
    pattern: str = "**/*.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experimental:
    session_memory: bool = key(False, doc="allow the source `sessions` (transcripts)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    enabled: bool = key(False, doc="use the provider's Batch API for large backlogs")
    wait: bool = key(True, doc="`index` waits for open batches")
    concurrency: int = key(2, low=1, doc="batches open at a time")
    poll_interval_ms: int = key(2000, low=0, doc="first time between two looks at a batch")
    timeout_minutes: int = key(60, low=1, doc="give up on a batch after this long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    base_url: str = key("", doc="base address of the provider, e.g. http://127.0.0.1:11434/v1")
    api_key: str = key("", secret=True, doc="key of the provider")
    headers: Mapping[str, str] = key(factory=dict, secret=True, doc="extra headers; they win over all others")
    batch: Batch = key(factory=Batch)
    max_rows: int = key(0, low=0, doc="texts in a request at most; 0: the provider's own cap")
    max_tokens: int = key(0, low=0, doc="tokens in a request at most; 0: the provider's own cap")
    timeout_seconds: int = key(60, low=1, doc="time limit of one embedding request")


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    model_path: str = key("", doc="a GGUF file, or hf:owner/repo/file.gguf")
    model_cache_dir: str = key("", doc="where downloaded models are kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStore:
    enabled: bool = key(True, doc="use sqlite-vec for vector search in one-shot commands")
    extension_path: str = key("", doc="a sqlite-vec library of your own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    driver: str = key("sqlite", choices=("sqlite",))
    path: str = key("", doc="the index file; `{agentId}` is replaced; default <home>/memory/{agentId}.sqlite")
    vector: VectorStore = key(factory=VectorStore)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    tokens: int = key(400, low=1, doc="size of a chunk; a token is 4 characters, a CJK character one token")
    overlap: int = key(80, low=0, doc="tokens repeated from the chunk before; less than `tokens`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSync:
    delta_bytes: int = key(100_000, low=0)
    delta_messages: int = key(50, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    on_session_start: bool = key(True)
    on_search: bool = key(True, doc="a search first brings changed files into the keyword index")
    watch: bool = key(True, doc="`up` and `watch` follow the files; off: only intervals and commands")
    watch_debounce_ms: int = key(1500, low=0, doc="quiet time before a changed file is read")
    interval_minutes: int = key(0, low=0, doc="full look at all files every so often; 0: never")
    sessions: SessionSync = key(factory=SessionSync)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mmr:
    enabled: bool = key(False, doc="push near-duplicates down")
    lambda_: float = key(0.7, low=0, high=1, doc="1: relevance only, 0: diversity only")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalDecay:
    enabled: bool = key(False, doc="older dated notes score less; MEMORY.md never fades")
    half_life_days: float = key(30, low=0.001)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    enabled: bool = key(True, doc="off: vector search only (keyword search when there are no vectors)")
    vector_weight: float = key(0.5, low=0, high=1)
    text_weight: float = key(0.5, low=0, high=1)
    candidate_multiplier: int = key(4, low=1, high=20, doc="candidates of each leg per wanted hit")
    fusion: str = key("weighted", choices=("weighted", "rrf"))
    mmr: Mmr = key(factory=Mmr)
    temporal_decay: TemporalDecay = key(factory=TemporalDecay)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    max_results: int = key(6, low=1)
    min_score: float = key(0.35, low=0, high=1, doc="cosine below which a hit of the vector leg alone is cut")
    hybrid: Hybrid = key(factory=Hybrid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    enabled: bool = key(True, doc="keep vectors that no chunk needs any more")
    max_entries: int = key(50_000, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearch:
    """`memorySearch` of one agent, defaults and overrides merged."""

    enabled: bool = key(True)
    sources: tuple[str, ...] = key(("memory",), choices=SOURCES)
    extra_paths: tuple[ExtraPath, ...] = key((), doc="more files and folders beside the workspace")
    experimental: Experimental = key(factory=Experimental)
    provider: str = key("auto", choices=PROVIDERS)
    fallback: str = key("none", choices=FALLBACKS)
    model: str = key("", doc="model of the provider; empty: its default")
    output_dimensionality: int = key(0, low=0, doc="dimensions asked of the provider; 0: its default")
    remote: Remote = key(factory=Remote)
    local: Local = key(factory=Local)
    store: Store = key(factory=Store)
    chunking: Chunking = key(factory=Chunking)
    sync: Sync = key(factory=Sync)
    query: Query = key(factory=Query)
    cache: Cache = key(factory=Cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """`models.providers.<id>`: where a provider is and how to speak to it."""

    base_url: str = key("")
    api_key: str = key("", secret=True)
    headers: Mapping[str, str] = key(factory=dict, secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """`queue`: Memline's own block."""

    url: str = key("", secret=True, doc="redis://…; empty: everything in one process")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Everything one agent needs, resolved: what workers, producers and search take as their settings."""

    agent: str
    workspace: Path
    index_path: Path
    #: State directory of the original's files (session transcripts are below it).
    state_dir: Path
    memory: MemorySearch = field(default_factory=MemorySearch)
    #: `models.providers`, by provider id (`openai`, `google`, `voyage`, …).
    providers: Mapping[str, ProviderEntry] = field(default_factory=dict)
    #: Keys found in the environment, by provider id (`openai`, `gemini`, `voyage`).
    environment_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: `memory.citations`: auto, on or off.
    citations: str = "auto"
    #: Root for `hf:` downloads, queue state and the like.
    home: Path = Path()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole resolved configuration."""

    agents: Mapping[str, AgentSettings]
    default_agent: str
    home: Path
    queue: QueueSettings = field(default_factory=QueueSettings)
    #: The file that was read; None when there was none.
    path: Path | None = None
