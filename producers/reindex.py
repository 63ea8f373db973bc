"""What a reindex would do and cost, found out without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producers.costs import Costs, costs
from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice, choose
from shared.index import driver, health, identity, ledger
from shared.index.chunks import text_hash
from shared.index.health import Health
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
    #: Texts that are at the provider already, and paid for.
    under_way: int
    #: None when nothing embeds.
    costs: Costs | None

    def words(self) -> list[str]:
        """Provider, cost and time for a person, a line each."""
        if self.costs is None:
            return ["nothing to embed, keyword search only"]
        first, *rest = self.costs.words()
        return [f"{self.provider} {self.model} {first}", *rest]

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
            "underWay": self.under_way,
            **(self.costs.to_json() if self.costs else {"costUsd": None}),
        }


def estimate(
    settings: AgentSettings,
    *,
    force: bool = False,
    prices: Mapping[str, Mapping[str, Any]] | None = None,
    clock: Clock | None = None,
) -> Estimate:
    """Read and split what a reindex would, and count; writes nothing and calls nobody.

    `prices` is that block of the configuration.
    """
    clock = clock or SystemClock()
    choice = choose(settings)
    with driver.reading_if_any(settings.index_path) as reader:
        return _estimate(settings, choice, reader, force, prices or {}, clock)


def _estimate(
    settings: AgentSettings,
    choice: Choice,
    reader: Connection | None,
    force: bool,
    prices: Mapping[str, Mapping[str, Any]],
    clock: Clock,
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
    under_way: set[bytes] = set()
    learned, is_batch_stopped = Health(), False
    if reader and choice.identity:
        _add_waiting(reader, texts, choice.identity)
        ready = _in_state(reader, choice.identity, "ready") & texts.keys()
        under_way = _in_state(reader, choice.identity, "leased") & texts.keys()
        learned = health.read(reader, choice.provider)
        by_batch = health.read(reader, choice.provider, health.BATCH)
        is_batch_stopped = by_batch.paused or by_batch.by_hand
    at_hand = ready | under_way
    missing = [tokens for digest, tokens in texts.items() if digest not in at_hand]
    found = costs(settings, choice, missing, own=prices, learned=learned, is_batch_stopped=is_batch_stopped)
    return Estimate(
        agent=settings.agent,
        provider=choice.provider,
        model=choice.model,
        files=len(paths),
        chunks=chunk_count,
        texts=len(missing) if found else 0,
        cached=len(ready),
        tokens=sum(missing) if found else 0,
        under_way=len(under_way),
        costs=found,
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


def _in_state(reader: Connection, wanted: Identity, state: str) -> set[bytes]:
    row = identity.by_key(reader, wanted.key)
    return {
        digest
        for (digest,) in reader.execute(
            "SELECT text_hash FROM vectors WHERE identity_id = ? AND state = ?", (row.id if row else 0, state)
        )
    }
