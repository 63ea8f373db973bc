"""Every configuration key, its type, its default and its limits.

Attribute names are the snake_case of the JSON5 keys (`max_results` is `maxResults`); a field of a nested
dataclass type is an object in the file. Defaults follow the original (`agents.defaults.memorySearch`)
except where `docs/config.md` says otherwise. This module only declares; `load.py` reads and checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.config.block import Block, key
from shared.values import value

if TYPE_CHECKING:
    from shared.config.faces import ChatScope, Serve

PROVIDERS = ("auto", "openai", "gemini", "voyage", "mistral", "ollama", "local", "none")
FALLBACKS = ("openai", "gemini", "voyage", "mistral", "ollama", "local", "none")
SOURCES = ("memory", "sessions")
CITATIONS = ("auto", "on", "off")
BACKENDS = ("builtin", "qmd")

#: What is taken from a folder of `extraPaths` when nothing else is said.
ANY_MARKDOWN = "**/*.md"


@value
class ExtraPath(Block):
    """One entry of `extraPaths`: a file, or a folder whose files match `pattern`."""

    path: str
    pattern: str = ANY_MARKDOWN


@value
class Experimental(Block):
    """What has to be allowed before it is used."""

    session_memory: bool = key(False, doc="allow the source `sessions` (transcripts)")


@value
class Batch(Block):
    """The provider's asynchronous Batch API."""

    enabled: bool = key(False, doc="use the provider's Batch API for large backlogs")
    wait: bool = key(True, doc="`index` waits for open batches")
    min_texts: int = key(50, low=1, doc="texts that are worth a batch; fewer go out in requests")
    concurrency: int = key(2, low=1, doc="batches open at a time")
    poll_interval_ms: int = key(2000, low=0, high=86_400_000, doc="first time between two looks at a batch")
    timeout_minutes: int = key(60, low=1, high=10_080, doc="give up on a batch after this long")
    failure_limit: int = key(2, low=1, high=1000, doc="batches that fail in a row until requests take over")
    cool_down_minutes: int = key(
        30, low=0, high=10_080, doc="first time until one is tried again after that; doubles up to 12 times"
    )


@value
class Remote(Block):
    """How a remote provider is reached."""

    base_url: str = key("", url=True, doc="base address of the provider, e.g. http://127.0.0.1:11434/v1")
    api_key: str = key("", secret=True, doc="key of the provider")
    headers: Mapping[str, str] = key(factory=dict, secret=True, doc="extra headers; they win over all others")
    batch: Batch = key(factory=Batch)
    max_rows: int = key(0, low=0, doc="texts in a request at most; 0: the provider's own cap")
    max_tokens: int = key(0, low=0, doc="tokens in a request at most; 0: the provider's own cap")
    requests_per_minute: int = key(0, low=0, doc="requests of all workers in any minute; 0: no limit of ours")
    tokens_per_minute: int = key(0, low=0, doc="tokens of all workers in any minute; 0: no limit of ours")
    timeout_seconds: int = key(60, low=1, high=86_400, doc="time limit of one embedding request")


@value
class Local(Block):
    """A model that runs on this machine."""

    model_path: str = key("", doc="a GGUF file, or hf:owner/repo/file.gguf")
    model_cache_dir: str = key("", doc="where downloaded models are kept")


@value
class VectorStore(Block):
    """Vector search inside SQLite."""

    enabled: bool = key(True, doc="use sqlite-vec for vector search in one-shot commands")
    extension_path: str = key("", doc="a sqlite-vec library of your own")


@value
class Store(Block):
    """Where the index is."""

    driver: str = key("sqlite", choices=("sqlite",), doc="the only store there is")
    path: str = key("", doc="the index file; `{agentId}` is replaced; default <home>/memory/{agentId}.sqlite")
    vector: VectorStore = key(factory=VectorStore)


@value
class Chunking(Block):
    """How notes are cut."""

    tokens: int = key(400, low=1, doc="size of a chunk; a token is 4 characters, a CJK character one token")
    overlap: int = key(80, low=0, doc="tokens repeated from the chunk before; less than `tokens`")


