"""Declare the keys of an agent and the whole file, each with its type, its limits and its default.

Defaults follow the original (`agents.defaults.memorySearch`) except where `docs/config.md` says otherwise.
`check.py` checks a file against these blocks, `load.py` makes the settings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, field
from msgspec.structs import force_setattr

from memline.shared.config.environment import PROGRAMS
from memline.shared.config.installation import (
    NO_QUEUE,
    Block,
    Ceilings,
    ChatScope,
    Count,
    Line,
    Milliseconds,
    OpenBlock,
    Positive,
    PriceEntry,
    Qmd,
    QueueAddress,
    Serve,
    Share,
    Text,
    one_of,
)
from memline.shared.errors import ConfigError
from memline.shared.note_names import ANY_MARKDOWN
from memline.shared.providers import PROVIDERS

FALLBACKS = (*PROVIDERS, "none")
PROVIDER_CHOICES = ("auto", *FALLBACKS)

#: Its name below the home, see `shared.index.accounts`.
ACCOUNT_FILE = "accounts.sqlite"

#: An agent's id becomes part of file names, so it holds nothing that means something in a path.
AGENT_ID = Meta(
    pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z",
    description="up to 64 letters, digits, - and _, with a letter or digit first",
)


class ExtraPath(Block, frozen=True):
    """One entry of `extraPaths`: a file, or a folder whose files match `pattern`."""

    path: Text  # relative to the workspace
    pattern: str = ANY_MARKDOWN


class Experimental(Block, frozen=True):
    session_memory: bool = False  # the source `sessions`


class Batch(Block, frozen=True):
    enabled: bool = False
    wait: bool = True  # `index` waits for open batches
    min_texts: Positive = 50
    concurrency: Positive = 2  # open batches at a time
    poll_interval_ms: Milliseconds = 2000
    timeout_minutes: Annotated[int, Meta(ge=1, le=10_080)] = 60
    failure_limit: Annotated[int, Meta(ge=1, le=1000)] = 2  # in a row, until requests take over
    cool_down_minutes: Annotated[int, Meta(ge=0, le=10_080)] = 30  # until a batch is tried again; it doubles


class Remote(Block, frozen=True):
    """Address, key and limits of a remote provider. 0 is the provider's own limit."""

    base_url: str = ""
    api_key: Line = ""
    headers: Mapping[str, Line] = {}
    batch: Batch = Batch()
    max_rows: Count = 0  # texts in a request
    requests_per_minute: Count = 0  # of all workers
    tokens_per_minute: Count = 0  # of all workers
    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 60


class Local(Block, frozen=True):
    model_path: Text = ""  # a GGUF or ONNX file or folder, or hf:owner/repo/file
    model_cache_dir: Text = ""


class VectorStore(Block, frozen=True):
    enabled: bool = True
    extension_path: Text = ""


class Store(Block, frozen=True):
    driver: Annotated[str, one_of("sqlite")] = "sqlite"
    path: Text = ""
    vector: VectorStore = VectorStore()


class Chunking(Block, frozen=True):
    """The size of chunks in tokens: one is 4 characters, or a CJK character."""

    tokens: Positive = 400
    overlap: Count = 80  # at most one less than `tokens`

    def __post_init__(self) -> None:
        force_setattr(self, "overlap", min(self.overlap, self.tokens - 1))


class SessionSync(Block, frozen=True):
    delta_bytes: Count = 100_000
    delta_messages: Count = 50  # lines


class Sync(Block, frozen=True):
    on_session_start: bool = True
    on_search: bool = True
    watch: bool = True
    watch_debounce_ms: Milliseconds = 1500
    interval_minutes: Annotated[int, Meta(ge=0, le=525_600)] = 0  # between two full scans; 0: never
    sessions: SessionSync = SessionSync()


class Mmr(Block, frozen=True):
    enabled: bool = False
    lambda_: Share = field(default=0.7, name="lambda")  # 1: relevance only, 0: diversity only


class TemporalDecay(Block, frozen=True):
    """Age of dated notes; MEMORY.md never fades."""

    enabled: bool = False
    half_life_days: Annotated[float, Meta(ge=0.001, le=1_000_000)] = 30.0


class Hybrid(Block, frozen=True):
    """The sum of keyword and vector scores. The weights are scaled to a sum of 1."""

    enabled: bool = True  # off: vector search only (keyword search when there are no vectors)
    vector_weight: Share = 0.5
    text_weight: Share = 0.5
    candidate_multiplier: Annotated[int, Meta(ge=1, le=20)] = 4  # times 25 of each retriever
    fusion: Annotated[str, one_of("weighted", "rrf")] = "weighted"
    mmr: Mmr = Mmr()
    temporal_decay: TemporalDecay = TemporalDecay()

    def __post_init__(self) -> None:
        weights = self.vector_weight, self.text_weight
        # As in the original, two weights of 0 are no weights.
        vector, text = weights if any(weights) else (0.5, 0.5)
        force_setattr(self, "vector_weight", vector / (vector + text))
        force_setattr(self, "text_weight", text / (vector + text))


class Query(Block, frozen=True):
    max_results: Positive = 6
    min_score: Share = 0.35  # least cosine of a vector-only hit
    hybrid: Hybrid = Hybrid()


class Cache(Block, frozen=True):
    enabled: bool = True
    max_entries: Positive = 50_000


class Append(Block, frozen=True):
    enabled: bool = False
    max_chars: Annotated[int, Meta(ge=1, le=100_000)] = 2_000  # of one entry


