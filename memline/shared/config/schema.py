"""Declare every configuration key with its type, its default and its limits.

Attribute names are the snake_case of the JSON5 keys (`max_results` is `maxResults`); a field of a nested
block type is an object in the file. `ConfigFile` is the whole file but for what repeats: `MemorySearch`
(defaults and agents), `AgentEntry`, `ProviderEntry` and `PriceEntry`; `installation.py` has the keys that are
not of an agent. Defaults follow the original (`agents.defaults.memorySearch`) except where `docs/config.md`
says otherwise. `check.py` checks a file against these blocks, `load.py` makes the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from memline.shared.config.config_file import SettingsFile
from memline.shared.config.installation import Ceilings, ChatScope, MemoryBlock, Qmd, QueueSettings, Serve
from memline.shared.config.keys import WARN_IF_NEAR, Block, Bytes, key
from memline.shared.config.transcript_programs import READ_IN_PLACE
from memline.shared.note_names import ANY_MARKDOWN
from memline.shared.providers import PROVIDERS
from memline.shared.values import field, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FALLBACKS = (*PROVIDERS, "none")
PROVIDER_CHOICES = ("auto", *FALLBACKS)

#: Keys of the original's `memorySearch` that would change nothing here, and the reason.
WITHOUT_EFFECT = {
    "multimodal": "Memline indexes text alone",
    "store.fts": "Chinese, Japanese and Korean text is found without a tokenizer setting",
    "inputType": "documents and questions are told apart by the provider's own rules",
    "queryInputType": "documents and questions are told apart by the provider's own rules",
    "documentInputType": "documents and questions are told apart by the provider's own rules",
    "rememberAcrossConversations": "transcripts are opened by experimental.sessionMemory and sources",
    "sync.sessions.postCompactionForce": "a transcript is read again whenever it has grown or shrunk",
}

#: Advice for providers of the original's later versions, which speak OpenAI's protocol.
_COMPATIBLE = dict.fromkeys(
    ("lmstudio", "openai-compatible", "openrouter", "vllm", "deepinfra"),
    'write "openai" and the address of that service as remote.baseUrl (it speaks the same protocol)',
)

#: Its name below the home, see `shared.index.accounts`.
ACCOUNT_FILE = "accounts.sqlite"

#: An agent's id becomes part of file names, so it holds nothing that means something in a path.
AGENT_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"


@value
class ExtraPath(Block):
    """One entry of `extraPaths`: a file, or a folder whose files match `pattern`."""

    path: str = key("", required=True, doc="a file or folder, relative to the workspace")
    pattern: str = key(ANY_MARKDOWN, doc="glob of the files in a folder")


@value
class Experimental(Block):
    """Features that have to be allowed before they are used."""

    session_memory: bool = key(False, doc="allow the source `sessions` (transcripts)")


@value
class Batch(Block):
    """The provider's asynchronous Batch API."""

    enabled: bool = key(False, doc="use the provider's Batch API for large backlogs")
    wait: bool = key(True, doc="`index` waits for open batches")
    min_texts: int = key(50, low=1, doc="texts that are worth a batch; fewer are sent in requests")
    concurrency: int = key(2, low=1, doc="batches open at a time")
    poll_interval_ms: int = key(2000, low=0, high=86_400_000, doc="first interval between two polls")
    timeout_minutes: int = key(60, low=1, high=10_080, doc="give up on a batch after this long")
    failure_limit: int = key(2, low=1, high=1000, doc="batches that fail in a row until requests take over")
    cool_down_minutes: int = key(30, low=0, high=10_080, doc="until a batch is tried again; it doubles")


@value
class Remote(Block):
    """Address, key and limits of a remote provider."""

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

    model_path: str = key("", doc="a GGUF or ONNX file or folder, or hf:owner/repo/file")
    model_cache_dir: str = key("", doc="where downloaded models are kept")


@value
class VectorStore(Block):
    """Vector search inside SQLite."""

    enabled: bool = key(True, doc="use sqlite-vec for vector search in one-shot commands")
    extension_path: str = key("", doc="a sqlite-vec library of your own")


@value
class Store(Block):
    """The place of the index."""

    driver: str = key("sqlite", choices=("sqlite",), doc="the only store")
    path: str = key("", doc="the index file; `{agentId}` is replaced; default <home>/memory/{agentId}.sqlite")
    vector: VectorStore = key(factory=VectorStore)


@value
class Chunking(Block):
    """The size of chunks."""

    tokens: int = key(400, low=1, doc="size of a chunk; a token is 4 characters, a CJK character one token")
    overlap: int = key(80, low=0, doc="tokens repeated from the chunk before; less than `tokens`")


@value
class SessionSync(Block):
    """The growth of a transcript before it is read again."""

    delta_bytes: int = key(100_000, low=0, doc="bytes a transcript grows before it is read again")
    delta_messages: int = key(50, low=0, doc="lines a transcript grows before it is read again")