@value
class SessionSync(Block):
    """How much a transcript grows before it is read again."""

    delta_bytes: int = key(100_000, low=0, doc="bytes a transcript grows before it is read again")
    delta_messages: int = key(50, low=0, doc="lines a transcript grows before it is read again")


@value
class Sync(Block):
    """When the index follows the files."""

    on_session_start: bool = key(True, doc="a new agent session first brings the index up to date")
    on_search: bool = key(True, doc="a search first brings changed files into the keyword index")
    watch: bool = key(True, doc="`up` and `watch` follow the files; off: only intervals and commands")
    watch_debounce_ms: int = key(1500, low=0, high=86_400_000, doc="quiet time before a changed file is read")
    interval_minutes: int = key(0, low=0, high=525_600, doc="full look at all files every so often; 0: never")
    sessions: SessionSync = key(factory=SessionSync)


@value
class Mmr(Block):
    """Variety among the hits."""

    enabled: bool = key(False, doc="push near-duplicates down")
    lambda_: float = key(0.7, low=0, high=1, doc="1: relevance only, 0: diversity only")


@value
class TemporalDecay(Block):
    """Age of dated notes."""

    enabled: bool = key(False, doc="older dated notes score less; MEMORY.md never fades")
    half_life_days: float = key(30.0, low=0.001, high=1_000_000, doc="age at which a note scores half")


@value
class Hybrid(Block):
    """How keyword and vector hits become one list."""

    enabled: bool = key(True, doc="off: vector search only (keyword search when there are no vectors)")
    vector_weight: float = key(
        0.5, low=0, high=1, clamp=True, doc="share of the vector score; both weights are scaled to a sum of 1"
    )
    text_weight: float = key(0.5, low=0, high=1, clamp=True, doc="share of the keyword score")
    candidate_multiplier: int = key(
        4, low=1, high=20, clamp=True, doc="candidates of each leg per wanted hit"
    )
    fusion: str = key(
        "weighted", choices=("weighted", "rrf"), doc="weighted sum of scores, or reciprocal ranks"
    )
    mmr: Mmr = key(factory=Mmr)
    temporal_decay: TemporalDecay = key(factory=TemporalDecay)


@value
class Query(Block):
    """What a search returns."""

    max_results: int = key(6, low=1, doc="hits at most")
    min_score: float = key(
        0.35, low=0, high=1, clamp=True, doc="cosine below which a hit of the vector leg alone is cut"
    )
    hybrid: Hybrid = key(factory=Hybrid)


@value
class Cache(Block):
    """Vectors kept for texts that may come back."""

    enabled: bool = key(True, doc="keep vectors that no chunk needs any more")
    max_entries: int = key(
        50_000, low=1, doc="vectors kept that no chunk needs; the least recently used go first"
    )


@value
class Append(Block):
    """Notes that an agent may write with `memory_append`."""

    enabled: bool = key(False, doc="the agent may add entries to its daily log and to MEMORY.md")
    max_chars: int = key(2_000, low=1, high=100_000, doc="characters of one entry at most")


@value
class SessionContext(Block):
    """What an agent reads at the start of a session."""

    max_chars: int = key(12_000, low=1, high=1_000_000, doc="characters of all parts together")


@value
class MemorySearch(Block):
    """`memorySearch` of one agent, defaults and overrides merged."""

    enabled: bool = key(True, doc="off: this agent has no memory search")
    sources: tuple[str, ...] = key(("memory",), choices=SOURCES, doc="what is searched")
    extra_paths: tuple[ExtraPath, ...] = key((), doc="more files and folders beside the workspace")
    experimental: Experimental = key(factory=Experimental)
    provider: str = key("auto", choices=PROVIDERS, doc="who makes the vectors; auto: the first that can work")
    fallback: str = key("none", choices=FALLBACKS, doc="who takes over when the provider fails for good")
    model: str = key("", doc="model of the provider; empty: its default")
    output_dimensionality: int = key(0, low=0, doc="dimensions asked of the provider; 0: its default")
    remote: Remote = key(factory=Remote)
    local: Local = key(factory=Local)
    store: Store = key(factory=Store)
    chunking: Chunking = key(factory=Chunking)
    sync: Sync = key(factory=Sync)
    query: Query = key(factory=Query)
    cache: Cache = key(factory=Cache)
    append: Append = key(factory=Append)
    context: SessionContext = key(factory=SessionContext)


