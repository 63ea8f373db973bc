"""What embedding costs, for plans made before anything is spent.

List prices of the providers' own services in US dollars for a million tokens of text, by requests and by
batches, as published at the dates below. Prices change: a plan names the date and says that it is an
estimate; `prices` in the configuration wins. What a provider gives away (Voyage's first 200 million tokens,
Gemini's free keys) is not taken off.

    openai   https://platform.openai.com/docs/pricing        batches at half the price
    gemini   https://ai.google.dev/gemini-api/docs/pricing   batches at half the price
    voyage   https://docs.voyageai.com/docs/pricing          batches at a third less (docs/batch-inference)
    mistral  https://mistral.ai/pricing                      no batches here
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.embedders.protocol import Identity

#: When the table was last compared with the providers' pages.
AS_OF = "2026-04-25"

#: Models -> (dollars by requests, dollars by batches; None: there are none).
_LISTED: dict[str, dict[str, tuple[float, float | None]]] = {
    "openai": {
        "text-embedding-3-small": (0.02, 0.01),
        "text-embedding-3-large": (0.13, 0.065),
        "text-embedding-ada-002": (0.10, 0.05),
    },
    "gemini": {
        "gemini-embedding-001": (0.15, 0.075),
        "gemini-embedding-2": (0.20, 0.10),
        "gemini-embedding-2-preview": (0.20, 0.10),
    },
    "voyage": {
        "voyage-4-large": (0.12, 0.0804),
        "voyage-4": (0.06, 0.0402),
        "voyage-4-lite": (0.02, 0.0134),
        "voyage-3-large": (0.18, 0.1206),
        "voyage-3.5": (0.06, 0.0402),
        "voyage-3.5-lite": (0.02, 0.0134),
        "voyage-code-3": (0.18, 0.1206),
        "voyage-finance-2": (0.12, 0.0804),
        "voyage-law-2": (0.12, 0.0804),
    },
    "mistral": {
        "mistral-embed": (0.10, None),
    },
}

#: Where a price comes from: the user's configuration, the table above, or a model on this machine.
OWN, LISTED, FREE = "config", "list", "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens."""

    per_million: float
    #: None: nobody knows, or there are no batches.
    batch_per_million: float | None
    currency: str
    #: Day it was looked up; empty when nobody said.
    as_of: str
    #: OWN, LISTED or FREE.
    source: str

    def cost(self, tokens: int, *, by_batch: bool) -> float | None:
        """What so many tokens cost; None when that is not known."""
        price = self.batch_per_million if by_batch else self.per_million
        return None if price is None else price * tokens / 1_000_000


def price_of(identity: Identity, own: Mapping[str, Mapping[str, Any]]) -> Price | None:
    """The price of what embeds with `identity`; None when nobody knows it.

    `own` is `prices` of the configuration, by `provider/model` or `model`. List prices hold for a provider's
    own address alone: whoever serves the same model elsewhere makes another price.
    """
    set_by_user = own.get(f"{identity.provider}/{identity.model}") or own.get(identity.model)
    if set_by_user is not None and "perMillion" in set_by_user:
        return Price(
            per_million=set_by_user["perMillion"],
            batch_per_million=set_by_user.get("batchPerMillion"),
            currency=set_by_user.get("currency") or "USD",
            as_of=set_by_user.get("asOf") or "",
            source=OWN,
        )
    if identity.provider == "local":
        return Price(per_million=0.0, batch_per_million=None, currency="USD", as_of="", source=FREE)
    listed = _LISTED.get(identity.provider, {}).get(identity.model)
    if listed is None or identity.endpoint:
        return None
    return Price(
        per_million=listed[0], batch_per_million=listed[1], currency="USD", as_of=AS_OF, source=LISTED
    )


def listed() -> dict[str, Price]:
    """The table, by `provider/model`."""
    return {
        f"{provider}/{model}": Price(
            per_million=per_million,
            batch_per_million=by_batch,
            currency="USD",
            as_of=AS_OF,
            source=LISTED,
        )
        for provider, models in _LISTED.items()
        for model, (per_million, by_batch) in models.items()
    }
