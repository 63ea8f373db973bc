"""What a reindex would do and cost, found out without doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice, choose
from shared.embedders.prices import cost
from shared.index import driver, identity, ledger
from shared.index.chunks import text_hash
from shared.index.intake import Intake
from shared.index.plan import Known, ledger_of, look
from shared.sources.tokens import estimate_tokens
from shared.sources.transcript_names import is_transcript

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.embedders.protocol import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a reindex would do."""

    agent: str
    provider: str
    model: str
    #: Files to read, and the chunks they give.
    files: int
    chunks: int
    #: Texts to embed, and those that need no request because their vector is known.
    texts: int
    cached: int
    #: Estimated tokens of the texts to embed.
    tokens: int
    #: US dollars; None when there is no price to know (own server, keyword search only).
    cost_usd: float | None

    @property
    def cost_words(self) -> str:
        if self.provider == "none":
            return "nothing to embed, keyword search only"
        if self.cost_usd is None:
            return "no price known"
        return f"about ${self.cost_usd:.4f} at list price"

    def to_json(self) -> dict[str, Any]:
        return {
            "agentId": self.agent,
            "provider": self.provider,
            "model": self.model,
            "files": self.files,
            "chunks": self.chunks,
            "texts": self.texts,
            "cached": self.cached,
            "tokens": self.tokens,
            "costUsd": self.cost_usd,
        }


def estimate(settings: AgentSettings, *, force: bool = False, clock: Clock | None = None) -> Estimate:
    """Read and split what a reindex would, and count; writes nothing and calls nobody."""
    clock = clock or SystemClock()
    choice = choose(settings)
    with driver.reading_if_any(settings.index_path) as reader:
        return _estimate(settings, choice, reader, force, clock)


def _estimate(
    settings: AgentSettings, choice: Choice, reader: Connection | None, force: bool, clock: Clock
) -> Estimate:
    plan = look(settings, choice, ledger_of(reader) if reader else Known())
    paths = plan.changes.announced(force=force)
    intake = Intake(settings, clock=clock)
    texts: dict[bytes, int] = {}
    chunk_count = 0
    for path in paths:
        known = ledger.entry(reader, path) if reader and is_transcript(path) else None
        for row in intake.look(path, known=known, force=force):
            chunk_count += len(row.chunks or ())
            texts.update((text_hash(chunk.text), estimate_tokens(chunk.text)) for chunk in row.chunks or ())
    ready: set[bytes] = set()
    if reader and choice.identity:
        _add_waiting(reader, texts, choice.identity)
        ready = {digest for digest in texts if _is_ready(reader, digest, choice.identity)}
    to_embed = [tokens for digest, tokens in texts.items() if digest not in ready] if choice.identity else []
    tokens = sum(to_embed)
    is_public = choice.identity is not None and not choice.identity.endpoint
    return Estimate(
        agent=settings.agent,
        provider=choice.provider,
        model=choice.model,
        files=len(paths),
        chunks=chunk_count,
        texts=len(to_embed),
        cached=len(ready),
        tokens=tokens,
        cost_usd=cost(choice.model, tokens) if is_public else None,
    )


def _add_waiting(reader: Connection, texts: dict[bytes, int], wanted: Identity) -> None:
    """Texts of the index as it is that have no vector of `wanted` yet (a run that was cut, a new model)."""
    row = identity.by_key(reader, wanted.key)
    for digest, text in reader.execute(
        "SELECT text_hash, text FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND state = 'ready')",
        (row.id if row else 0,),
    ):
        texts.setdefault(digest, estimate_tokens(text))


def _is_ready(reader: Connection, digest: bytes, wanted: Identity) -> bool:
    row = identity.by_key(reader, wanted.key)
    found = reader.execute(
        "SELECT 1 FROM vectors WHERE identity_id = ? AND text_hash = ? AND state = 'ready'",
        (row.id if row else 0, digest),
    ).fetchone()
    return found is not None