@value
class ProviderEntry(Block):
    """`models.providers.<id>`: where a provider is and how to speak to it."""

    base_url: str = key("", url=True, doc="base address of the provider")
    api_key: str = key(
        "", secret=True, doc="key, used when neither `remote.apiKey` nor the environment has one"
    )
    headers: Mapping[str, str] = key(factory=dict, secret=True, doc="extra headers")


@value
class MemoryFlush(Block):
    """The silent turn that writes down what is worth keeping before a session is compacted."""

    enabled: bool = key(True, doc="off: no session is flushed; on, it also needs `model` or `command`")
    soft_threshold_tokens: int = key(
        4000, low=0, doc="a session is flushed so many tokens before the reserve"
    )
    force_flush_transcript_bytes: int = key(
        2_097_152,
        low=0,
        doc="flush also after so many bytes since the last compaction; 0: never",
    )
    prompt: str = key("", doc="the request at the end of the turn; empty: Memline's own")
    system_prompt: str = key("", doc="the system prompt of the turn; empty: Memline's own")
    model: str = key("", doc="model that takes the turn, at a server that speaks OpenAI's protocol")
    base_url: str = key("", url=True, doc="its address; empty: `models.providers`, else OpenAI's own")
    api_key: str = key("", secret=True, doc="key of that server; empty: OPENAI_API_KEY for OpenAI's own")
    headers: Mapping[str, str] = key(factory=dict, secret=True, doc="extra headers for that server")
    command: tuple[str, ...] = key((), doc="a program that takes the turn instead: text in, text out")
    timeout_seconds: int = key(120, low=1, high=3600, doc="time limit of the turn")


@value
class Compaction(Block):
    """`agents.defaults.compaction`: what Memline needs to know of it."""

    reserve_tokens_floor: int = key(20_000, low=0, doc="tokens of the window that the agent keeps free")
    memory_flush: MemoryFlush = key(factory=MemoryFlush)


@value
class Sessions(Block):
    """How the agent runs its sessions, as far as a flush depends on it."""

    #: `agents.defaults.contextTokens`: the window of a model that says nothing of its own.
    context_tokens: int = 200_000
    #: Windows by `provider/model` and by model, out of `models.providers.*.models`.
    context_windows: Mapping[str, int] = field(default_factory=dict)
    #: `agents.defaults.userTimezone`, an IANA name; empty: that of the machine.
    user_timezone: str = ""
    compaction: Compaction = field(default_factory=Compaction)


@value
class QueueSettings(Block):
    """`queue`: Memline's own block."""

    url: str = key("", url=True, doc="redis://…; empty: everything in one process")


@value
class AgentSettings(Block):
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
    #: `memory.maxInjectedChars`: characters of all snippets of an answer to an agent; 0: no limit.
    max_injected_chars: int = 0
    #: `memory.scope`: in which chats memory may be used; None: in all.
    scope: ChatScope | None = None
    #: Root for `hf:` downloads, queue state and the like.
    home: Path = Path()
    sessions: Sessions = field(default_factory=Sessions)


@value
class Settings(Block):
    """The whole resolved configuration."""

    agents: Mapping[str, AgentSettings]
    default_agent: str
    home: Path
    queue: QueueSettings = field(default_factory=QueueSettings)
    #: `serve`; None: all of it has its default.
    serve: Serve | None = None
    #: `prices`: what the user says of a model's price, by model.
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The file that was read; None when there was none.
    path: Path | None = None
