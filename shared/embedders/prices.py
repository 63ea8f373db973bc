"""What embedding costs at the providers' own services, for plans made before anything is spent.

List prices in US dollars for a million tokens of text, as published in 2026-02. Prices change: a plan says
that it is an estimate, and a server of one's own has none. What a provider gives away (Voyage's first 200
million tokens, Gemini's free keys) is not taken off.
"""

from __future__ import annotations

#: Model -> US dollars for a million tokens.
PER_MILLION = {
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.10,
    "gemini-embedding-001": 0.15,
    "gemini-embedding-2": 0.20,
    "voyage-4-large": 0.12,
    "voyage-4": 0.06,
    "voyage-4-lite": 0.02,
    "voyage-3-large": 0.18,
    "voyage-3.5": 0.06,
    "voyage-3.5-lite": 0.02,
    "voyage-code-3": 0.18,
    "voyage-finance-2": 0.12,
    "voyage-law-2": 0.12,
    "mistral-embed": 0.10,
}


def cost(model: str, tokens: int) -> float | None:
    """US dollars for embedding so many tokens; None for a model without a known price."""
    price = PER_MILLION.get(model)
    return None if price is None else price * tokens / 1_000_000
