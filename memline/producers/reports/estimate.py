"""Say what a reindex would read, send and cost, without doing it."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import msgspec

from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.index import driver, identities, ledger
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.chunks import text_hash
from memline.shared.providers import LISTED, PROVIDERS, Price, price_of
from memline.shared.scheduling import health
from memline.shared.sources.paths import is_transcript
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.sync.plan import IndexState, make_plan, read_index_state
from memline.shared.sync.read_file import FileReader
from memline.shared.words import counted

_STATES = "SELECT text_hash, state FROM vectors WHERE identity_id = ? AND state IN ('ready', 'leased')"
_UNREADY_TEXTS = (
    "SELECT text_hash, text FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
    " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND state = 'ready')"
)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a reindex would do."""

    agent: str
    provider: str
    model: str
    #: Files to read, and the chunks they give.
    files: int
    chunks: int
    #: Texts to embed, those whose vector is in the index, and those at the provider already.
    texts: int
    cached: int
    in_flight: int
    #: Estimated tokens of the texts to embed.
    tokens: int
    #: How they would be sent: `requests` or `batch`; empty when nothing embeds.
    mode: str = ""
    price: Price | None = None

    @property
    def cost(self) -> float | None:
        """Dollars; None where no price is known."""
        return self.price.cost(self.tokens, by_batch=self.mode == health.BATCH) if self.price else None

    @property
    def price_hint(self) -> str:
        """The line for the configuration file that adds a price; empty when there is one."""
        return "" if self.price or not self.mode else f'prices: {{ "{self.model}": {{ perMillion: 0.02 }} }}'

    def words(self) -> list[str]:
        """Say what would be done and what it costs, a line each."""
        files, chunks = counted(self.files, "file"), counted(self.chunks, "chunk")
        lines = [
            f"{self.agent}: {files} to read, {chunks}; {counted(self.texts, 'text')} to embed"
            f" ({self.cached:,} more are cached), about {counted(self.tokens, 'token')}"
        ]
        if self.in_flight:
            lines.append(f"  {counted(self.in_flight, 'text', 'are')} at the provider already")
        if not self.mode:
            return [*lines, "  nothing to embed, keyword search only"]
        price = self.price.words(self.cost) if self.price else "no price known"
        by = "in batches" if self.mode == health.BATCH else "in requests"
        lines.append(f"  {self.provider} {self.model} {by}: {price}")
        if self.price is not None and self.price.as_of:
            source = "list price" if self.price.source == LISTED else "price of the configuration"
            lines.append(f"  {source} of {self.price.as_of}; tokens are estimated")
        if self.price_hint:
            lines.append(f"  add a price to the configuration file: {self.price_hint}")
        return lines

    def to_json(self) -> dict[str, Any]:
        names = ("provider", "model", "files", "chunks", "texts", "cached", "tokens", "mode")
        return {
            "agentId": self.agent,
            **{name: getattr(self, name) for name in names},
            "underWay": self.in_flight,
            "costUsd": self.cost,
            "price": self.price.to_json() if self.price else None,
            "priceHint": self.price_hint or None,
        }


def estimate(settings: AgentSettings, *, force: bool = False) -> Estimate:
    """Read and split what a reindex would, and count. Writes nothing and sends nothing."""
    choice, batch = choose(settings), settings.memory.remote.batch
    with driver.reading_if_any(settings.index_path) as reader:
        plan = make_plan(settings, choice, read_index_state(reader) if reader else IndexState())
        paths = plan.changes.to_read(force=force)
        file_reader = FileReader(settings, clock=SystemClock())
        texts: dict[bytes, int] = {}
        chunk_count = 0
        for path in paths:
            entry = ledger.entry(reader, path) if reader and is_transcript(path) else None
            chunks = file_reader.read(path, entry=entry, force=force).chunks or ()
            chunk_count += len(chunks)
            texts.update((text_hash(chunk.text), estimate_tokens(chunk.text)) for chunk in chunks)
        states: dict[bytes, str] = {}
        has_api = choice.identity is not None and PROVIDERS[choice.provider].batch_hours > 0
        has_batches = batch.enabled and has_api
        if reader and choice.identity:
            target = identities.by_key(reader, choice.identity.key)
            states = dict(reader.execute(_STATES, (target.id if target else 0,)))
            # What the index has without a vector: after a run that was cut, or of a new model.
            for digest, text in reader.execute(_UNREADY_TEXTS, (target.id if target else 0,)):
                texts.setdefault(digest, estimate_tokens(text))
            with closing(AccountFile(settings.account_path)) as file:
                accounts = Accounts(index=reader, file=file)
                has_batches &= not health.read(accounts, choice.provider, health.BATCH).is_stopped
    if choice.identity is None:
        texts.clear()
    counts = Counter(states.get(digest) for digest in texts)
    mode, price = "", None
    if (identity := choice.identity) is not None:
        mode = health.BATCH if has_batches and counts[None] >= batch.min_texts else health.REQUESTS
        public, own = not identity.endpoint, settings.prices
        price = price_of(identity.provider, identity.model, public=public, own=own)
    return Estimate(
        agent=settings.agent,
        provider=choice.provider,
        model=choice.model,
        files=len(paths),
        chunks=chunk_count,
        texts=counts[None],
        cached=counts["ready"],
        in_flight=counts["leased"],
        tokens=sum(tokens for digest, tokens in texts.items() if digest not in states),
        mode=mode,
        price=price,
    )
