"""How a backlog of texts would go out, by requests or by batches: how many, for how much, how long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.config.schema import AgentSettings
from shared.embedders.batch import BatchCaps
from shared.embedders.choice import Choice
from shared.embedders.prices import FREE, LISTED, Price, price_of
from shared.embedders.protocol import RequestCaps
from shared.index.health import Health, tighter

REQUESTS, BATCH = "requests", "batch"

#: Hours within which a provider promises to finish a batch.
BATCH_HOURS = {"openai": 24, "gemini": 24, "voyage": 12}

#: Bytes of an uploaded row, by the estimate of tokens: four to six of text, and its frame.
BYTES_PER_TOKEN, BYTES_PER_ROW = 6, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way for all texts to go out."""

    #: REQUESTS or BATCH.
    mode: str
    #: Requests, or batches.
    calls: int
    #: In the currency of the price; None when that is not known.
    cost: float | None
    #: Seconds that it takes at least under the limits that are set, or at most by the provider's promise for
    #: batches; None when nothing says.
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        return {"mode": self.mode, "calls": self.calls, "cost": self.cost, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The way that the settings choose, and the other one if the provider has it."""

    way: Way
    other: Way | None
    price: Price | None
    #: How a price is added when there is none: the line for the configuration file.
    hint: str

    def to_json(self) -> dict[str, Any]:
        price = self.price
        in_dollars = price is not None and price.currency == "USD"
        return {
            "costUsd": self.way.cost if in_dollars else None,
            "mode": self.way.mode,
            "requests": self.way.calls if self.way.mode == REQUESTS else 0,
            "batches": self.way.calls if self.way.mode == BATCH else 0,
            "cost": self.way.cost,
            "currency": price.currency if price else None,
            "seconds": self.way.seconds,
            "otherMode": self.other.to_json() if self.other else None,
            "price": {
                "perMillion": price.per_million,
                "batchPerMillion": price.batch_per_million,
                "currency": price.currency,
                "asOf": price.as_of or None,
                "source": price.source,
            }
            if price
            else None,
            "priceHint": self.hint or None,
        }

    def words(self) -> list[str]:
        """The same for a person, a line each."""
        lines = [f"{_calls(self.way)}: {self._money(self.way)}{_time(self.way)}"]
        if self.other is not None:
            lines.append(f"the other way, {_calls(self.other)}: {self._money(self.other)}{_time(self.other)}")
        if self.price is not None and self.price.as_of:
            source = "list price" if self.price.source == LISTED else "price of the configuration"
            lines.append(f"{source} of {self.price.as_of}; tokens are estimated")
        if self.hint:
            lines.append(f"add a price to the configuration file: {self.hint}")
        return lines

    def _money(self, way: Way) -> str:
        if self.price is not None and self.price.source == FREE:
            return "free, on this machine"
        if self.price is None or way.cost is None:
            return "no price known"
        sign = "$" if self.price.currency == "USD" else f"{self.price.currency} "
        return f"about {sign}{way.cost:.4f}" if way.cost >= 0.0001 else f"less than {sign}0.0001"


def costs(
    settings: AgentSettings,
    choice: Choice,
    texts: Sequence[int],
    *,
    own: Mapping[str, Mapping[str, Any]],
    learned: Health,
    is_batch_stopped: bool,
) -> Costs | None:
    """What it takes to embed texts of so many tokens each; None when nothing embeds.

    `own`: `prices` of the configuration. `learned`: caps that the provider taught.
    """
    if choice.identity is None or choice.caps is None:
        return None
    remote = settings.memory.remote
    price = price_of(choice.identity, own)
    by_request = _by_request(choice.caps, learned, texts, price, _limits(settings, choice))
    # A server of one's own may have no Batch API; it is believed to when somebody says so.
    api = choice.build_batch() if remote.batch.enabled or not choice.identity.endpoint else None
    by_batch = None
    if api is not None:
        by_batch = _by_batch(choice.provider, api.caps, texts, price)
        api.close()
    is_by_batch = (
        by_batch is not None
        and remote.batch.enabled
        and not is_batch_stopped
        and len(texts) >= remote.batch.min_texts
    )
    way, other = (by_batch, by_request) if is_by_batch and by_batch else (by_request, by_batch)
    model = choice.identity.model
    hint = "" if price else f'prices: {{ "{model}": {{ perMillion: 0.02, asOf: "2026-01-31" }} }}'
    return Costs(way=way, other=other, price=price, hint=hint)


def _limits(settings: AgentSettings, choice: Choice) -> tuple[int, int]:
    """Requests and tokens a minute; what is set is meant for the provider that was asked for."""
    remote = settings.memory.remote
    return (0, 0) if choice.fallback_from else (remote.requests_per_minute, remote.tokens_per_minute)


def _by_request(
    caps: RequestCaps, learned: Health, texts: Sequence[int], price: Price | None, limits: tuple[int, int]
) -> Way:
    max_rows = tighter(caps.max_rows, learned.max_rows)
    max_tokens = tighter(caps.max_tokens, learned.max_tokens)
    requests = rows = tokens = 0
    for size in texts:
        if not rows or rows >= max_rows or tokens + size > max_tokens:
            requests, rows, tokens = requests + 1, 0, 0
        rows, tokens = rows + 1, tokens + size
    per_minute, tokens_per_minute = limits
    minutes = max(
        requests / per_minute if per_minute else 0.0,
        sum(texts) / tokens_per_minute if tokens_per_minute else 0.0,
    )
    return Way(
        mode=REQUESTS,
        calls=requests,
        cost=price.cost(sum(texts), by_batch=False) if price else None,
        # The first minute's allowance goes out at once.
        seconds=round(max(minutes - 1, 0.0) * 60, 1) if any(limits) else None,
    )


def _by_batch(provider: str, caps: BatchCaps, texts: Sequence[int], price: Price | None) -> Way:
    size = sum(texts) * BYTES_PER_TOKEN + len(texts) * BYTES_PER_ROW
    hours = BATCH_HOURS.get(provider)
    return Way(
        mode=BATCH,
        calls=max(math.ceil(len(texts) / caps.max_rows), math.ceil(size / caps.max_bytes)),
        cost=price.cost(sum(texts), by_batch=True) if price else None,
        seconds=hours * 3600.0 if hours else None,
    )


def _calls(way: Way) -> str:
    what = "request" if way.mode == REQUESTS else "batch"
    return f"by {way.calls} {what}{'' if way.calls == 1 else 's' if way.mode == REQUESTS else 'es'}"


def _time(way: Way) -> str:
    if way.seconds is None:
        return ""
    if way.mode == BATCH:
        return f", within {way.seconds / 3600:.0f} hours each"
    minutes = way.seconds / 60
    span = f"{way.seconds:.0f} seconds" if minutes < 2 else f"{minutes:.0f} minutes"
    return f", {span} at least at the limits that are set"
