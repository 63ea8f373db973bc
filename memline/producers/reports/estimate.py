"""Estimate what a reindex would do, cost and take, without doing it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from memline.shared.batches.plan import MAX_BYTES, MAX_ROWS
from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.index import driver, identities, ledger
from memline.shared.index.accounts import Accounts
from memline.shared.index.chunks import text_hash
from memline.shared.providers import LISTED, PROVIDERS, Price, RequestCaps, price_of
from memline.shared.scheduling import health
from memline.shared.scheduling.breaker import Health, tighter
from memline.shared.sources.paths import is_transcript
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.sync.plan import IndexState, make_plan, read_index_state
from memline.shared.sync.read_file import FileReader
from memline.shared.values import asdict, replace, to_json, value
from memline.shared.words import counted

REQUESTS, BATCH = "requests", "batch"

_STATES = "SELECT text_hash, state FROM vectors WHERE identity_id = ? AND state IN ('ready', 'leased')"
_UNREADY_TEXTS = (
    "SELECT text_hash, text FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
    " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND state = 'ready')"
)

#: Bytes of an uploaded row, by the estimate of tokens: four to six of text, and its frame.
BYTES_PER_TOKEN, BYTES_PER_ROW = 6, 256


@value
class Mode:
    """One way to send all texts."""

    #: REQUESTS or BATCH.
    mode: str
    #: Requests, or batches.
    calls: int
    #: What the provider counts these requests as under its limits: each text is one with some (Gemini).
    counted: int = 0
    #: In the currency of the price; None when that is not known.
    cost: float | None
    #: Seconds that it takes at least under the configured limits, or at most by the provider's promise for
    #: batches; None when neither is known.
    seconds: float | None

    def words(self, price: Price | None) -> str:
        """Say calls, cost and time on one line."""
        calls = counted(self.calls, "request" if self.mode == REQUESTS else "batch")
        money = "no price known" if price is None else price.words(self.cost)
        if self.seconds is None:
            time = ""
        elif self.mode == BATCH:
            time = f", within {counted(round(self.seconds / 3600), 'hour')} each"
        else:
            unit, size = ("second", 1) if self.seconds < 120 else ("minute", 60)
            time = f", {counted(round(self.seconds / size), unit)} at least at the limits that are set"
        as_many = f" that count as {self.counted}" if self.counted > self.calls else ""
        return f"by {calls}{as_many}: {money}{time}"


@value
class Estimate:
    """What a reindex would do."""

    agent: str
    provider: str
    model: str
    #: Files to read, and the chunks they give.
    files: int = 0
    chunks: int = 0
    #: Texts to embed, and those that need no request because their vector is in the index.
    texts: int = 0
    cached: int = 0
    #: Estimated tokens of the texts to embed.
    tokens: int = 0
    #: Texts that are in flight at the provider, and paid for.
    in_flight: int = 0
    #: The mode that the settings choose; None when nothing embeds.
    chosen: Mode | None = None
    #: The other one, if the provider has it.
    other: Mode | None = None
    price: Price | None = None

    @property
    def price_hint(self) -> str:
        """The line for the configuration file that adds a price; empty when there is one."""
        row = 'perMillion: 0.02, asOf: "2026-01-31"'
        return "" if self.price else f'prices: {{ "{self.model}": {{ {row} }} }}'

    def words(self) -> list[str]:
        """Say provider, cost and time for a person, a line each."""
        if self.chosen is None:
            return ["nothing to embed, keyword search only"]
        lines = [f"{self.provider} {self.model} {self.chosen.words(self.price)}"]
        if self.other is not None:
            lines.append(f"the other way, {self.other.words(self.price)}")
        if self.price is not None and self.price.as_of:
            source = "list price" if self.price.source == LISTED else "price of the configuration"
            lines.append(f"{source} of {self.price.as_of}; tokens are estimated")
        if self.price is None:
            lines.append(f"add a price to the configuration file: {self.price_hint}")
        return lines

    def to_json(self) -> dict[str, Any]:
        own = ("in_flight", "chosen", "other", "price")
        about = to_json(self, without=own, underWay=self.in_flight)
        chosen, price = self.chosen, self.price
        if chosen is None:
            return {**about, "costUsd": None}
        return {
            **about,
            "costUsd": chosen.cost if price is not None and price.currency == "USD" else None,
            "mode": chosen.mode,
            "requests": chosen.calls if chosen.mode == REQUESTS else 0,
            "countedRequests": chosen.counted,
            "batches": chosen.calls if chosen.mode == BATCH else 0,
            "cost": chosen.cost,
            "currency": price.currency if price else None,
            "seconds": chosen.seconds,
            "otherMode": asdict(self.other) if self.other else None,
            "price": price.to_json() if price else None,
            "priceHint": self.price_hint or None,
        }


def estimate(
    settings: AgentSettings,
    *,
    force: bool = False,
    re_embed: bool = False,
    prices: Mapping[str, Mapping[str, Any]] | None = None,
) -> Estimate:
    """Read and split what a reindex would, and count. Writes nothing and sends nothing.

    `re_embed`: no vector that is there counts; the texts are those of the index, and of files that changed.
    `prices` is that block of the configuration.
    """
    choice = choose(settings)
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
        requests, batches = Health(), Health()
        if reader and choice.identity:
            target = identities.by_key(reader, choice.identity.key)
            states = dict(reader.execute(_STATES, (target.id if target and not re_embed else 0,)))
            # What the index holds without a vector: after a run that was cut, or of a new model.
            # With `re_embed` all of them: no file that is as the index has it need be read.
            of = target.id if target and not re_embed else 0
            for digest, text in reader.execute(_UNREADY_TEXTS, (of,)):
                texts.setdefault(digest, estimate_tokens(text))
            with Accounts.opened(reader, settings) as accounts:
                requests = health.read(accounts, choice.provider)
                batches = health.read(accounts, choice.provider, health.BATCH)
    counts = Counter(states.get(digest) for digest in texts)
    priced = with_costs(
        Estimate(agent=settings.agent, provider=choice.provider, model=choice.model),
        settings,
        choice,
        [tokens for digest, tokens in texts.items() if digest not in states],
        own=prices or {},
        learned=requests,
        is_batch_stopped=batches.is_stopped,
    )
    cached, in_flight = counts["ready"], counts["leased"]
    return replace(
        priced,
        files=len(paths),
        chunks=chunk_count,
        cached=cached,
        in_flight=in_flight,
    )


def with_costs(
    backlog: Estimate,
    settings: AgentSettings,
    choice: Choice,
    texts: Sequence[int],
    *,
    own: Mapping[str, Mapping[str, Any]],
    learned: Health,
    is_batch_stopped: bool,
) -> Estimate:
    """Add what it takes to embed texts of so many tokens each; unchanged when nothing embeds.

    `own`: `prices` of the configuration. `learned`: caps that the provider taught.
    """
    identity, caps = choice.identity, choice.caps
    if identity is None or caps is None:
        return backlog
    provider, batch, tokens = PROVIDERS[choice.provider], settings.memory.remote.batch, sum(texts)
    price = price_of(identity.provider, identity.model, public=not identity.endpoint, own=own)
    max_rows = tighter(tighter(caps.max_rows, learned.max_rows), learned.shrunk_rows)
    caps = replace(caps, max_rows=max_rows, max_tokens=tighter(caps.max_tokens, learned.max_tokens))
    chosen: Mode = _by_request(settings, choice, caps, texts, price)
    other: Mode | None = None
    # Another server may have no Batch API; it counts as having one when batches are enabled.
    if provider.batch_hours and (batch.enabled or not identity.endpoint):
        size = tokens * BYTES_PER_TOKEN + len(texts) * BYTES_PER_ROW
        other = Mode(
            mode=BATCH,
            calls=max(math.ceil(len(texts) / MAX_ROWS), math.ceil(size / MAX_BYTES)),
            cost=price.cost(tokens, by_batch=True) if price else None,
            seconds=provider.batch_hours * 3600.0 or None,
        )
        if batch.enabled and not is_batch_stopped and len(texts) >= batch.min_texts:
            chosen, other = other, chosen
    return replace(backlog, texts=len(texts), tokens=tokens, chosen=chosen, other=other, price=price)


def _by_request(
    settings: AgentSettings, choice: Choice, caps: RequestCaps, texts: Sequence[int], price: Price | None
) -> Mode:
    requests = rows = tokens = 0
    for size in texts:
        if not rows or rows >= caps.max_rows or tokens + size > caps.max_tokens:
            requests, rows, tokens = requests + 1, 0, 0
        rows, tokens = rows + 1, tokens + size
    remote = settings.memory.remote
    counted = len(texts) if PROVIDERS[choice.provider].counts_texts else requests
    limits = ((counted, remote.requests_per_minute), (sum(texts), remote.tokens_per_minute))
    # The limits are meant for the provider that was asked for, not for its fallback.
    minutes = [amount / limit for amount, limit in limits if limit and not choice.fallback_from]
    # The first minute's allowance is sent at once.
    seconds = round(max(max(minutes) - 1, 0.0) * 60, 1) if minutes else None
    cost = price.cost(sum(texts), by_batch=False) if price else None
    return Mode(mode=REQUESTS, calls=requests, counted=counted, cost=cost, seconds=seconds)