@value
class Sync(Block):
    """The moments at which the index follows the files."""

    on_session_start: bool = key(True, doc="a new agent session first brings the index up to date")
    on_search: bool = key(True, doc="a search first brings changed files into the keyword index")
    watch: bool = key(True, doc="`up` and `watch` follow the files; off: only intervals and commands")
    watch_debounce_ms: int = key(1500, low=0, high=86_400_000, doc="quiet time before a changed file is read")
    interval_minutes: int = key(0, low=0, high=525_600, doc="between two full scans; 0: never")
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
    """The fusion of keyword and vector hits. The weights are scaled to a sum of 1."""

    enabled: bool = key(True, doc="off: vector search only (keyword search when there are no vectors)")
    vector_weight: float = key(0.5, low=0, high=1, clamp=True, doc="share of the vector score")
    text_weight: float = key(0.5, low=0, high=1, clamp=True, doc="share of the keyword score")
    candidate_multiplier: int = key(4, low=1, high=20, clamp=True, doc="times 25 of each retriever")
    late: bool = key(True, doc="compare token by token as well, where a local model gave token vectors")
    fusion: str = key("weighted", choices=("weighted", "rrf"), doc="sum of scores, or reciprocal ranks")
    mmr: Mmr = key(factory=Mmr)
    temporal_decay: TemporalDecay = key(factory=TemporalDecay)


@value
class Query(Block):
    """The number and quality of hits."""

    max_results: int = key(6, low=1, doc="hits at most")
    min_score: float = key(0.35, low=0, high=1, clamp=True, doc="least cosine of a vector-only hit")
    hybrid: Hybrid = key(factory=Hybrid)


@value
class Cache(Block):
    """Vectors kept for texts that may return."""

    enabled: bool = key(True, doc="keep vectors that no chunk needs any more")
    max_entries: int = key(50_000, low=1, doc="cached vectors at most, by least recent use")


@value
class Append(Block):
    """Notes that an agent may write with `memory_append`."""

    enabled: bool = key(False, doc="the agent may add entries to its daily log and to MEMORY.md")
    max_chars: int = key(2_000, low=1, high=100_000, doc="characters of one entry at most")


@value
class SessionContext(Block):
    """The context of a new session."""

    max_chars: int = key(12_000, low=1, high=1_000_000, doc="characters of all parts together")


@value
class MemorySearch(Block):
    """`memorySearch` of one agent, defaults and overrides merged."""

    without_effect = WITHOUT_EFFECT

    enabled: bool = key(True, doc="off: this agent has no memory search")
    sources: tuple[str, ...] = key(("memory",), choices=("memory", "sessions"), doc="what is searched")
    extra_paths: tuple[ExtraPath, ...] = key((), of=ExtraPath, shorthand="path", doc="more files")
    exclude: tuple[str, ...] = key((), doc="files and folders that are left out, as in .gitignore")
    ignore_files: bool = key(True, doc="`.gitignore` and `.ignore` in the folders that are read count")
    experimental: Experimental = key(factory=Experimental)
    transcripts: tuple[str, ...] = key(
        ("openclaw",), choices=READ_IN_PLACE, doc="programs whose past sessions are read"
    )
    provider: str = key("auto", choices=PROVIDER_CHOICES, advice=_COMPATIBLE, doc="embedding provider")
    fallback: str = key("none", choices=FALLBACKS, advice=_COMPATIBLE, doc="when the first one fails")
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
    """`models.providers.<id>`: address, key and headers of a provider."""

    unknown = WARN_IF_NEAR

    base_url: str = key("", url=True, doc="base address of the provider")
    api_key: str = key("", secret=True, doc="used after `remote.apiKey` and the environment")
    headers: Mapping[str, str] = key(factory=dict, secret=True, doc="extra headers")


@value
class MemoryFlush(Block):
    """The silent request that saves what is worth keeping before a session is compacted."""

    unknown = WARN_IF_NEAR
    enabled: bool = key(True, doc="off: no session is flushed; on, it also needs `model`")
    soft_threshold_tokens: int = key(4000, low=0, doc="a session is flushed this far before the reserve")
    force_flush_transcript_bytes: Bytes = key(2_097_152, doc="bytes after a compaction; 0: never")
    prompt: str = key("", doc="the request after the conversation; empty: Memline's own")
    system_prompt: str = key("", doc="the system prompt; empty: Memline's own")
    model: str = key("", doc="chat model, at a server that speaks OpenAI's protocol")
    base_url: str = key("", url=True, doc="its address; empty: `models.providers`, else OpenAI's own")
    api_key: str = key("", secret=True, doc="key of that server; empty: OPENAI_API_KEY for OpenAI's own")