class MemorySearch(Block, frozen=True):
    """`memorySearch` of one agent, defaults and overrides merged."""

    enabled: bool = True
    sources: tuple[Annotated[str, one_of("memory", "sessions")], ...] = ("memory",)
    extra_paths: tuple[ExtraPath, ...] = ()
    exclude: tuple[Text, ...] = ()  # as in .gitignore
    ignore_files: bool = True  # `.gitignore` and `.ignore` in the folders that are read count
    experimental: Experimental = Experimental()
    transcripts: tuple[Annotated[str, one_of(*PROGRAMS)], ...] = ("openclaw",)
    provider: Annotated[str, one_of(*PROVIDER_CHOICES)] = "auto"
    fallback: Annotated[str, one_of(*FALLBACKS)] = "none"
    model: str = ""
    output_dimensionality: Count = 0  # 0: that of the model
    remote: Remote = Remote()
    local: Local = Local()
    store: Store = Store()
    chunking: Chunking = Chunking()
    sync: Sync = Sync()
    query: Query = Query()
    cache: Cache = Cache()
    append: Append = Append()


class ProviderEntry(OpenBlock, frozen=True):
    """`models.providers.<id>`: address, key and headers of a provider."""

    base_url: str = ""
    api_key: Line = ""  # used after `remote.apiKey` and the environment
    headers: Mapping[str, Line] = {}


class MemoryFlush(OpenBlock, frozen=True):
    """The silent request that saves what is worth keeping before a session is compacted; it needs `model`."""

    enabled: bool = True
    soft_threshold_tokens: Count = 4000
    force_flush_transcript_bytes: Count = 2_097_152  # after a compaction; 0: never
    prompt: str = ""
    system_prompt: str = ""
    model: str = ""  # at a server that speaks OpenAI's protocol
    base_url: str = ""  # empty: `models.providers`, else OpenAI's own
    api_key: Line = ""  # empty: OPENAI_API_KEY for OpenAI's own


class Compaction(OpenBlock, frozen=True):
    reserve_tokens_floor: Count = 20_000  # of the window, kept free
    memory_flush: MemoryFlush = MemoryFlush()


class AgentDefaults(OpenBlock, frozen=True):
    """`agents.defaults`, without `memorySearch`."""

    workspace: Text = ""
    context_tokens: Positive = 200_000  # window of a model that names none
    user_timezone: str = ""  # IANA name; empty: that of the machine
    compaction: Compaction = Compaction()
    system_agent: Mapping[str, Any] = {}  # `agentId` owns what names no agent, in the newest layout


class AgentEntry(OpenBlock, frozen=True):
    """One entry of `agents.list`, or of `agents.entries`, where its id is the key; without `memorySearch`."""

    id: Annotated[str, AGENT_ID]
    default: bool = False
    workspace: Text = ""


class AgentsBlock(Block, frozen=True):
    defaults: AgentDefaults = AgentDefaults()
    list: tuple[AgentEntry, ...] = ()
    entries: Mapping[str, AgentEntry] = {}


class MemoryBlock(OpenBlock, frozen=True):
    """`memory`, without `search`."""

    backend: Annotated[str, one_of("builtin", "qmd")] = "builtin"
    qmd: Qmd = Qmd()
    citations: Annotated[str, one_of("auto", "on", "off")] = "auto"
    private_in_groups: bool = False  # groups may use MEMORY.md and past conversations too, as in OpenClaw
    scope: ChatScope | None = None  # absent: all chats may use memory


class ModelsBlock(OpenBlock, frozen=True):
    #: By the ids of OpenClaw (`openai`, `google` …), those alone that Memline can use.
    providers: Mapping[str, ProviderEntry] = {}


class ConfigFile(OpenBlock, frozen=True):
    """The whole file but `memorySearch`, of which each agent has its own; other keys in it are OpenClaw's."""

    agents: AgentsBlock = AgentsBlock()
    memory: MemoryBlock = MemoryBlock()
    models: ModelsBlock = ModelsBlock()
    queue: QueueAddress = NO_QUEUE
    serve: Serve = Serve()
    limits: Ceilings = Ceilings()
    prices: Mapping[str, PriceEntry] = {}  # by `provider/model` or `model`


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Hold everything one agent needs, resolved: the settings of workers, producers and search."""

    agent: str
    workspace: Path
    #: Where the workspace comes from: a place in the file, a variable, an option, or how it was found.
    workspace_origin: str = ""
    #: Why there is no workspace: an error for all but showing it and calling the provider.
    workspace_fault: ConfigError | None = None
    index_path: Path
    #: State directory of the original's files (session transcripts are below it).
    state_dir: Path
    #: Where programs keep their sessions, by the names in `memorySearch.transcripts`.
    transcript_places: Mapping[str, Path] = {}
    memory: MemorySearch = MemorySearch()
    #: What the file says for all agents.
    content: ConfigFile = ConfigFile()
    #: Keys of the environment, by our names of providers.
    environment_keys: Mapping[str, str] = {}
    #: Whether keys that the original has saved may be used: the configuration is its own.
    has_saved_keys: bool = False
    #: The variables that programs of others get: none that holds a key.
    program_environment: Mapping[str, str] = {}
    #: Root for `hf:` downloads, queue state and the like.
    home: Path = Path()

    @property
    def account_path(self) -> Path:
        """The file of what all agents of a home share about their provider accounts."""
        # Without a home, as in tests, beside the index.
        folder = self.home if self.home.is_absolute() else self.index_path.parent
        return folder / ACCOUNT_FILE

    def with_workspace(self) -> Self:
        """Return these settings. Raises ConfigError where they have no workspace."""
        if self.workspace_fault is not None:
            raise self.workspace_fault
        return self

    def __repr__(self) -> str:
        # Keys of the environment stay out of every log and traceback.
        return f"AgentSettings({self.agent!r}, {self.workspace!s})"