@value
class Compaction(Block):
    """`agents.defaults.compaction`: the keys that a flush depends on."""

    unknown = WARN_IF_NEAR
    beside = ("reserveTokens",)

    reserve_tokens_floor: int = key(20_000, low=0, doc="tokens of the window that the agent keeps free")
    memory_flush: MemoryFlush = key(factory=MemoryFlush)


@value
class AgentDefaults(Block):
    """`agents.defaults`, beside `memorySearch`."""

    unknown = WARN_IF_NEAR
    beside = ("memorySearch",)

    workspace: str = key("", doc="folder of the notes")
    context_tokens: int = key(200_000, low=1, doc="window of a model that names none, in tokens")
    user_timezone: str = key("", doc="IANA time zone of notes; empty: that of the machine")
    compaction: Compaction = key(factory=Compaction)


@value
class AgentEntry(Block):
    """One entry of `agents.list`, beside `memorySearch`."""

    unknown = WARN_IF_NEAR
    beside = ("memorySearch", "memory")

    id: str = key(
        "",
        required=True,
        pattern=AGENT_ID,
        allowed="up to 64 letters, digits, - and _, the first a letter or digit",
        doc="name of the agent, such as main",
    )
    default: bool = key(False, doc="the agent of commands that name none")
    workspace: str = key("", doc="folder of its notes")


@value
class AgentsBlock(Block):
    """`agents`."""

    unknown = WARN_IF_NEAR
    beside = ("list", "entries")

    defaults: AgentDefaults = key(factory=AgentDefaults)


@value
class ConfigFile(Block):
    """The whole file, but for the blocks that repeat; other keys in it are OpenClaw's."""

    unknown = WARN_IF_NEAR
    beside = ("memorySearch", "models", "prices")

    agents: AgentsBlock = key(factory=AgentsBlock)
    memory: MemoryBlock = key(factory=MemoryBlock)
    queue: QueueSettings = key(factory=QueueSettings)
    serve: Serve = key(factory=Serve)
    limits: Ceilings = key(factory=Ceilings)


@value
class Sessions(Block):
    """The sessions of the agent, as far as a flush depends on them."""

    #: `agents.defaults.contextTokens`: the window of a model that names none.
    context_tokens: int = 200_000
    #: Windows by `provider/model` and by model, out of `models.providers.*.models`.
    context_windows: Mapping[str, int] = field(default_factory=dict)
    #: `agents.defaults.userTimezone`, an IANA name; empty: that of the machine.
    user_timezone: str = ""
    compaction: Compaction = field(default_factory=Compaction)


@value
class AgentSettings(Block):
    """Hold everything one agent needs, resolved: the settings of workers, producers and search."""

    agent: str
    workspace: Path
    #: Where the workspace comes from: a place in the file, a variable, an option, or how it was found.
    workspace_origin: str = ""
    index_path: Path
    #: State directory of the original's files (session transcripts are below it).
    state_dir: Path
    #: Where programs keep their sessions, by the names in `memory.transcripts`.
    transcript_places: Mapping[str, Path] = field(default_factory=dict)
    memory: MemorySearch = field(default_factory=MemorySearch)
    #: `models.providers` by the ids there (`openai`, `google` …), and keys of the environment by ours.
    providers: Mapping[str, ProviderEntry] = field(default_factory=dict)
    environment_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Whether keys that the original has saved may be used: the configuration is its own.
    has_saved_keys: bool = False
    #: Those of `memory`.
    citations: str = "auto"
    max_injected_chars: int = 0
    private_in_groups: bool = False
    scope: ChatScope | None = None
    backend: str = "builtin"
    qmd: Qmd = field(default_factory=Qmd)
    #: The variables that programs of others get: none that holds a key.
    program_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Root for `hf:` downloads, queue state and the like.
    home: Path = Path()
    sessions: Sessions = field(default_factory=Sessions)
    #: `limits` and `prices`: what all agents may spend together, and what a model costs.
    limits: Ceilings = field(default_factory=Ceilings)
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def account_path(self) -> Path:
        """The file of what all agents of a home share about their provider accounts."""
        # Without a home, as in tests, beside the index.
        folder = self.home if self.home.is_absolute() else self.index_path.parent
        return folder / ACCOUNT_FILE


@value
class Settings(Block):
    """Hold the whole resolved configuration."""

    agents: Mapping[str, AgentSettings]
    default_agent: str
    home: Path
    queue: QueueSettings = field(default_factory=QueueSettings)
    serve: Serve = field(default_factory=Serve)
    limits: Ceilings = field(default_factory=Ceilings)
    #: `prices`: the user's own prices, by model.
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The file that was read; None without one.
    path: Path | None = None
    #: The same file, or the place for one, to tell whether it was changed since.
    file: SettingsFile = field(default_factory=SettingsFile)

    @property
    def account_path(self) -> Path:
        """The file of what all agents share about their provider accounts."""
        return self.home / ACCOUNT_FILE
